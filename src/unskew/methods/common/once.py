"""Tensors that the server sends to each client only once, when it first takes part."""

import torch

from unskew.aggregation.uploads import Uploads
from unskew.composition.values import Server, Tensors

_RECEIVED = "received_by"
"""The tensor of the server's state with the ids of the clients that have received the tensor."""


def send_once(server: Server, client: int, name: str) -> Tensors:
    """Return one of the server's tensors, unless the client has received it already."""
    if name not in server.state or has_received(server, client):
        return {}
    return {name: server.state[name]}


def has_received(server: Server, client: int) -> bool:
    """Return whether a client has received the tensor."""
    received = server.state.get(_RECEIVED)
    return received is not None and client in received


def mark_received(server: Server, uploads: Uploads) -> Tensors:
    """Return the tensor in which this round's clients are marked as having received the tensor."""
    before = server.state.get(_RECEIVED, torch.empty(0, dtype=torch.int64))
    return {_RECEIVED: torch.tensor(sorted({*before.tolist(), *uploads.clients}))}
