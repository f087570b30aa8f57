"""Reading the replies of nodes and rejecting the ones that cannot be used."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from flwr.app import RecordDict
from torch import Tensor

from unskew.composition.values import Finished, Tensors, Trained
from unskew.engine.cohort import ClientTask, CohortResult
from unskew.engine.evaluate import ClientScores
from unskew.flower.wire import ARRAYS, EXTRA, METRICS, MODEL, SAMPLES, to_tensors

MAX_COUNT = 10**9
"""The largest number of samples, test samples or steps that a node can report."""

_MAX_METRIC = 1e100
"""The largest metric that a node can report: its square is finite."""


@dataclass(frozen=True, eq=False)
class Upload:
    """One client's reply to a training request, parsed and checked."""

    trained: Trained
    """Its vector has only the coordinates that are uploaded."""
    extras: Tensors
    samples: int
    has_new_state: bool
    """Whether the node has stored a new state to start the next round from."""


class UnusableReply(Exception):
    """A reply cannot be used; the text says why."""


def read_uploads(
    contents: Mapping[int, RecordDict],
    read: Callable[[int, RecordDict], Upload],
    declared: Collection[str],
) -> tuple[dict[int, Upload], dict[int, str]]:
    """Read the replies of a round; return the usable uploads, and why the others are rejected.

    The engine checks the models and the extras that the method declares; here, extras that it does
    not declare must have the form that most nodes send.
    """
    usable: dict[int, Upload] = {}
    rejected: dict[int, str] = {}
    for k in sorted(contents):
        try:
            usable[k] = _require_finite(read(k, contents[k]))
        except UnusableReply as reason:
            rejected[k] = str(reason)
        except Exception as error:  # the round must survive any bytes that a node may send
            rejected[k] = f"its reply cannot be read ({type(error).__name__})"
    rejected |= _unusual_extras(usable, declared)
    return {k: upload for k, upload in usable.items() if k not in rejected}, rejected


def read_upload(content: RecordDict, size: int, expected_samples: int) -> Upload:
    """Read a reply of unskew's app, whose model must have ``size`` numbers.

    The number of samples is fixed when the run starts, so that no node can change its weight.
    """
    tensors, metrics = to_tensors(content.array_records[ARRAYS]), content.metric_records[METRICS]
    if MODEL not in tensors:
        raise UnusableReply("its reply has no model")
    model = tensors.pop(MODEL)
    if model.dtype != torch.float32:
        raise UnusableReply(f"its model is of {model.dtype}, not torch.float32")
    if model.shape != (size,):
        raise UnusableReply(f"its model has shape {tuple(model.shape)}, not ({size},)")
    extras = {name.removeprefix(EXTRA): tensor for name, tensor in tensors.items()}
    finite = bool(read_number(metrics, "finite")) and bool(torch.isfinite(model).all())
    accuracy = read_number(metrics, "accuracy") if "accuracy" in metrics else None
    steps, loss = read_count(metrics, "steps"), float(read_number(metrics, "loss"))
    samples = read_count(metrics, SAMPLES)
    if samples != expected_samples:
        raise UnusableReply(
            f"it trained on {samples} samples, and reported {expected_samples} when the run started"
        )
    if steps > 0 and samples == 0:
        raise UnusableReply("it trained without samples")
    trained = Trained(model, steps, loss, accuracy, finite)
    return Upload(trained, extras, samples, bool(read_number(metrics, "new_state")))


def _require_finite(upload: Upload) -> Upload:
    """Return an upload; raise if training made its model infinite or undefined."""
    if upload.trained.steps > 0 and not upload.trained.finite:
        raise UnusableReply("its model has infinite or undefined numbers")
    return upload


def numeric_metrics(content: RecordDict) -> dict[str, float]:
    """Return the metrics of a reply that are single numbers."""
    return {
        name: value
        for record in content.metric_records.values()
        for name, value in record.items()
        if isinstance(value, int | float)
    }


