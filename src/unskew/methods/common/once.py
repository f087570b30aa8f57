"""Tensors that the server sends to each client only once, when it first takes part."""

import torch

from unskew.aggregation.uploads import Uploads
from unskew.composition.values import Server, Tensors

_RECEIVED = "received_by"
"""The server's slot with the ids of the clients that have received the tensor."""


def slot_once(server: Server, client: int, name: str) -> Tensors:
    """Return one of the server's tensors, unless the client has received it already."""
    if name not in server.slots or has_received(server, client):
        return {}
    return {name: server.slots[name]}


def has_received(server: Server, client: int) -> bool:
    """Return whether a client has received the tensor."""
    received = server.slots.get(_RECEIVED)
    return received is not None and client in received


def mark_received(server: Server, uploads: Uploads) -> Tensors:
    """Return the slot in which this round's clients are marked as having received the tensor."""
    before = server.slots.get(_RECEIVED, torch.empty(0, dtype=torch.int64))
    return {_RECEIVED: torch.tensor(sorted({*before.tolist(), *uploads.clients}))}
