"""What clients and server send each other before the first round, and what each makes of it.

1. Every client sends the :class:`Evidence` of its columns; each column holds what it holds at most
   clients, and the server sends this schema back. A run with a privacy budget skips this step:
   there, the user declares all columns.
2. Every client sends a summary of its training samples; the server merges the summaries into one
   :class:`Transform` and sends it back.

Messages are plain JSON values, so a simulation and a federation of nodes send the same.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unskew.data.preprocessing.cells import Column
from unskew.data.preprocessing.declared import MAX_LEVELS, Declared
from unskew.data.preprocessing.kinds import Evidence, agreed_kind
from unskew.data.preprocessing.moments import Moments
from unskew.data.preprocessing.noise import NoisySums, noise_scale
from unskew.data.preprocessing.sketch import QuantileSketch
from unskew.data.preprocessing.spec import Prepare
from unskew.data.preprocessing.transform import (
    ColumnStep,
    Transform,
    added_up,
    most_frequent,
    vocabulary_of,
)
from unskew.data.text import tokenise
from unskew.errors import UnskewError

Schema = Mapping[str, Declared]
"""What each column holds, in the order of the features."""
Message = dict[str, Any]
"""Plain JSON values."""

_MAX_LISTED = 3
"""How many clients an error names for one column."""
WHAT_TO_DO = (
    "correct or blank these cells, leave the columns out (features), or say what they hold "
    "(columns, such as ward=category)"
)


def describe_columns(columns: Mapping[str, Column]) -> Message:
    """Return a client's first message: how many cells can be read in which way."""
    return {name: vars(Evidence.of(column)) for name, column in columns.items()}


def agree_on_schema(messages: Sequence[Message], declared: Schema, where: str) -> Schema:
    """Decide what the columns hold: what the user declares, or what they hold at most clients."""
    schema = {
        name: declared.get(name) or Declared(agreed_kind([Evidence(**m[name]) for m in messages]))
        for name in messages[0]
    }
    check_schema(schema, where)
    return schema


def unlike(message: Message, schema: Schema) -> dict[str, str]:
    """Return the columns that a client cannot read as the schema says, with the reason."""
    found = {
        name: Evidence(**message[name]).problem_as(column.kind) for name, column in schema.items()
    }
    return {name: problem for name, problem in found.items() if problem is not None}


def check_all_alike(
    messages: Sequence[Message], schema: Schema, where: str, names: Sequence[str]
) -> None:
    """Raise an error that lists every column that some client cannot read as the schema says."""
    found: dict[str, list[str]] = {}
    for client, message in zip(names, messages, strict=True):
        for name, problem in unlike(message, schema).items():
            found.setdefault(name, []).append(f"{problem}{f' at {client}' if client else ''}")
    if found:
        listed = (
            f"column {name!r}: {', '.join(each[:_MAX_LISTED])}"
            + (f" and at {len(each) - _MAX_LISTED} more" if len(each) > _MAX_LISTED else "")
            for name, each in found.items()
        )
        raise UnskewError(f"{where}: {'; '.join(listed)}; {WHAT_TO_DO}")


def declared_schema(names: Sequence[str], declared: Schema, prepare: Prepare, where: str) -> Schema:
    """Return the schema of a run with a privacy budget, in which the data decides nothing."""
    problem = {}
    for name in names:
        known = declared.get(name)
        if known is None:
            problem[name] = "is not declared"
        elif known.kind in ("number", "date") and known.bounds is None:
            problem[name] = "has no range"
        elif known.kind == "category" and known.levels is None and prepare.categories == "onehot":
            problem[name] = "has no list of categories (or use categories=hashed)"
        elif known.kind == "text":
            problem[name] = "is text, whose vocabulary has no noise"
    if problem:
        raise UnskewError(
            f"{where}: with epsilon, nothing may be inferred from the data: "
            f"{'; '.join(f'column {name!r} {why}' for name, why in problem.items())}; say what "
            "they hold with columns, such as age=0..120,sex=f|m,smokes=boolean"
        )
    return {name: declared[name] for name in names}


