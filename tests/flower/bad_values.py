"""Values that a bad node can send: for each declared value, everything outside its range."""

import numpy as np
import torch
from flwr.app import Array

BAD = "3"
TRAIN = "train.unskew"
MEASURED = {"train_loss": "loss", "train_accuracy": "accuracy"}
"""The names of the values that are sent as metrics."""


def bad_forms(value):
    """Return functions that make a good array a bad one, by the name of what they do."""
    forms = {"missing": None}
    if value.shape is not None:
        forms["shape"] = lambda array: np.concatenate([array.ravel(), array.ravel()])
    if value.dtype is not None:
        other = np.int32 if value.dtype.is_floating_point else np.float32
        forms["type"] = lambda array: array.astype(other)
    forms |= bad_numbers(value)
    return forms


def bad_numbers(value):
    """Return functions that keep shape and type."""
    forms = {}
    is_float = value.dtype is None or value.dtype.is_floating_point
    if is_float and not value.may_be_undefined:
        forms["nan"] = lambda array: np.full_like(array, np.nan)
        forms["inf"] = lambda array: np.full_like(array, np.inf)
    low, high = (np.asarray(bound, float) for bound in (value.low, value.high))
    if np.isfinite(low).any():
        forms["below"] = lambda array: np.where(np.isfinite(low), low - 1, array).astype(
            array.dtype
        )
    if np.isfinite(high).any():
        forms["above"] = lambda array: (0 * array + high + 1).astype(array.dtype)
    if value.times is not None:
        forms["huge"] = lambda array: (array + 1) * array.dtype.type(1e6)
        forms["enormous"] = lambda array: np.full_like(array, 1e38)
    if value.sums_to is not None:
        forms["more"] = lambda array: array * 2 + 1
    if not is_float:
        forms["largest"] = lambda array: np.full_like(array, np.iinfo(array.dtype).max)
    return forms


def sending(name, change):
    """Make the bad node send a changed value; without a change, leave the value out."""

    def spoil(node, kind, reply):
        if (node, kind) != (BAD, TRAIN) or reply.has_error():
            return reply
        if name in MEASURED:
            metrics = reply.content.metric_records["metrics"]
            good = np.array(metrics.pop(MEASURED[name]))
            if change is not None:
                metrics[MEASURED[name]] = float(change(good))
            return reply
        arrays = reply.content.array_records["arrays"]
        if f"extra/{name}" in arrays:
            good = arrays.pop(f"extra/{name}").numpy()
            if change is not None:
                arrays[f"extra/{name}"] = Array(np.asarray(change(good)))
        return reply

    return spoil


def changing(node, name, change, *, first=0):
    """Make a node send a changed model or value, except in its first rounds."""
    rounds = []

    def spoil(sender, kind, reply):
        if (sender, kind) != (node, TRAIN) or reply.has_error():
            return reply
        rounds.append(kind)
        arrays = reply.content.array_records["arrays"]
        key = name if name == "model" else f"extra/{name}"
        if key in arrays and len(rounds) > first:
            arrays[key] = Array(np.asarray(change(arrays[key].numpy())))
        return reply

    return spoil


def silent(name):
    """Drop the replies of the bad node that contain a value."""

    def spoil(node, kind, reply):
        if (node, kind) != (BAD, TRAIN) or reply.has_error():
            return reply
        is_sent = name in MEASURED or f"extra/{name}" in reply.content.array_records["arrays"]
        return None if is_sent else reply

    return spoil


def declared(method):
    """Return all values that the stages of a method receive."""
    return {
        name: value for stage in method.stages() for name, value in stage.method.receives.items()
    }


def model_of(run):
    return torch.cat([tensor.flatten().double() for tensor in run.model.state_dict().values()])
