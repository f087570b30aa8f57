"""Reading what nodes send back, and refusing what cannot be used."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from flwr.app import RecordDict
from torch import Tensor

from unskew.engine.cohort import Result, Task
from unskew.engine.evaluate import ClientScores
from unskew.flower.wire import ARRAYS, EXTRA, METRICS, MODEL, to_tensors
from unskew.methods.common.base import Finished, Tensors, Trained
from unskew.models.layout import Kind, Layout


@dataclass(frozen=True, eq=False)
class Upload:
    """What one client sent, read and found to be in order."""

    trained: Trained
    """Its vector holds the coordinates that travel."""
    extras: Tensors
    samples: int
    keeps: bool
    """Whether the node has a new state to go on from."""


class Unusable(Exception):
    """Why an answer cannot be used."""


def usable(
    contents: Mapping[int, RecordDict],
    read: Callable[[RecordDict], Upload],
    sent: Mapping[int, Tensor],
    travels: Tensor | None,
    layout: Layout,
    bound: float | None,
) -> tuple[dict[int, Upload], dict[int, str]]:
    """Read the answers of a round; return the good ones, and why others cannot be used.

    ``sent`` is the model each client got, ``travels`` marks what it sends of it. With ``bound``,
    a client whose model moved more than so many times the median way of all is refused.
    """
    good: dict[int, Upload] = {}
    refused: dict[int, str] = {}
    for k in sorted(contents):
        try:
            good[k] = _finite(read(contents[k]))
        except Unusable as reason:
            refused[k] = str(reason)
        except Exception as error:  # whatever bytes a node may send, the round goes on
            refused[k] = f"its answer cannot be read ({type(error).__name__})"
    refused |= _odd_ones_out(good)
    good = {k: upload for k, upload in good.items() if k not in refused}
    if bound is not None:
        refused |= _too_far(good, sent, travels, layout, bound)
    return {k: upload for k, upload in good.items() if k not in refused}, refused


def read_upload(content: RecordDict, size: int, may_be_undefined: Collection[str]) -> Upload:
    """Read the answer of unskew's own app; the model must have so many numbers."""
    tensors, metrics = to_tensors(content.array_records[ARRAYS]), content.metric_records[METRICS]
    if MODEL not in tensors:
        raise Unusable("its answer has no model")
    model = tensors.pop(MODEL)
    if model.dtype != torch.float32:
        raise Unusable(f"its model is of {model.dtype}, not torch.float32")
    if model.shape != (size,):
        raise Unusable(f"its model has shape {tuple(model.shape)}, not ({size},)")
    extras = {name.removeprefix(EXTRA): tensor for name, tensor in tensors.items()}
    for name, tensor in extras.items():
        if name not in may_be_undefined and not bool(torch.isfinite(tensor).all()):
            raise Unusable(f"what it sent as {name!r} has infinite or undefined numbers")
    finite = bool(number(metrics, "finite")) and bool(torch.isfinite(model).all())
    accuracy = number(metrics, "accuracy") if "accuracy" in metrics else None
    steps, loss = int(number(metrics, "steps")), number(metrics, "loss")
    samples = whole_number(metrics, "num-examples")
    if steps > 0 and samples == 0:
        raise Unusable("it trained without samples")
    trained = Trained(model, steps, loss, accuracy, finite)
    return Upload(trained, extras, samples, bool(number(metrics, "keeps")))


def _finite(upload: Upload) -> Upload:
    """Return an upload; one that took steps and has no numbers to show for it is unusable."""
    if upload.trained.steps > 0 and not upload.trained.finite:
        raise Unusable("its model has infinite or undefined numbers")
    return upload


def figures(content: RecordDict) -> dict[str, float]:
    """Return the numbers among an answer's metrics."""
    return {
        name: value
        for record in content.metric_records.values()
        for name, value in record.items()
        if isinstance(value, int | float)
    }


def columns_of(contents: Mapping[int, RecordDict]) -> ClientScores | None:
    """Make a table of what clients measured: of those that tell what most tell."""
    told = {k: figures(content) for k, content in sorted(contents.items())}
    names = Counter(tuple(sorted(each)) for each in told.values() if each)
    if not names:
        return None
    usual = names.most_common(1)[0][0]
    told = {k: each for k, each in told.items() if tuple(sorted(each)) == usual}
    first = next(iter(told.values()))
    columns = {name: np.array([each[name] for each in told.values()], np.float64) for name in first}
    return ClientScores(np.array(list(told)), columns)


def number(metrics: Mapping[str, object], name: str) -> float:
    """Return a figure of an answer."""
    value = metrics.get(name)
    if not isinstance(value, int | float):
        raise Unusable(f"its answer has no number {name!r}")
    return value


def whole_number(metrics: Mapping[str, object], name: str) -> int:
    """Return a count of an answer."""
    value = number(metrics, name)
    if value < 0 or value != int(value):
        raise Unusable(f"its {name!r} is {value}, which counts nothing")
    return int(value)


def result_of(
    tasks: Sequence[Task],
    uploads: Mapping[int, Upload],
    tickets: Mapping[int, Tensors],
    size: int,
    travels: Tensor | None,
    refused: Mapping[int, str],
    missing: Mapping[int, str],
) -> Result:
    """Put the uploads in the order of the tasks; rows without one are zeros.

    ``tickets`` are what the server keeps of clients that have a new state.
    """
    place = slice(None) if travels is None else travels
    stack = torch.zeros(len(tasks), size)
    trained, finished, samples = [], [], []
    for row, task in zip(stack, tasks, strict=True):
        upload = uploads.get(task.client, _NOTHING)
        if upload is not _NOTHING:
            row[place] = upload.trained.vector
        trained.append(replace(upload.trained, vector=row))
        finished.append(Finished(upload.extras, tickets[task.client] if upload.keeps else {}))
        samples.append(upload.samples)
    return Result(stack, trained, finished, samples, refused, missing)


_NOTHING = Upload(Trained(torch.empty(0), 0, float("nan"), finite=False), {}, 0, keeps=False)


def _odd_ones_out(uploads: Mapping[int, Upload]) -> dict[int, str]:
    """Refuse those whose extras are not like those of most."""
    looks = {
        k: tuple(sorted((name, tuple(t.shape), str(t.dtype)) for name, t in each.extras.items()))
        for k, each in uploads.items()
    }
    usual = Counter(looks.values()).most_common(1)[0][0] if looks else ()
    return {
        k: "what it sent besides its model has other names, shapes or types than most sent"
        for k, look in looks.items()
        if look != usual
    }


def _too_far(
    uploads: Mapping[int, Upload],
    sent: Mapping[int, Tensor],
    travels: Tensor | None,
    layout: Layout,
    bound: float,
) -> dict[int, str]:
    """Refuse those whose model moved very much further than the median of all.

    Counters are left out. Models that are not finite are refused elsewhere, and clients that did
    not move say nothing about how far is usual.
    """
    mask = ~layout.mask(Kind.COUNTER)
    place = torch.ones_like(mask) if travels is None else travels
    ways = {}
    for k, upload in uploads.items():
        moved = torch.zeros(layout.size, dtype=torch.float64)
        moved[place] = upload.trained.vector.double() - sent[k][place].double()
        way = float(torch.linalg.vector_norm(moved[mask]))
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
