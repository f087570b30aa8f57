"""What server and nodes write to each other: orders, tensors, and reasons for saying no."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord
from torch import Tensor

from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.methods.common.base import Tensors
from unskew.models.layout import Layout

log = logging.getLogger("flwr").log
"""Flower's own log, which the logs of its runs are made of."""

ACTION = "unskew"
"""Our handlers go by this name, so that an app may have others beside them."""
HELLO, TRAIN, EVALUATE = f"query.{ACTION}", f"train.{ACTION}", f"evaluate.{ACTION}"

ARRAYS, ORDER, METRICS, REFUSAL = "arrays", "order", "metrics", "refusal"
"""The records of a message."""
MODEL = "model"
"""The name of the vector that is trained, both ways."""
EXTRA = "extra/"
"""What stands before the names of extras in a reply."""
SLOT = "slot/"
"""What stands before the names of the server's slots, where a client must know some."""

Version = tuple[int, int]
"""A client's state by the stage and the round that left it."""


class Refusal(UnskewError):
    """A node will not do what it is asked; the text holds nothing of its data and is sent."""


@dataclass(frozen=True)
class Order:
    """What a node must know to do its part, besides the tensors."""

    run: str
    """The same when a run is resumed, another for every new one."""
    method: str
    settings: Settings
    stage: int
    round: int
    client: int
    clients: int
    classes: int
    layout: str
    """The fingerprint of the stage's network."""
    noise: float | None = None
    """The noise of a private stage, for the client that needs most."""
    state: Version | None = None
    """Which of its states the node goes on from: the last one whose upload was used."""

    def to_record(self) -> ConfigRecord:
        """Return what is sent."""
        plain: dict[str, Any] = {**vars(self), "settings": self.settings.model_dump()}
        return ConfigRecord({"json": json.dumps(plain)})

    @staticmethod
    def of(record: ConfigRecord) -> "Order":
        """Read what was sent."""
        plain = json.loads(str(record["json"]))
        state = None if plain["state"] is None else (plain["state"][0], plain["state"][1])
        settings = Settings(**plain["settings"])
        return Order(**{**plain, "settings": settings, "state": state})


class Packing:
    """Packs what is sent to many clients once, instead of once a client."""

    def __init__(self) -> None:
        self._packed: dict[tuple[object, ...], Array] = {}
        self._alive: list[Tensor] = []

    def __call__(self, tensors: Tensors, mask: Tensor | None = None) -> ArrayRecord:
        """Pack tensors; of the model, only what a mask marks."""
        return ArrayRecord(
            {
                name: self._array(tensor, mask if name == MODEL else None)
                for name, tensor in tensors.items()
            }
        )

    def _array(self, tensor: Tensor, mask: Tensor | None) -> Array:
        # By place, for a view of one model among several is a new object each time.
        place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), id(mask))
        if place not in self._packed:
            part = tensor if mask is None else tensor[mask]
            self._packed[place] = Array(part.detach().cpu().numpy())
            self._alive.append(tensor)  # so that its place is not given to another
        return self._packed[place]


def to_arrays(tensors: Tensors) -> ArrayRecord:
    """Pack tensors."""
    return Packing()(tensors)


def to_tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """Unpack tensors, each in memory of its own."""
    return {name: torch.from_numpy(np.array(array.numpy())) for name, array in arrays.items()}


def named_tensors(model: Tensor, layout: Layout) -> Tensors:
    """Return a vector as the tensors of a module's state."""
    return {entry.name: model[entry.place].view(entry.shape).to(entry.dtype) for entry in layout}
