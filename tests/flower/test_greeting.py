"""What a node reports when a run starts is compared with the others; a liar is refused alone."""

import json
import logging

import numpy as np
import pytest
import torch

import unskew as us
from toys import small_federation
from unskew.errors import UnskewError
from unskew.flower.greeting import Admission, parse_node_info

grids = pytest.importorskip("grids")

from flwr.app import Array, ConfigRecord  # noqa: E402

OPTIONS = {"rounds": 2, "lr": 0.1, "batch_size": 8, "evaluate_every": 0}
BAD = "3"
GOOD = {
    "name": BAD,
    "samples": 9,
    "tests": 2,
    "shape": [5],
    "dtype": "<f4",
    "classes": 3,
    "words": 0,
}


def greeting(text):
    """Make the bad node greet the server with another text."""

    def spoil(name, kind, reply):
        if (name, kind) == (BAD, "query.unskew"):
            reply.content["info"] = ConfigRecord({"json": text})
        return reply

    return spoil


def changed(**fields):
    return json.dumps(GOOD | fields)


BAD_GREETINGS = {
    "samples": (changed(samples=10**12), "samples must be from 0"),
    "more samples than an integer": (changed(samples=10**30), "samples must be from 0"),
    "101 times the others": (changed(samples=900), "the median is"),
    "negative": (changed(samples=-1), "samples must be"),
    "a million classes": (changed(classes=10**6), "classes must be from 1"),
    "more classes": (changed(classes=1000), "set classes"),
    "no class": (changed(classes=0), "classes must be"),
    "another shape": (changed(shape=[6]), "those of most are (5,)"),
    "a huge shape": (changed(shape=[10**5, 10**5]), "numbers each"),
    "many dimensions": (changed(shape=[1] * 64), "positive numbers"),
    "a nested shape": (changed(shape=[[5]]), "positive numbers"),
    "no hash of columns": (changed(columns=3), "hash of its columns"),
    "a raw table": (changed(columns="ab"), "those of most are (5,)"),
    "another type": (changed(dtype="<f8"), "those of most are (5,) of float32"),
    "no number type": (changed(dtype="O"), "number type"),
    "no type": (changed(dtype="five"), "number type"),
    "words": (changed(words=7), "those of most"),
    "too many words": (changed(words=10**9), "words must be"),
    "deep JSON": ("[" * 9_000 + "]" * 900, "not readable JSON"),
    "long JSON": ("[" * 100_000, "characters"),
    "no JSON": ("\x1b[31m", "not readable JSON"),
    "a list": ("[]", "not a JSON object"),
    "a fraction": (changed(samples=1.5), "no samples of type int"),
    "true": (changed(samples=True), "no samples of type int"),
    "an escape sequence": (changed(name="\x1b[31mred"), "printable"),
    "no name": (changed(name=""), "printable"),
    "a long name": (changed(name="x" * 300), "printable"),
}


@pytest.fixture
def flower_log(caplog):
    logger = logging.getLogger("flwr")
    logger.addHandler(caplog.handler)
    logger.setLevel(logging.INFO)
    yield caplog
    logger.setLevel(logging.CRITICAL)
    logger.removeHandler(caplog.handler)


@pytest.fixture(scope="module")
def without():
    """The run of the other six nodes."""
    federation = grids.seven_clients()
    app = grids.client_app(grids.MODEL, federation, "fedavg", state=None)
    grid = grids.grid_of(app, 7)
    grid.offline = {BAD}
    return grids.run_on_grid(federation, "fedavg", grid=grid, **OPTIONS).run


@pytest.mark.parametrize("kind", BAD_GREETINGS)
def test_a_bad_greeting_is_refused_with_one_line(kind, without, flower_log):
    text, reason = BAD_GREETINGS[kind]
    run = grids.run_on_grid(grids.seven_clients(), "fedavg", spoil=greeting(text), **OPTIONS).run
    assert run.clients == 6
    assert torch.equal(grids.vector_of(run.model), grids.vector_of(without.model))
    (line,) = {r.getMessage() for r in flower_log.records if "refused:" in r.getMessage()}
    assert reason in line
    assert "\n" not in line
    assert len(line) < 300
    assert line.isprintable()