def check_schema(schema: Schema, where: str) -> None:
    """Raise if columns cannot be features together, or none has a value."""
    texts = [name for name, column in schema.items() if column.kind == "text"]
    if texts and len(schema) > 1:
        others = [name for name in schema if name not in texts]
        raise UnskewError(
            f"{where}: {_quoted(texts)} hold{'s' * (len(texts) == 1)} text, and a network takes "
            f"one text column or other columns, not both; set features to {texts[0]!r} alone, to "
            f"the others ({_quoted(others) or 'none'}), or declare it a category"
        )
    if all(column.kind == "empty" for column in schema.values()):
        raise UnskewError(f"{where}: no feature column has a value")


def summarise_columns(
    columns: Mapping[str, Column],
    schema: Schema,
    prepare: Prepare,
    rng: np.random.Generator | None = None,
) -> Message:
    """Return a client's second message: the statistics of its training samples.

    ``rng`` draws the noise if there is a privacy budget.
    """
    known = {name: column for name, column in schema.items() if column.kind != "empty"}
    if prepare.budget is None:
        return {n: _summary(n, columns[n], column, prepare) for n, column in known.items()}
    if rng is None:
        raise UnskewError("epsilon: there is no source of noise")
    ranged = sum(column.kind in ("number", "date") for column in known.values())
    scale = noise_scale(ranged, prepare.budget)
    return {n: _noisy_summary(n, columns[n], column, scale, rng) for n, column in known.items()}


def fit(
    messages: Sequence[Message], schema: Schema, prepare: Prepare, samples: Sequence[int]
) -> Transform:
    """Merge the summaries of all clients into the transformation that all of them apply.

    ``samples`` are the clients' numbers of training samples.
    """
    steps = []
    for name, column in schema.items():
        parts = [] if column.kind == "empty" else [message[name] for message in messages]
        steps.append(_step(name, column, parts, prepare, samples))
    return Transform(columns=tuple(steps))


def with_local_statistics(transform: Transform, columns: Mapping[str, Column]) -> Transform:
    """Return a transformation that scales numbers by a client's own statistics."""
    steps = []
    for step in transform.columns:
        moments = Moments.of(_numbers(columns[step.name], Declared(step.kind, step.low, step.high)))
        changed = {"center": moments.mean, "scale": moments.scale}
        steps.append(step.model_copy(update=changed) if step.kind in ("number", "date") else step)
    return Transform(columns=tuple(steps))


def _noisy_summary(
    name: str, column: Column, declared: Declared, noise: float, rng: np.random.Generator
) -> Message:
    """Return sums with noise of a number, and nothing of any other kind."""
    if declared.kind not in ("number", "date"):
        return {}
    if declared.bounds is None:
        raise UnskewError(f"column {name!r}: has no range, so its sums cannot have noise")
    return {**vars(NoisySums.of(_numbers(column, declared), *declared.bounds, noise, rng))}


