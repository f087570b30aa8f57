"""A dishonest server asks a node for anything: it gets a refusal that names the field."""

import json
import time

import pytest

grids = pytest.importorskip("grids")

import numpy as np  # noqa: E402
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict  # noqa: E402
from hostile import ask, honest_run, plain_request, refusal_of, with_array, with_request  # noqa: E402

from unskew.flower.requests import PrepareRequest, Request, read_arrays  # noqa: E402
from unskew.flower.wire import Refusal  # noqa: E402


@pytest.fixture(scope="module")
def grid():
    return honest_run()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("noise", float("inf")),
        ("noise", float("nan")),
        ("noise", -1.0),
        ("round", -1),
        ("round", 10**12),
        ("round", 0.5),
        ("stage_index", -1),
        ("stage_index", 7),
        ("client", 7),
        ("clients", 10**12),
        ("classes", 10**12),
        ("target", [0.0, 0.0]),
        ("state", [0]),
        ("run", 5),
        ("settings.lr", float("inf")),
        ("settings.lr", "0.1"),
        ("settings.batch_size", 10**12),
        ("settings.weight_decay", 1e300),
        ("settings.seed", -1),
        ("settings.metric", {}),
        ("settings.rounds", None),
        ("settings.sleep", 5),
    ],
)
def test_a_node_refuses_a_field_by_name_at_once(grid, field, value):
    name, message, _ = grid.of_kind("train.unskew")[0]
    plain = plain_request(message)
    *section, key = field.split(".")
    (plain[section[0]] if section else plain)[key] = value
    reply, seconds = ask(grid, name, with_request(message, plain))
    assert field in refusal_of(reply)
    assert seconds < 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        b"PK\x03\x04" + bytes(100),
        b"\x93NUMPY\x01\x00\x50\x00"
        + b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(80),
        b"\x93NUMPY\x01\x00\x50\x00"
        + b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(80)
        + b"c" * 8,
    ],
    ids=("empty", "nonsense", "archive", "large", "objects"),
)
def test_an_array_that_claims_more_than_was_sent_allocates_nothing(grid, data):
    name, message, _ = grid.of_kind("train.unskew")[0]
    changed = with_array(message, "model", Array("f4", (1,), "numpy.ndarray", data))
    reply, seconds = ask(grid, name, changed)
    assert "model: must be an array of numbers" in refusal_of(reply)
    assert seconds < 1


@pytest.mark.parametrize(
    "kind", ["bool", *(f"{n}{b}" for n in ("int", "uint") for b in (8, 16, 32, 64)), *("efd")]
)
def test_a_method_may_send_numbers_of_any_type(kind):
    numbers = np.ones((2, 3), kind)
    content = RecordDict({"arrays": ArrayRecord({"mine/tensor": Array(numbers)})})
    read = read_arrays(content, 1)["mine/tensor"]
    assert read.numpy().dtype == np.dtype(kind)
    assert (read.numpy() == numbers).all()


@pytest.mark.parametrize("shape", [(), (1,), (7, 7)])
def test_a_model_of_another_shape_is_refused(grid, shape):
    for kind, tensor in (("train.unskew", "model"), ("evaluate.unskew", "global")):
        name, message, _ = grid.of_kind(kind)[0]
        changed = with_array(message, tensor, Array(np.zeros(shape, np.float32)))
        reply, _ = ask(grid, name, changed)
        assert "model" in refusal_of(reply) or "global" in refusal_of(reply)


@pytest.mark.parametrize(
    "schema",
    [
        {"ward": ["category", None, None, [5] * 600_000]},
        {str(i): ["bad", None, None, None] for i in range(40_000)},
        {"ward": ["category", None, None, ["a"]] * 40_000},
    ],
    ids=("levels", "columns", "parts"),
)
def test_a_request_with_very_many_wrong_values_is_refused_at_once(schema):
    plain = {"run": "r", "prepare": "federated", "step": "summarise", "schema": schema}
    content = RecordDict({"request": ConfigRecord({"json": json.dumps(plain)})})
    start = time.perf_counter()
    with pytest.raises(Refusal, match=r"schema|values are wrong"):
        PrepareRequest.of(content, 2_000_000)
    assert time.perf_counter() - start < 2
    with pytest.raises(Refusal, match="JSON of at most 1000 characters"):
        PrepareRequest.of(content, 1000)


def refusal_and_seconds(model, plain):
    """Return why a request is refused, and the seconds of processor time that this took."""
    record = ConfigRecord({"json": json.dumps(plain)})
    before = time.process_time()
    with pytest.raises(Refusal) as error:
        model.of(RecordDict({"request": record}), 100_000_000)
    return str(error.value), time.process_time() - before


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({f"k{i}": 0 for i in range(300_000)}, "k0 is not known"),
        ({"schema": {f"c{i}": ["number", 0.0, 1.0, None] for i in range(100_000)}},
         "schema: must have at most 20000 columns"),
        ({"schema": {f"c{i}": ["x", 0.0, 1.0, None] for i in range(100_000)}},
         "schema: must have at most 20000 columns"),
        ({"step": "apply", "fitted": {"transform": {"columns": [
            {"name": i, "kind": "zzz", "more": 1} for i in range(100_000)]}, "classes": 2}},
         "transform: must have at most 20000 columns"),
        ({"run": "sent.jsonl"}, "run"),
        ({"run": "x" * 65}, "run"),
    ],
)  # fmt: skip
def test_a_large_request_is_refused_at_once(change, reason):
    plain = {"run": "r", "prepare": "federated", "step": "summarise", "schema": {}} | change
    found, seconds = refusal_and_seconds(PrepareRequest, plain)
    assert reason in found
    assert seconds < 1.0


def test_unknown_settings_and_a_tiny_noise_are_refused_by_name():
    settings = {f"k{i}": 0 for i in range(10_000)}
    assert "settings.k0 is not known" in refusal_and_seconds(Request, {"settings": settings})[0]
    assert "noise must be" in refusal_and_seconds(Request, {"run": "r", "noise": 1e-300})[0]
