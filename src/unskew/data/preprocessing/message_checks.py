"""Checks of the messages that clients on other machines send: they can send anything.

Every function raises a ValueError that says what is wrong, without the values.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from unskew.data.preprocessing.declared import MAX_LEVELS, Declared
from unskew.data.preprocessing.kinds import LARGEST, Evidence
from unskew.data.preprocessing.protocol import Message, Schema
from unskew.data.preprocessing.spec import Prepare

MAX_COLUMNS = 20_000
"""The largest number of columns in a message: each is read before a message can be refused."""
_MAX_TEXT, _MAX_NAME = 64_000_000, 10_000
_MAX_WORDS, _MAX_CLASSES = 2_000_000, 100_000
_RARE = {"rare"}
"""What a client sends in place of values that too few of its rows hold, if it has a limit."""
_COUNTS = tuple(field.name for field in fields(Evidence))


def parse_message(text: str) -> Message:
    """Parse a client's message."""
    if len(text) > _MAX_TEXT:
        raise ValueError(f"its message has {len(text)} characters; at most {_MAX_TEXT} are read")
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("its message is not readable JSON") from None
    if not isinstance(message, dict):
        raise ValueError("its message is not a JSON object")
    return message


def check_evidence(message: Message, samples: int) -> None:
    """Check the counts of a client with this many training samples."""
    if not 0 < len(message) <= MAX_COLUMNS:
        raise ValueError(f"it must describe 1 to {MAX_COLUMNS} columns")
    for name, counts in message.items():
        if not 0 < len(name) <= _MAX_NAME:
            raise ValueError("the name of a column is empty or too long")
        if not isinstance(counts, dict) or set(counts) != set(_COUNTS):
            raise ValueError(f"column {name!r}: it must send {', '.join(_COUNTS)}")
        for what in _COUNTS:
            limit = samples if what != "words" else samples * _MAX_TEXT
            _check_count(counts[what], limit, f"column {name!r}: {what}")
        if max(counts[what] for what in ("numbers", "booleans", "dates")) > counts["present"]:
            raise ValueError(f"column {name!r}: more cells can be read than there are")


def check_summary(message: Message, schema: Schema, prepare: Prepare, samples: int) -> None:
    """Check the statistics of a client with this many training samples."""
    expected = [name for name, column in schema.items() if column.kind != "empty"]
    if set(message) != set(expected):
        raise ValueError("its summary does not have the columns that were asked for")
    for name in expected:
        if not isinstance(message[name], dict):
            raise ValueError(f"column {name!r}: its summary is not a JSON object")
        try:
            _check_column(message[name], schema[name], prepare, samples)
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from None


def check_labels(labels: Any, samples: int, classes: int) -> None:
    """Check the labels of a client that has reported this many samples and classes."""
    limit = min(samples, classes, _MAX_CLASSES)
    if not isinstance(labels, list) or not 0 < len(labels) <= limit:
        raise ValueError(f"its labels must be a list of 1 to {limit} values")
    texts = all(isinstance(label, str) and 0 < len(label) <= _MAX_NAME for label in labels)
    numbers = all(type(label) is int and 0 <= label < classes for label in labels)
    if not texts and not numbers:
        raise ValueError(f"its labels must be texts, or whole numbers from 0 to {classes - 1}")
    if len(set(labels)) < len(labels):
        raise ValueError("its labels must be distinct")