def _summary(name: str, column: Column, declared: Declared, prepare: Prepare) -> Message:
    missing = {"missing": int((~column.is_present()).sum())}
    if declared.kind in ("number", "date"):
        values = _numbers(column, declared)
        if prepare.mode == "local":
            return missing
        summary = {**missing, **vars(Moments.of(values))}
        if prepare.scale == "robust":
            points = len(values) if prepare.mode == "pooled" else prepare.points
            if prepare.min_cell > 1:  # every value that leaves stands for as many rows
                points = min(points, max(1, len(values) // prepare.min_cell))
            summary["sketch"] = QuantileSketch.of(values, points).to_json()
        return summary
    if declared.kind == "text":
        texts = [tokenise(text)[: prepare.length] for text in column.texts().tolist()]
        counts = Counter(word for words in texts for word in words)
        rows = Counter(word for words in texts for word in set(words))
        return _without_rare(counts, rows, prepare)
    if declared.kind == "category" and declared.levels is None and prepare.categories == "onehot":
        levels, numbers = np.unique(column.texts()[column.is_present()], return_counts=True)
        if len(levels) > MAX_LEVELS:
            raise UnskewError(
                f"column {name!r}: has {len(levels):,} categories, more than {MAX_LEVELS:,}; leave "
                "it out (features), or set prepare to federated:categories=hashed"
            )
        held = dict(zip(levels.tolist(), numbers.tolist(), strict=True))
        return {**missing, **_without_rare(held, held, prepare)}
    return missing


def _without_rare(
    counts: Mapping[str, int], rows: Mapping[str, int], prepare: Prepare
) -> dict[str, Any]:
    """Return the counts of values that enough rows hold, and the sum of the others."""
    sent = {value: counts[value] for value in sorted(counts) if rows[value] >= prepare.min_cell}
    if prepare.min_cell == 1:
        return {"counts": sent}
    return {"counts": sent, "rare": sum(counts.values()) - sum(sent.values())}


def _step(
    name: str,
    declared: Declared,
    parts: Sequence[Message],
    prepare: Prepare,
    samples: Sequence[int],
) -> ColumnStep:
    # With a budget nobody counts gaps, so there is always a feature that marks them.
    gap = prepare.budget is not None or any(part.get("missing") for part in parts)
    kind = declared.kind
    if kind == "empty":
        return ColumnStep(name=name, kind=kind)
    if kind in ("number", "date"):
        center, scale = _center_and_scale(declared, parts, prepare, samples)
        return ColumnStep(
            name=name, kind=kind, center=center, scale=scale, gap=gap,
            low=declared.low, high=declared.high,
        )  # fmt: skip
    if kind == "text":
        counts = added_up(part["counts"] for part in parts)
        if not counts and any(part.get("rare") for part in parts):
            raise UnskewError(
                f"column {name!r}: no client has a word in enough of its texts to send it; lower "
                "min_cell, or give every client more texts"
            )
        words = vocabulary_of(counts, prepare.words)
        return ColumnStep(name=name, kind=kind, words=words, length=prepare.length)
    if kind == "category" and prepare.categories == "hashed" and declared.levels is None:
        return ColumnStep(name=name, kind=kind, buckets=prepare.buckets, gap=gap)
    if kind == "category":
        counted = declared.levels is None and added_up(part["counts"] for part in parts)
        levels = (
            most_frequent(counted, prepare.max_categories) if counted else declared.levels or ()
        )
        return ColumnStep(name=name, kind=kind, levels=levels, gap=gap)
    return ColumnStep(name=name, kind=kind, gap=gap)


def _center_and_scale(
    declared: Declared, parts: Sequence[Message], prepare: Prepare, samples: Sequence[int]
) -> tuple[float, float]:
    if prepare.mode == "local":
        return 0.0, 1.0
    if prepare.budget is not None and declared.bounds is not None:
        sums = [NoisySums(**part).possible(n) for part, n in zip(parts, samples, strict=True)]
        kept = NoisySums.bounded(sums, *declared.bounds)
        moments = NoisySums.merged(kept).moments(*declared.bounds)
        return moments.mean, moments.scale
    keys = ("count", "mean", "squares")
    sent = [Moments(*(part[key] for key in keys)) for part in parts]
    moments = Moments.merged(Moments.bounded(sent))
    if prepare.scale == "standard":
        return moments.mean, moments.scale
    low, high = Moments.range_of(sent)
    sketch = QuantileSketch.merged(
        QuantileSketch.from_json(part["sketch"]).bounded(low, high) for part in parts
    )
    if not sketch.count:
        return moments.mean, moments.scale
    spread = sketch.quantile(0.75) - sketch.quantile(0.25)
    # Where more than half of the values are the same, the standard deviation still is a scale.
    return sketch.quantile(0.5), spread if spread > 0 else moments.scale


def _numbers(column: Column, declared: Declared) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the numbers of a column without its gaps, clipped to the declared range."""
    if declared.kind not in ("number", "date"):
        return np.empty(0)
    values = column.numbers() if declared.kind == "number" else column.dates()
    known = values[~np.isnan(values)]
    return known if declared.bounds is None else np.clip(known, *declared.bounds)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