def test_a_number_of_samples_is_fixed_when_the_run_starts(without):
    def spoil(name, kind, reply):
        if (name, kind) == (BAD, "train.unskew"):
            reply.content.metric_records["metrics"]["num-examples"] = 10**12
            arrays = reply.content.array_records["arrays"]
            arrays["model"] = Array(-arrays["model"].numpy())
        return reply

    run = grids.run_on_grid(grids.seven_clients(), "fedavg", spoil=spoil, **OPTIONS).run
    assert all("num-examples" in row["rejected"][BAD] for row in run.metrics)

    def slightly(name, kind, reply):
        if (name, kind) == (BAD, "train.unskew"):
            reply.content.metric_records["metrics"]["num-examples"] += 1
        return reply

    run = grids.run_on_grid(grids.seven_clients(), "fedavg", spoil=slightly, **OPTIONS).run
    assert all("when the run started" in row["rejected"][BAD] for row in run.metrics)


def unequal():
    return small_federation((300, 13, 9, 14, 8), unit=True)


def test_the_operator_can_name_a_large_node_and_the_bits_are_those_of_a_simulation():
    simulated = us.train(unequal(), "fedavg", model=grids.MODEL, runner="loop", **OPTIONS)
    refused = grids.run_on_grid(unequal(), "fedavg", **OPTIONS).run
    assert refused.clients == 4
    for options in ({"large_nodes": ["0"]}, {"size_limit": None}, {"size_limit": 50}):
        run = grids.run_on_grid(unequal(), "fedavg", **options, **OPTIONS).run
        assert run.clients == 5
        assert torch.equal(grids.vector_of(run.model), grids.vector_of(simulated.model))


def test_a_share_can_be_capped_with_the_same_bits_everywhere():
    options = OPTIONS | {"max_share": 0.3}
    simulated = us.train(unequal(), "fedavg", model=grids.MODEL, runner="loop", **options)
    run = grids.run_on_grid(unequal(), "fedavg", large_nodes=["0"], **options).run
    assert torch.equal(grids.vector_of(run.model), grids.vector_of(simulated.model))
    assert run.weights.max() == pytest.approx(0.3)
    assert np.allclose(run.weights.sum(1), 1)
    with pytest.raises(UnskewError, match="max_share"):
        us.train(unequal(), "fedavg", max_share=0)


def test_two_groups_of_equal_size_end_the_run_with_advice():
    def spoil(name, kind, reply):
        if kind == "query.unskew" and name in "01":
            info = json.loads(reply.content["info"]["json"])
            reply.content["info"] = ConfigRecord({"json": json.dumps(info | {"shape": [6]})})
        return reply

    with pytest.raises(UnskewError, match="give all of them the same preprocessing"):
        grids.run_on_grid(small_federation(), "fedavg", spoil=spoil, **OPTIONS)


def test_a_node_with_too_many_classes_is_refused_if_the_run_sets_them():
    spoil = greeting(changed(classes=4))
    run = grids.run_on_grid(grids.seven_clients(), "fedavg", spoil=spoil, classes=3, **OPTIONS).run
    assert run.clients == 6


def test_one_liar_cannot_move_the_median_away():
    for samples in (0, 1, 10**9):
        infos = {str(k): GOOD | {"samples": 50 + k} for k in range(6)}
        infos["liar"] = GOOD | {"samples": samples}
        assert set(Admission().refused(infos)) <= {"liar"}


def test_a_good_greeting_is_read():
    assert parse_node_info(json.dumps(GOOD | {"more": 1})) == GOOD


def test_large_nodes_must_be_a_list():
    with pytest.raises(UnskewError, match="large_nodes: give a list of names"):
        grids.Strategy("fedavg", large_nodes="clinic")
