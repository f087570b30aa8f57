"""Every field of every reply of one node is hostile in turn: the run ends well for the others.

The fields are those of real replies: the model, each further value, and each number beside them.
In one run a field takes all hostile forms, one after another.
"""

import warnings
from itertools import cycle, islice

import numpy as np
import pytest
import torch

from every_method import ON_NODES
from marks import long_but
from toys import small_federation
from unskew.errors import UnskewError

grids = pytest.importorskip("grids")

TRAIN, EVALUATE = "train.unskew", "evaluate.unskew"
LARGEST_GROWTH = 5
"""How many times as large as the model of the honest run the model may become."""
RENAMED = object()
"""In place of a value: it is sent under a name with control characters."""

SPECS = ON_NODES | {
    "bulyan": "bulyan:f=0",
    "multikrum": "multikrum:f=0",
    "krum": "krum:f=0",
}
CASES = [f"{name} {nodes}" for name in SPECS for nodes in (1, 2, 3, 7)]
QUICK_CASES = ["fedavg 3", "scaffold 2", "feddbe 1"]

FIRST = {1: 3, 2: 4, 3: 5, 7: 0}
"""The form that is sent first, by the number of nodes: before the first round nothing is known."""


def largest(array):
    return np.finfo(array.dtype).max if array.dtype.kind == "f" else np.iinfo(array.dtype).max


ARRAY_FORMS = {
    "missing": lambda array: None,
    "undefined": lambda array: array * np.float32(np.nan),
    "infinite": lambda array: array + np.float32(np.inf),
    "huge": lambda array: np.full_like(array, largest(array) / 10),
    "a million times": lambda array: (array * 1e6).astype(array.dtype),
    "tiny": lambda array: (array * 1e-30).astype(array.dtype),
    "a millionth": lambda array: (array * 1e-6).astype(array.dtype),
    "one ulp": lambda array: np.nextafter(array.astype(np.float32), np.float32(1e38)),
    "negative": lambda array: (-array).astype(array.dtype),
    "zeros": np.zeros_like,
    "shape": lambda array: np.concatenate([array.ravel(), array.ravel()]),
    "scalar": lambda array: np.zeros((), array.dtype),
    "type": lambda array: array.astype(np.int16 if array.dtype.kind == "f" else np.float64),
}
NUMBER_FORMS = {
    "missing": lambda number: None,
    "undefined": lambda number: float("nan"),
    "infinite": lambda number: -float("inf"),
    "huge": lambda number: 1e300,
    "largest integer": lambda number: 2**63 - 1,
    "a million times": lambda number: 1e6 * number,
    "tiny": lambda number: 1e-300,
    "one ulp": lambda number: float(np.nextafter(number, 1e9)),
    "negative": lambda number: -1 - number,
    "zero": lambda number: 0,
    "list": lambda number: [number, number],
    "renamed": lambda number: RENAMED,
}


def fields_of(grid, node, kind):
    """Return the record and the name of each field in the replies of a node."""
    return {
        (name, key)
        for sender, _, reply in grid.of_kind(kind)
        if sender == node and not reply.has_error()
        for name, record in reply.content.items()
        if name in ("arrays", "metrics")
        for key in record
    }


def hostile(node, kind, field, first):
    """Make a node send all forms of a field in turn, beginning with the one at ``first``."""
    record, key = field
    forms = ARRAY_FORMS if record == "arrays" else NUMBER_FORMS
    turns = islice(cycle(forms.values()), first % len(forms), None)

    def spoil(sender, message, reply):
        if (sender, message) != (node, kind) or record not in reply.content:
            return reply
        values = dict(reply.content[record])
        if key not in values:  # it is sent in some rounds only
            return reply
        good = values.pop(key)
        bad = next(turns)(good.numpy() if record == "arrays" else good)
        if bad is RENAMED:
            values[f"\x1b[2J{key}"] = good
        elif bad is not None:
            values[key] = grids.Array(np.asarray(bad)) if record == "arrays" else bad
        reply.content[record] = type(reply.content[record])(values)
        return reply

    return spoil


def run_with(spec, nodes, spoil=None, **options):
    federation = small_federation((20, 13, 9, 14, 8, 11, 17)[:nodes], unit=True)
    usual = {"rounds": len(ARRAY_FORMS), "lr": 0.1, "batch_size": 8, "evaluate_every": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return grids.run_on_grid(federation, spec, spoil=spoil, **usual | options)


def size_of(run):
    return float(torch.linalg.vector_norm(grids.vector_of(run.model).double()))


def assert_ends_well(run, good, node, about):
    assert size_of(run) < LARGEST_GROWTH * size_of(good), about
    for row in run.metrics:
        honest = set(row.get("rejected", {})) - {node}
        if honest:
            assert "nothing tells which one is wrong" in row["kept_model"], (about, row)
            assert set(row["rejected"]) == honest | {node}, (about, row)
            assert len(honest) == 1, (about, row)


@pytest.mark.parametrize("case", long_but(QUICK_CASES, CASES))
def test_one_hostile_node_does_no_harm_beyond_its_share(case):
    method, count = case.split()
    nodes, node, spec = int(count), str(int(count) - 1), SPECS[method]
    try:
        good = run_with(spec, nodes)
    except UnskewError as error:
        pytest.skip(f"{spec} does not run with {nodes}: {error}")
    assert not any("rejected" in row or "kept_model" in row for row in good.run.metrics)
    fields = fields_of(good.grid, node, TRAIN)
    assert {("arrays", "model"), ("metrics", "loss"), ("metrics", "num-examples")} <= fields
    for field in sorted(fields):
        first = FIRST[nodes]
        run = run_with(spec, nodes, hostile(node, TRAIN, field, first)).run
        assert_ends_well(run, good.run, node, field)


EVALUATED = [f"{name} {nodes}" for name in ("fedavg", "fedper", "ifca") for nodes in (1, 2, 3, 7)]


@pytest.mark.parametrize("case", long_but(["fedper 2"], EVALUATED))
def test_a_hostile_evaluation_changes_nothing_but_its_own_metrics(case):
    method, count = case.split()
    nodes, node = int(count), str(int(count) - 1)
    options = {"rounds": len(NUMBER_FORMS), "evaluate_every": 1}
    good = run_with(method, nodes, **options)
    fields = fields_of(good.grid, node, EVALUATE)
    assert ("metrics", "local/accuracy") in fields
    for field in sorted(fields):
        run = run_with(method, nodes, hostile(node, EVALUATE, field, 0), **options).run
        assert torch.equal(grids.vector_of(run.model), grids.vector_of(good.run.model))
        for row in run.metrics:
            assert set(row.get("not_evaluated", [])) <= {node}, (field, row)
            for level in ("local", "personal"):
                measured = row.get(level, {})
                assert np.isfinite(list(measured.values())).all(), (field, row)
                assert 0 <= measured.get("accuracy", 0) <= 1, (field, row)