def tabulate_metrics(
    contents: Mapping[int, RecordDict], may_be_undefined: Mapping[str, bool] | None = None
) -> ClientScores | None:
    """Tabulate the metrics of the clients that report the most common set of metrics.

    ``may_be_undefined`` names the metrics that may be NaN, and whether they are shares of 1.
    """
    optional = may_be_undefined or {}
    metrics = {k: numeric_metrics(content) for k, content in sorted(contents.items())}
    metrics = {k: each for k, each in metrics.items() if _is_plausible(each, optional)}
    name_sets = Counter(tuple(sorted(each)) for each in metrics.values() if each)
    if not name_sets:
        return None
    usual = name_sets.most_common(1)[0][0]
    metrics = {k: each for k, each in metrics.items() if tuple(sorted(each)) == usual}
    first = next(iter(metrics.values()))
    columns = {
        name: np.array([each[name] for each in metrics.values()], np.float64) for name in first
    }
    return ClientScores(np.array(list(metrics)), columns)


def _is_plausible(metrics: Mapping[str, float], optional: Mapping[str, bool]) -> bool:
    """Return whether no number is huge or undefined and every accuracy is a fraction."""
    return all(
        (name in optional and math.isnan(value))
        or (
            abs(value) <= _MAX_METRIC
            and (0 <= value <= 1 or not optional.get(name, name.endswith("accuracy")))
        )
        for name, value in metrics.items()
    )


def read_number(metrics: Mapping[str, object], name: str) -> float:
    """Return a number from the metrics of a reply."""
    value = metrics.get(name)
    if not isinstance(value, int | float):
        raise UnusableReply(f"its reply has no number {name!r}")
    return value


def read_count(metrics: Mapping[str, object], name: str) -> int:
    """Return a non-negative integer from the metrics of a reply."""
    value = read_number(metrics, name)
    if not 0 <= value <= MAX_COUNT or value != int(value):
        raise UnusableReply(f"its {name!r} is {value:g}, which is not a count")
    return int(value)


def cohort_result(
    tasks: Sequence[ClientTask],
    uploads: Mapping[int, Upload],
    new_states: Mapping[int, Tensors],
    size: int,
    upload_mask: Tensor | None,
    rejected: Mapping[int, str],
    missing: Mapping[int, str],
) -> CohortResult:
    """Put the uploads in the order of the tasks; rows without an upload are zero.

    ``new_states`` is what the server stores for each client whose node has a new state.
    """
    selected = slice(None) if upload_mask is None else upload_mask
    stack = torch.zeros(len(tasks), size)
    trained, finished, samples = [], [], []
    for row, task in zip(stack, tasks, strict=True):
        upload = uploads.get(task.client, _NO_UPLOAD)
        if upload is not _NO_UPLOAD:
            row[selected] = upload.trained.vector
        trained.append(replace(upload.trained, vector=row))
        state = new_states[task.client] if upload.has_new_state else {}
        finished.append(Finished(upload.extras, state))
        samples.append(upload.samples)
    return CohortResult(stack, trained, finished, samples, rejected, missing)


_NO_UPLOAD = Upload(
    Trained(torch.empty(0), 0, float("nan"), finite=False), {}, 0, has_new_state=False
)


def _unusual_extras(uploads: Mapping[int, Upload], declared: Collection[str]) -> dict[int, str]:
    """Reject uploads whose undeclared extras differ in form from the most common form."""
    forms = {
        k: tuple(
            sorted(
                (name, tuple(t.shape), str(t.dtype), bool(t.isfinite().all()))
                for name, t in each.extras.items()
                if name not in declared
            )
        )
        for k, each in uploads.items()
    }
    usual = Counter(forms.values()).most_common(1)[0][0] if forms else ()
    return {
        k: "its extras differ in name, shape, type or finiteness from those of most nodes"
        for k, form in forms.items()
        if form != usual
    }
