"""Reading what nodes send back, and refusing what cannot be used."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from flwr.app import RecordDict
from torch import Tensor

from unskew.engine.client import Workshop
from unskew.flower.wire import ARRAYS, EXTRA, METRICS, to_tensors
from unskew.layout import Kind
from unskew.methods.base import Tensors, Trained


@dataclass(frozen=True, eq=False)
class Upload:
    """What one client sent, read and found to be in order."""

    model: Tensor
    trained: Trained
    extras: Tensors
    samples: int
    keeps: bool
    """Whether the node has a new state to go on from."""


class Unusable(Exception):
    """Why an answer cannot be used."""


def read_uploads(
    contents: Mapping[int, RecordDict],
    sent: Mapping[int, Tensor],
    travels: Tensor | None,
    shop: Workshop,
    bound: float | None,
) -> tuple[dict[int, Upload], dict[int, str]]:
    """Read the answers to a round; return the good ones, and why others cannot be used.

    ``sent`` is the model each client got, ``travels`` marks what it sends of it. With ``bound``,
    a client whose model moved more than so many times the median way of all is refused.
    """
    good: dict[int, Upload] = {}
    refused: dict[int, str] = {}
    size = shop.network.layout.size if travels is None else int(travels.sum())
    for k in sorted(contents):
        try:
            good[k] = _read(contents[k], size, shop)
        except Unusable as reason:
            refused[k] = str(reason)
        except Exception as error:  # whatever bytes a node may send, the round goes on
            refused[k] = f"its answer cannot be read ({type(error).__name__})"
    refused |= _odd_ones_out(good)
    good = {k: upload for k, upload in good.items() if k not in refused}
    if bound is not None:
        refused |= _too_far(good, sent, travels, shop, bound)
    return {k: upload for k, upload in good.items() if k not in refused}, refused


def _read(content: RecordDict, size: int, shop: Workshop) -> Upload:
    tensors, metrics = to_tensors(content.array_records[ARRAYS]), content.metric_records[METRICS]
    if "model" not in tensors:
        raise Unusable("its answer has no model")
    model = tensors.pop("model")
    if model.dtype != torch.float32:
        raise Unusable(f"its model is of {model.dtype}, not torch.float32")
    if model.shape != (size,):
        raise Unusable(f"its model has shape {tuple(model.shape)}, not ({size},)")
    extras = {name.removeprefix(EXTRA): tensor for name, tensor in tensors.items()}
    for name, tensor in extras.items():
        if name not in shop.method.may_be_undefined and not bool(torch.isfinite(tensor).all()):
            raise Unusable(f"what it sent as {name!r} has infinite or undefined numbers")
    samples, steps = _number(metrics, "num-examples"), _number(metrics, "steps")
    if samples < 0 or samples != int(samples) or steps < 0:
        raise Unusable(f"it says that it has {samples} samples and took {steps} steps")
    accuracy = metrics.get("accuracy")
    trained = Trained(
        model,
        int(steps),
        _number(metrics, "loss"),
        None if accuracy is None else _number(metrics, "accuracy"),
        bool(metrics["finite"]) and bool(torch.isfinite(model).all()),
    )
    return Upload(model, trained, extras, int(samples), bool(metrics["keeps"]))


def _number(metrics: Mapping[str, object], name: str) -> float:
    value = metrics.get(name)
    if not isinstance(value, int | float):
        raise Unusable(f"its answer has no {name}")
    return value


def _odd_ones_out(uploads: Mapping[int, Upload]) -> dict[int, str]:
    """Refuse those whose extras are not like those of most."""
    looks = {
        k: tuple(sorted((name, tuple(t.shape), str(t.dtype)) for name, t in upload.extras.items()))
        for k, upload in uploads.items()
    }
    if len(set(looks.values())) < 2:
        return {}
    usual = Counter(looks.values()).most_common(1)[0][0]
    return {
        k: "what it sent besides its model has other names, shapes or types than most sent"
        for k, look in looks.items()
        if look != usual
    }


def _too_far(
    uploads: Mapping[int, Upload],
    sent: Mapping[int, Tensor],
    travels: Tensor | None,
    shop: Workshop,
    bound: float,
) -> dict[int, str]:
    """Refuse those whose model moved very much further than the median of all.

    Counters are left out. Models that are not finite are refused elsewhere, and clients that did
    not move say nothing about how far is usual.
    """
    floats = ~shop.network.layout.mask(Kind.COUNTER)
    mask = floats if travels is None else floats & travels
    ways = {}
    for k, upload in uploads.items():
        moved = torch.zeros_like(sent[k])
        moved[travels if travels is not None else slice(None)] = upload.model
        way = float(torch.linalg.vector_norm((moved - sent[k])[mask].double()))
        if upload.trained.finite and way > 0:
            ways[k] = way
    if not ways:
        return {}
    usual = sorted(ways.values())[(len(ways) - 1) // 2]
    return {
        k: f"its model moved {way / usual:.3g} times as far as the median of all, {bound:g} allowed"
        for k, way in ways.items()
        if way > bound * usual
    }
