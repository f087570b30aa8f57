"""The log says what Flower's own strategies say, and the app's evaluation is recorded."""

import logging

import pytest

from toys import small_federation
from unskew.report.page import page_text
from unskew.runs.read import read_run
from unskew.runs.runs import Runs

grids = pytest.importorskip("grids")

from flwr.app import MetricRecord  # noqa: E402

from unskew.flower.node import refusal  # noqa: E402

OPTIONS = {"rounds": 2, "lr": 0.1, "batch_size": 8}


@pytest.fixture
def lines():
    """The lines of Flower's log."""
    found = []

    class Collector(logging.Handler):
        def emit(self, record):
            found.append(record.getMessage().strip())

    logger, collector = logging.getLogger("flwr"), Collector()
    logger.addHandler(collector)
    logger.setLevel(logging.INFO)
    yield found
    logger.setLevel(logging.CRITICAL)
    logger.removeHandler(collector)


def test_the_log_has_replies_losses_evaluation_and_a_summary(lines):
    def silent(name, kind, reply):
        return None if (name, kind) == ("2", "train.unskew") else reply

    grids.run_on_grid(small_federation(), "fedavg", spoil=silent, timeout=7.0, **OPTIONS)
    assert "[ROUND 1/2]" in lines
    assert lines.count("aggregate_train: Received 3 results and 1 failures") == 2
    assert lines.count("├── missing: 2: no reply within 7 s") == 2
    assert lines.count("aggregate_evaluate: Received 4 results and 0 failures") == 2
    assert sum(line.startswith("└──> training loss: ") for line in lines) == 2
    assert sum(line.startswith("└──> local: accuracy 0.") for line in lines) == 2
    assert any(line.startswith("Strategy execution finished in ") for line in lines)
    assert "Final results:" in lines


def test_one_node_per_round_is_pointed_out(lines):
    for cohort, expected in ({"participation": 0.5}, 1), ({"cohort": 2}, 0):
        lines.clear()
        run = grids.run_on_grid(small_federation((9, 8)), "fedavg", **cohort, **OPTIONS).run
        assert run.metrics[0]["clients"] == 2 - expected
        assert (
            sum("Flower's own strategies take at least two" in each for each in lines) == expected
        )


@pytest.mark.parametrize("names", [("accuracy", "loss"), ("eval_acc", "eval_loss"), ("f1", "mse")])
def test_the_apps_evaluation_is_the_global_level(tmp_path, names):
    def evaluate_fn(round_, arrays):
        return MetricRecord({names[0]: 0.25 * round_, names[1]: 2.0, "per class": [1.0, 2.0]})

    federation = small_federation()
    app = grids.client_app(grids.MODEL, federation, "fedavg", state=None)
    strategy = grids.Strategy(
        "fedavg", model=grids.MODEL, nodes=4, wait=0.0, out=tmp_path / "run", **OPTIONS
    )
    result = strategy.start(grids.grid_of(app, 4), evaluate_fn=evaluate_fn)
    standard = ("accuracy", "loss") if "acc" in names[0] else names
    assert strategy.run.metrics[1]["global"] == {standard[0]: 0.5, standard[1]: 2.0}
    assert result.evaluate_metrics_serverapp[2][names[0]] == 0.5
    runs = Runs([read_run(tmp_path / "run")])
    assert str(runs.table())
    assert page_text(runs, None, None)
    if standard[0] == "accuracy":
        assert strategy.run.last("global") == 0.5


def test_escape_sequences_of_nodes_reach_neither_the_log_nor_the_records(lines):
    def spoil(name, kind, reply):
        if kind == "evaluate.unskew":
            reply.content.metric_records["metrics"]["local/\x1b[2J"] = 1.0
        elif name == "2" and kind == "train.unskew":
            reply.content = refusal("\x1b]0;owned\x07" + "a" * 10_000)
        return reply

    run = grids.run_on_grid(small_federation(), "fedavg", spoil=spoil, **OPTIONS).run
    assert all(line.isprintable() for text in lines for line in text.splitlines())
    assert any("\\x1b[2J" in line for line in lines)
    why = run.metrics[0]["rejected"]["2"]
    assert why.startswith("2: \\x1b]0;owned\\x07aaa")
    assert len(why) < 400
