"""Messages of a dishonest server: those of an honest run, with fields that are changed."""

import json
import math
import time
from functools import partial

import grids
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict


def plain_request(message):
    """Return the JSON object of a request, or the fields of a greeting."""
    record = message.content.config_records["request"]
    return json.loads(record["json"]) if "json" in record else dict(record)


def with_request(message, plain):
    """Return a message with another request."""
    if "json" in message.content.config_records["request"]:
        record = ConfigRecord({"json": json.dumps(plain)})
    elif isinstance(plain, dict):  # a greeting
        fits = {k: v for k, v in plain.items() if isinstance(v, str | float) or v in (-1, 0, True)}
        record = ConfigRecord(fits)
    else:
        record = ConfigRecord({"run": str(plain)})
    return with_records(message, {"request": record})


def with_records(message, records):
    """Return a message with other records; one that is None is left out."""
    content = {**message.content, **records}
    metadata = message.metadata
    changed = Message(
        RecordDict({name: record for name, record in content.items() if record is not None}),
        dst_node_id=metadata.dst_node_id,
        message_type=metadata.message_type,
    )
    changed.metadata.__dict__["_message_id"] = changed.object_id
    changed.metadata.__dict__["_src_node_id"] = 1
    return changed


def with_array(message, name, array):
    """Return a message with another array; None leaves the array out."""
    arrays = {**message.content.array_records["arrays"], name: array}
    kept = {name: each for name, each in arrays.items() if each is not None}
    return with_records(message, {"arrays": ArrayRecord(kept)})


def ask(grid, name, message):
    """Return a node's reply to a message, and the seconds it took."""
    node = next(n for n in grid.contexts if grid.name_of(n) == name)
    start = time.perf_counter()
    reply = grid.app(message, grid.contexts[node])
    return reply, time.perf_counter() - start


def refusal_of(reply):
    """Return why a node refuses; None if it does not."""
    assert reply.has_content(), reply.error
    return reason_in(reply.content)


def honest_run(method="fedavg", **options):
    """Run on nodes of which each has a few samples; return the grid with its log."""
    options = {"rounds": 2, "lr": 0.1, "batch_size": 8, **options}
    return grids.run_on_grid(grids.seven_clients(), method, **options).grid


def repeat(grid, exchange, **changes):
    """Send a message again that a node got before, with changed fields; return the content."""
    name, sent, _ = exchange
    message = with_request(sent, merged(plain_request(sent), changes))
    reply, _ = ask(grid, name, message)
    assert reply.has_content(), reply.error
    return reply.content


def merged(fields, changes):
    """Return fields with changed values; those of a nested object are merged."""
    return fields | {
        name: merged(fields[name], value)
        if isinstance(value, dict) and isinstance(fields.get(name), dict)
        else value
        for name, value in changes.items()
    }


def reason_in(content):
    """Return why a node refuses; None if it answers."""
    record = content.config_records.get("refusal")
    return None if record is None else record["reason"]


def trained_exchanges(federation, method, state, app=None, **options):
    """Execute an honest run with state files; return the grid and the exchanges of training."""
    app = app or grids.client_app(grids.MODEL, federation, method, state=state)
    grid = grids.grid_of(app, len(federation))
    grids.run_on_grid(federation, method, grid=grid, **options)
    return grid, grid.of_kind("train.unskew")


LIMITS = {"limits": {"steps": 50, "megabytes": 64}}
"""The policy of nodes that are asked for anything: two seconds are enough for 50 small steps."""

_REMOVED = object()
_NUMBERS = (-1, 0, 0.5, 10**9, 2**63, 10**30, -0.0, 1e-300, 1e300, math.inf, -math.inf, math.nan)
_TEXTS = ("", "../../victim", "/etc/passwd", "a\0b", "x" * 100_000, "fedavg:mu=1e999", "\u202e½")
_CONTAINERS = (None, True, [], {}, [None], {"": None}, [[]] * 1000, _REMOVED)


