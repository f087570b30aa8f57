"""What the server sends to each client just once, whenever it first takes part."""

from dataclasses import replace

import torch

from unskew.aggregation.uploads import Uploads
from unskew.methods.common.base import Server, Tensors

_REACHED = "reached"


def with_news(payload: Tensors, server: Server, client: int, name: str) -> Tensors:
    """Add the server's slot to what is sent, unless the client has got it already."""
    if name not in server.slots or has_reached(server, client):
        return payload
    return {**payload, name: server.slots[name]}


def has_reached(server: Server, client: int) -> bool:
    """Tell whether a client has got what was sent."""
    reached = server.slots.get(_REACHED)
    return reached is not None and client in reached


def having_reached(server: Server, uploads: Uploads) -> Server:
    """Note that those who answered have got what was sent."""
    before = server.slots.get(_REACHED, torch.empty(0, dtype=torch.int64))
    reached = torch.tensor(sorted({*before.tolist(), *uploads.clients}))
    return replace(server, slots={**server.slots, _REACHED: reached})
