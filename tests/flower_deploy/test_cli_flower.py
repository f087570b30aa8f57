"""``unskew flower`` as a user types it; the federation is simulated in this process."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("psutil")
pytest.importorskip("trustme")

import unskew as us
from unskew.cli import flower_up
from unskew.flower.loopback.apps import load_task, read_app_config, with_changes
from unskew.flower.loopback.federation import EndedRun
from unskew.flower.loopback.programs import last_error


@pytest.fixture
def unskew(tmp_path, monkeypatch, capsys):
    """Run a command; return its exit code, and what it prints on both streams."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def run_command(*arguments: object) -> tuple[int, str, str]:
        from unskew.cli import main

        monkeypatch.setattr("sys.argv", ["unskew", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, *capsys.readouterr()

    return run_command


class SimulatedLoopback:
    """Replaces the programs of a federation: it trains in this process."""

    seed_shift, status = 0, "finished:completed"

    def __init__(self, folder, nodes, *, tls, out):
        self.nodes = nodes

    def __enter__(self):
        return self

    def __exit__(self, *reason):
        pass

    def run(self, app, changes, seconds, watch):
        config = with_changes(read_app_config(app), changes, app)
        assert config["nodes"] == self.nodes
        task = load_task(app)
        settings = {**task.settings(config), "runner": "loop"}
        settings["seed"] += self.seed_shift
        us.train(
            task.federation(config), task.METHOD, model=task.MODEL, out=config["out"],
            resume=config["resume"], progress=False, **settings,
        )  # fmt: skip
        watch()
        return EndedRun(1, self.status, "first line\nlast line")


@pytest.fixture
def app(unskew, monkeypatch):
    monkeypatch.setattr(flower_up, "Loopback", SimulatedLoopback)
    monkeypatch.setattr("unskew.cli.flower.find_spec", lambda name: object())
    code, output, errors = unskew(
        "flower", "new", "app", "--method", "ida", "--model", "mlp:hidden=4", "--clients", 3,
        "--rounds", 4,
    )  # fmt: skip
    assert (code, errors) == (0, "")
    assert "app/server_app.py" in output
    assert output.endswith("try it: unskew flower up app --nodes 3 --tls --check-parity\n")
    return "app"


def test_rounds_and_parity_are_printed(unskew, app):
    code, output, errors = unskew(
        "flower", "up", app, "--nodes", 2, "--rounds", 2, "--check-parity"
    )
    assert (code, errors) == (0, "")
    lines = output.splitlines()
    assert lines[0] == "2 nodes, no TLS; logs: app/runs/1/logs"
    assert " ".join(lines[1].split()) == "stage round nodes train loss global local seconds"
    assert [line.split()[:3] for line in lines[2:4]] == [["task", "1", "2/2"], ["task", "2", "2/2"]]
    assert lines[-1].startswith("parity: all ")
    assert unskew("flower", "up", app, "--rounds", 1)[1].startswith(
        "3 nodes, no TLS; logs: app/runs/2"
    )


def test_different_weights_exit_with_one(unskew, app, monkeypatch):
    monkeypatch.setattr(SimulatedLoopback, "seed_shift", 1)
    code, output, _ = unskew("flower", "up", app, "--rounds", 1, "--check-parity")
    assert code == 1
    assert "NOT allowed" in output


def test_a_failed_run_is_reported_with_its_last_lines(unskew, app, monkeypatch):
    monkeypatch.setattr(SimulatedLoopback, "status", "finished:failed")
    code, _, errors = unskew("flower", "up", app, "--rounds", 1)
    assert code == 2
    assert errors.startswith("error: the run ended as finished:failed; logs are in app/runs/1/logs")
    assert "    last line" in errors


def test_the_reasons_of_server_and_nodes_are_repeated(unskew, app, monkeypatch):
    traceback = "Traceback (most recent call last):\n  File ...\n"
    log = f"{traceback}unskew.errors.UnskewError: nodes: 3 connected, of which 0 can take part\nend"
    errors = {"node-0": "KeyError: 'age'", "node-1": "KeyError: 'age'", "node-2": "metrics: odd"}
    failed = EndedRun(1, "finished:failed", log, errors)
    monkeypatch.setattr(SimulatedLoopback, "run", lambda *arguments: failed)
    code, _, shown = unskew("flower", "up", app)
    assert code == 2
    assert shown.splitlines() == [
        "error: the run ended as finished:failed: nodes: 3 connected, of which 0 can take part; "
        "logs are in app/runs/1/logs",
        "    node-0, node-1: KeyError: 'age'",
        "    node-2: metrics: odd",
    ]
    assert last_error(f"{traceback}KeyError: 'age'\n[INFO] end") == "KeyError: 'age'"
    assert last_error("INFO: all is well") is None


def test_the_errors_of_nodes_are_shown_below_a_completed_run(unskew, app, monkeypatch):
    run = SimulatedLoopback.run

    def with_a_failing_node(self, *arguments):
        return replace(run(self, *arguments), node_errors={"node-2": "KeyError: 'age'"})

    monkeypatch.setattr(SimulatedLoopback, "run", with_a_failing_node)
    code, output, shown = unskew("flower", "up", app, "--rounds", 1)
    assert (code, shown) == (0, "node-2: KeyError: 'age'\n")
    assert "run: app/runs/1 " in output


def test_a_run_that_no_round_changed_exits_with_one(unskew, app, monkeypatch):
    run = SimulatedLoopback.run

    def without_usable_uploads(self, *arguments):
        ended = run(self, *arguments)
        path = Path("app/runs/1/metrics.jsonl")
        rows = [
            json.loads(line) | {"kept_model": "too few"} for line in path.read_text().splitlines()
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return ended

    monkeypatch.setattr(SimulatedLoopback, "run", without_usable_uploads)
    code, _, shown = unskew("flower", "up", app, "--rounds", 1)
    assert code == 1
    assert shown.startswith("error: no round changed the model of ida (seed 0)")


def test_a_run_that_recorded_nothing_is_not_announced(unskew, app, monkeypatch):
    done = EndedRun(1, "finished:completed", "")
    monkeypatch.setattr(SimulatedLoopback, "run", lambda *arguments: done)
    code, output, shown = unskew("flower", "up", app)
    assert code == 2
    assert "run:" not in output
    assert 'recorded nothing here; give out=context.run_config["out"] to its Strategy' in shown


def test_a_run_can_be_resumed(unskew, app):
    assert unskew("flower", "up", app, "--rounds", 1, "--out", "run")[0] == 0
    code, output, _ = unskew("flower", "up", app, "--rounds", 3, "--out", "run", "--resume")
    assert code == 0
    assert [line.split()[1] for line in output.splitlines() if line.startswith("task")] == list(
        "123"
    )


def test_resume_needs_a_folder(unskew, app):
    code, output, errors = unskew("flower", "up", app, "--resume")
    assert (code, output) == (2, "")
    assert errors == "error: --resume: give --out, the folder of the run to resume\n"


@pytest.mark.parametrize("missing", [["flwr"], ["psutil", "trustme"], ["trustme"]])
def test_missing_packages_and_their_extra_are_named(unskew, monkeypatch, missing):
    monkeypatch.setattr(
        "unskew.cli.flower.find_spec", lambda name: None if name in missing else object()
    )
    code, output, errors = unskew("flower", "up", "app")
    assert (code, output) == (2, "")
    assert errors == (
        f"error: flower: missing packages: {', '.join(missing)}; they are in the extra flower: "
        'pip install "unskew[flower]"\n'
    )


def test_traffic_is_listed(unskew):
    code, output, _ = unskew("flower", "sends", "fedper", "feddisco", "--json")
    assert code == 0
    personal, histograms = json.loads(output)
    assert personal["model parts that stay"] == "head"
    assert histograms["sent up besides the model"] == "label_counts"
    assert "label_counts" in unskew("flower", "sends", "feddisco")[1]
    options = ("--data", "digits", "--model", "mlp:hidden=4", "--json")
    (row,) = json.loads(unskew("flower", "sends", "feddisco", *options)[1])
    assert "extra/label_counts [10], finite, loss, model [310]," in row["values and shapes"]
    assert "need both METHOD and --data" in unskew("flower", "sends", *options)[2]


def test_rounds_list_missing_nodes_and_reasons(capsys, tmp_path):
    row = {
        "stage": "task", "round": 3, "clients": 4, "train_loss": None, "seconds": 1.25,
        "missing": {"1": "clinic-b: it is not connected"},
        "rejected": {"2": "clinic-c: it raised ValueError"},
        "kept_model": "fewer than 3 usable uploads; the previous model is kept",
        "local": {"accuracy": 0.5, "loss": 1.0},
    }  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    flower_up.RoundPrinter(tmp_path).print_new()
    _, line, *notes = capsys.readouterr().out.splitlines()
    assert line.split() == ["task", "3", "2/4", "-", "-", "50.00%", "1.2"]
    assert notes == [
        "  missing clinic-b: it is not connected",
        "  rejected clinic-c: it raised ValueError",
        "  fewer than 3 usable uploads; the previous model is kept",
    ]


def test_up_names_all_missing_keys_at_once(unskew, tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.flwr.app.config]\nlr = 0.1\n")
    code, _, errors = unskew("flower", "up", tmp_path, "--rounds", 2)
    assert code != 0
    assert "has no nodes, out, resume, train.rounds; add them there" in errors
