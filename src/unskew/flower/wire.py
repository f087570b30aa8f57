"""The contents of messages between server and nodes: requests, tensors, and refusals."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord
from torch import Tensor

from unskew.composition.values import Tensors
from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.models.layout import Layout
from unskew.utils.printable import printable

_LOGGER = logging.getLogger("flwr")

ACTION = "unskew"
"""The name of unskew's message handlers; an app may have other handlers besides them."""
QUERY, TRAIN, EVALUATE = f"query.{ACTION}", f"train.{ACTION}", f"evaluate.{ACTION}"
PREPARE = f"query.{ACTION}_prepare"
"""The types of messages."""

ARRAYS, METRICS, REQUEST, NODE_INFO, REFUSAL = "arrays", "metrics", "request", "info", "refusal"
REPLY = "reply"
"""The names of the records in a message."""
SAMPLES = "num-examples"
"""Flower's name for the number of samples in a reply's metrics."""
MODEL = "model"
"""The name of the vector that is trained, in both directions."""
EXTRA = "extra/"
"""The prefix of the names of extras in a reply."""
SERVER_STATE = "server/"
"""The prefix of the names of the tensors of the server's state that a client needs."""

MAX_REASON = 300
"""The number of characters of a node's reason that are kept."""

StateVersion = tuple[int, int]
"""The stage and the round that produced a client's state."""


def log(level: int, message: str, *arguments: object, exc_info: Exception | None = None) -> None:
    """Write to Flower's log; escape sequences in what nodes send do not reach the terminal."""
    safe = [printable(each) if isinstance(each, str) else each for each in arguments]
    _LOGGER.log(level, message, *safe, exc_info=exc_info)


class Refusal(UnskewError):
    """A node refuses a request. The text is sent to the server and contains no data."""


@dataclass(frozen=True)
class Request:
    """What a node must know to train or evaluate, besides the tensors."""

    run: str
    """The id of the run; a resumed run keeps its id."""
    method: str
    settings: Settings
    stage_index: int
    round: int
    client: int
    clients: int
    classes: int
    layout: str
    """The fingerprint of the stage's network."""
    target: tuple[float, float] | None = None
    """The mean and standard deviation of regression targets; None for classes."""
    noise: float | None = None
    """The noise multiplier of a private stage, set for the client that needs the most noise."""
    state: StateVersion | None = None
    """The state that the node starts from: the last one whose upload was used."""

    def to_record(self) -> ConfigRecord:
        """Return the record that is sent."""
        plain: dict[str, Any] = {**vars(self), "settings": self.settings.model_dump()}
        return ConfigRecord({"json": json.dumps(plain)})

    @staticmethod
    def of(record: ConfigRecord) -> "Request":
        """Read a record that was sent."""
        plain = json.loads(str(record["json"]))
        state = None if plain["state"] is None else (plain["state"][0], plain["state"][1])
        settings = Settings(**plain["settings"])
        target = None if plain["target"] is None else (plain["target"][0], plain["target"][1])
        return Request(**{**plain, "settings": settings, "state": state, "target": target})


class ArrayPacker:
    """Converts tensors to Flower arrays; a tensor sent to many clients is converted once."""

    def __init__(self) -> None:
        self._packed: dict[tuple[object, ...], Array] = {}
        self._alive: list[Tensor] = []

    def __call__(self, tensors: Tensors, mask: Tensor | None = None) -> ArrayRecord:
        """Pack tensors; of the model, pack only the coordinates that the mask selects."""
        return ArrayRecord(
            {
                name: self._array(tensor, mask if name == MODEL else None)
                for name, tensor in tensors.items()
            }
        )

    def _array(self, tensor: Tensor, mask: Tensor | None) -> Array:
        # Keyed by address, because a view of one model among several is a new object every time.
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), id(mask))
        if key not in self._packed:
            part = tensor if mask is None else tensor[mask]
            self._packed[key] = Array(part.detach().cpu().numpy())
            self._alive.append(tensor)  # so that its address is not reused
        return self._packed[key]


def to_arrays(tensors: Tensors) -> ArrayRecord:
    """Convert tensors to Flower arrays."""
    return ArrayPacker()(tensors)


def to_tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """Convert Flower arrays to tensors that share no memory with them."""
    return {name: torch.from_numpy(np.array(array.numpy())) for name, array in arrays.items()}


def named_tensors(model: Tensor, layout: Layout) -> Tensors:
    """Split a flat vector into the tensors of a module's state."""
    return {entry.name: model[entry.slice].view(entry.shape).to(entry.dtype) for entry in layout}