def paths_of(value, path=()):
    """Yield the path of every field of a JSON value, the value itself included."""
    yield path
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value[:3])
    else:
        return
    for key, each in items:
        yield from paths_of(each, (*path, key))


def changed_at(value, path, new):
    """Return a copy of a JSON value with another value at a path."""
    if not path:
        return new
    copied = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1 and new is _REMOVED:
        del copied[path[0]]
    else:
        copied[path[0]] = changed_at(value[path[0]], path[1:], new)
    return copied


def hostile_values(value):
    """Return values that a field should not have; some are of its type and far out of range."""
    values = [*_CONTAINERS, *_NUMBERS, *_TEXTS]
    if isinstance(value, list):
        values += [value * 2, value[:-1], value[::-1], value * 100_000]
    if isinstance(value, dict):
        values += [{**value, "more": 1}, {**value, "__class__": "os.system"}]
    if isinstance(value, bool):
        values.append(not value)
    elif isinstance(value, int | float):
        values += [value + 1, value * 1e6, -value, int(value) + 10**6]
    return values


def hostile_requests(message):
    """Yield what is changed in a request, and a function that returns the changed message."""
    plain = plain_request(message)
    for path in paths_of(plain):
        value = plain
        for key in path:
            value = value[key]
        for new in hostile_values(value):
            if path or new is not _REMOVED:
                changed = partial(changed_at, plain, path, new)
                yield (
                    f"{path} = {new!r:.40}",
                    lambda changed=changed: with_request(message, changed()),
                )
    texts = ("", "{", "[" * 90_000, '{"a":' * 20_000, "9" * 90_000, "\0", "null", "NaN")
    records = [None, *map(ConfigRecord, ({}, {"json": 5}, {"json": b"{}"}))]
    for record in (*records, *(ConfigRecord({"json": text}) for text in texts)):
        yield f"record {record!s:.30}", partial(with_records, message, {"request": record})


def hostile_arrays(message):
    """Yield what is changed in the arrays, and a function that returns the changed message."""
    arrays = message.content.array_records.get("arrays", {})
    for name, array in arrays.items():
        for what, lie in _lies(array.numpy()):
            yield f"{name}: {what}", lambda name=name, lie=lie: with_array(message, name, lie())
    if arrays:
        extra = Array(np.ones(3, np.float32))
        for name in ("more", "server/more", "../../victim", "unskew.hidden", "x" * 10_000):
            yield f"also {name[:20]}", partial(with_array, message, name, extra)
        yield "no arrays", partial(with_records, message, {"arrays": None})
        many = ArrayRecord({f"a{i}": extra for i in range(1000)})
        yield "many arrays", partial(with_records, message, {"arrays": many})


def _lies(values):
    """Yield what is wrong with an array, and a function that returns it."""
    yield "missing", lambda: None
    for number in (math.nan, math.inf, -1.0, 0.0, 1e38):
        yield f"filled with {number}", partial(_filled, values, number)
    for shape in ((), (0,), (1,), (values.size + 1,), (2 * values.size,), (1, *values.shape)):
        yield f"of shape {shape}", partial(_resized, values, shape)
    for dtype in (np.float64, np.int64, np.bool_, np.float16, np.uint8, np.complex64, "U3"):
        yield f"of {dtype}", lambda dtype=dtype: Array(np.zeros(values.shape, dtype))
    yield "of 80 MB", lambda: Array(np.zeros(20_000_000, np.float32))
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999,), }".ljust(118)
    for what, data in {
        "nothing": b"",
        "cut": Array(np.ascontiguousarray(values)).data[:-1],
        "header": b"\x93NUMPY\x01\x00\x76\x00" + header,
        "nested": b"\x93NUMPY\x01\x00\x00\x10" + b"(" * 4096,
        "pickle": b"\x80\x04N.",
    }.items():
        yield what, partial(Array, "float32", values.shape, "numpy.ndarray", data)


def _filled(values, number):
    with np.errstate(all="ignore"):
        return Array(np.full_like(values, number))


def _resized(values, shape):
    return Array(np.resize(values, shape).astype(values.dtype))
