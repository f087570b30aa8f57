"""A server that sends what an honest one does not: messages of a run, changed and repeated."""

import json

import grids
from flwr.app import ConfigRecord, Message, RecordDict

from unskew.flower.wire import REFUSAL, REQUEST


def ask(grid, exchange, **changes):
    """Send a message that a node got before, with changed fields; return the reply's content."""
    _, sent, _ = exchange
    fields = json.loads(sent.content.config_records[REQUEST]["json"])
    content = RecordDict(dict(sent.content))
    content[REQUEST] = ConfigRecord({"json": json.dumps(merged(fields, changes))})
    node = sent.metadata.dst_node_id
    message = Message(content=content, message_type=sent.metadata.message_type, dst_node_id=node)
    message.metadata.__dict__["_message_id"] = message.object_id
    message.metadata.__dict__["_src_node_id"] = 1
    reply = grid.app(message, grid.contexts[node])
    assert not reply.has_error()
    return reply.content


def refused(content):
    """Return why a node refuses; None if it answers."""
    record = content.config_records.get(REFUSAL)
    return None if record is None else record["reason"]


def merged(fields, changes):
    """Return fields with changed values; those of a nested object are merged."""
    return {
        **fields,
        **{
            name: merged(fields[name], value)
            if isinstance(value, dict) and isinstance(fields.get(name), dict)
            else value
            for name, value in changes.items()
        },
    }


def exchanges_of(federation, method, state, kind="train.unskew", **options):
    """Execute an honest run; return the grid and its exchanges of one kind."""
    app = options.pop("app", None) or grids.client_app(
        grids.MODEL, federation, method, state=state, **options.pop("app_options", {})
    )
    grid = grids.grid_of(app, len(federation))
    grids.run_on_grid(federation, method, grid=grid, **options)
    return grid, grid.of_kind(kind)