def _check_column(part: Message, column: Declared, prepare: Prepare, samples: int) -> None:
    if prepare.budget is not None:
        sums = ("count", "sum", "squares") if column.kind in ("number", "date") else ()
        _check_keys(part, sums)
        for key in sums:
            _check_number(part[key], key)
        return
    if column.kind == "text":
        _check_keys(part, ("counts", *_RARE & set(part)))
        _check_counts(part, _MAX_WORDS, samples * prepare.length)
        return
    counted = column.kind == "category" and column.levels is None
    counted &= prepare.categories == "onehot"
    moments = column.kind in ("number", "date") and prepare.mode != "local"
    keys = ["missing", *["counts", *_RARE & set(part)] * counted]
    keys += ["count", "mean", "squares"] * moments
    _check_keys(part, [*keys, *["sketch"] * (moments and prepare.scale == "robust")])
    _check_count(part["missing"], samples, "missing")
    present = samples - part["missing"]
    if counted and _check_counts(part, MAX_LEVELS, present) != present:
        raise ValueError("counts and missing must add up to its samples")
    if moments:
        _check_count(part["count"], samples, "count")
        if part["count"] != present:
            raise ValueError(f"count and missing must add up to its {samples} samples")
        _check_moments(part, column.bounds or (-LARGEST, LARGEST))
    if "sketch" in part:
        _check_sketch(part["sketch"], present, prepare.points, column.bounds)


def _check_moments(part: Message, bounds: tuple[float, float]) -> None:
    """Check that values in this range can have this mean and these squared deviations."""
    (low, high), mean, count = bounds, part["mean"], part["count"]
    _check_number(mean, "mean", LARGEST)
    _check_number(part["squares"], "squares")
    rounding = 1e-9 * max(abs(low), abs(high))
    if count and not low - rounding <= mean <= high + rounding:
        raise ValueError("its mean must be in the range of the column")
    largest = count * max(high - mean, 0) * max(mean - low, 0)  # half the values at either end
    if not 0 <= part["squares"] <= largest * (1 + 1e-9) + count * rounding**2:
        raise ValueError("squares must be from 0 to what the range of the column allows")


def _check_sketch(
    sketch: Any, present: int, points: int, bounds: tuple[float, float] | None
) -> None:
    if not isinstance(sketch, dict) or set(sketch) != {"values", "weights"}:
        raise ValueError("its sketch must have values and weights")
    values, weights = sketch["values"], sketch["weights"]
    if not isinstance(values, list) or not isinstance(weights, list):
        raise ValueError("its sketch must have lists of values and weights")
    if len(values) != len(weights) or len(values) > points:
        raise ValueError(f"its sketch must have up to {points} values, each with a weight")
    for value in values:
        _check_number(value, "a value of its sketch", LARGEST)
    for weight in weights:
        _check_count(weight, present, "a weight of its sketch")
    if sum(weights) != present or sorted(values) != values:
        raise ValueError("its sketch must have increasing values whose weights add up to count")
    if bounds and values and not bounds[0] <= values[0] <= values[-1] <= bounds[1]:
        raise ValueError("its sketch must have values in the range of the column")


def _check_keys(part: Mapping[str, Any], keys: Sequence[str]) -> None:
    if set(part) != set(keys):
        raise ValueError(f"its summary must have {', '.join(keys) or 'nothing'}")


def _check_counts(part: Message, limit: int, total: int) -> int:
    """Check the counts of values, with that of rare ones; return their sum."""
    counts, rare = part["counts"], part.get("rare", 0)
    _check_count(rare, total, "rare")
    if not isinstance(counts, dict) or len(counts) > limit:
        raise ValueError(f"counts must be a JSON object of at most {limit} entries")
    for text, count in counts.items():
        if not 0 < len(text) <= _MAX_NAME:
            raise ValueError("a counted text is empty or too long")
        _check_count(count, total, "a count")
    found = int(sum(counts.values()) + rare)
    if found > total:
        raise ValueError(f"counts must add up to at most {total}")
    return found


def _check_count(value: Any, limit: int, what: str) -> None:
    if type(value) is not int or not 0 <= value <= limit:
        raise ValueError(f"{what} must be a whole number from 0 to {limit}")


def _check_number(value: Any, what: str, limit: float = LARGEST**2 * 1e20) -> None:
    if type(value) not in (int, float) or not math.isfinite(value) or abs(value) > limit:
        raise ValueError(f"{what} must be a finite number")
