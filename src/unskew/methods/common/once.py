"""Tensors that the server sends to each client only once, when it first takes part."""

from dataclasses import replace

import torch

from unskew.aggregation.uploads import Uploads
from unskew.methods.common.base import Server, Tensors

_RECEIVED = "received_by"
"""The server's slot with the ids of the clients that have received the tensor."""


def with_slot_once(payload: Tensors, server: Server, client: int, name: str) -> Tensors:
    """Add a slot of the server to the payload, unless the client has received it already."""
    if name not in server.slots or has_received(server, client):
        return payload
    return {**payload, name: server.slots[name]}


def has_received(server: Server, client: int) -> bool:
    """Return whether a client has received the tensor."""
    received = server.slots.get(_RECEIVED)
    return received is not None and client in received


def mark_received(server: Server, uploads: Uploads) -> Server:
    """Return the server with this round's clients marked as having received the tensor."""
    before = server.slots.get(_RECEIVED, torch.empty(0, dtype=torch.int64))
    received = torch.tensor(sorted({*before.tolist(), *uploads.clients}))
    return replace(server, slots={**server.slots, _RECEIVED: received})
