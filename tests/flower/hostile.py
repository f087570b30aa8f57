"""Messages of a dishonest server: those of an honest run, with fields that are changed."""

import json
import time

import grids
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

KINDS = ("query.unskew", "query.unskew_prepare", "train.unskew", "evaluate.unskew")


def plain_request(message):
    """Return the JSON object of a request."""
    return json.loads(message.content.config_records["request"]["json"])


def with_request(message, plain):
    """Return a message with another request."""
    return with_records(message, {"request": ConfigRecord({"json": json.dumps(plain)})})


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
