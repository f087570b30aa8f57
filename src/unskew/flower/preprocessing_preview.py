"""What the preprocessing of raw tables sends, found by preparing a toy table."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from unskew.data.preprocessing.cells import Column
from unskew.data.preprocessing.declared import Declared
from unskew.data.preprocessing.fitted import noise_of
from unskew.data.preprocessing.protocol import (
    agree_on_schema,
    declared_schema,
    describe_columns,
    fit,
    summarise_columns,
)
from unskew.data.preprocessing.spec import NoPrepare, parse_prepare
from unskew.errors import UnskewError
from unskew.flower.leaving import categories_of_columns
from unskew.flower.policy import MIN_CELL, Category
from unskew.utils.rng import generator

_COLUMNS = ("step", "kind of column", "sent up by every node", "sent down to every node", "leaves")
_SAMPLES = 40


def preview_preprocessing(spec: str) -> list[dict[str, str]]:
    """Prepare a toy table and a toy text; return one row per step and kind of column."""
    prepare = parse_prepare(spec)
    if isinstance(prepare, NoPrepare) or prepare.mode == "pooled":
        raise UnskewError(f"prepare: {prepare.spec} is not possible on nodes")
    tables, rows = [_toy_table()], []
    if prepare.budget is None:
        tables.append(_toy_text())
        rows.append(_row("describe", "every kind", describe_columns(tables[0])["number"], "kind"))
    for columns in tables:
        schema = (
            agree_on_schema([describe_columns(columns)], {}, "toy")
            if prepare.budget is None
            else declared_schema(list(columns), _DECLARED, prepare, "toy")
        )
        at_node = replace(prepare, min_cell=max(prepare.min_cell, MIN_CELL))
        summary = summarise_columns(columns, schema, at_node, noise_of(0, 0))
        fitted = fit([summary], schema, prepare, [_SAMPLES]).to_json()["columns"]
        for (name, known), step in zip(schema.items(), fitted, strict=True):
            down = _names(key for key in step if key not in ("name", "kind"))
            rows.append(_row("summarise", known.kind, summary[name], down))
    return [
        *rows,
        _row("summarise", "label", ("distinct labels",), "classes", {"counts"}),
        # When the node connects, with its number of samples; without classes to agree on.
        _row("connect", "label (regression)", ("sum, sum of squares",), "mean and deviation"),
    ]


def _row(
    step: str,
    kind: str,
    sent: Iterable[str],
    down: str,
    categories: set[Category] | None = None,
) -> dict[str, str]:
    names = list(sent)
    leaves = _names(sorted(categories or categories_of_columns(dict.fromkeys(names))))
    return dict(zip(_COLUMNS, (step, kind, _names(names), down, leaves), strict=True))


def _names(keys: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(keys)) or "-"


_DECLARED = {
    "number": Declared("number", -4.0, 4.0),
    "boolean": Declared("boolean"),
    "date": Declared("date", 0.0, 1.0),
    "category": Declared("category", levels=("a", "b")),
}


def _toy_table() -> dict[str, Column]:
    random = generator(0, "what the preprocessing sends")
    gaps = np.arange(_SAMPLES) % 5 == 0
    return {
        "number": Column("number", np.where(gaps, np.nan, random.normal(size=_SAMPLES))),
        "boolean": Column("boolean", np.where(gaps, np.nan, np.arange(_SAMPLES) % 2)),
        "date": Column("date", np.where(gaps, np.nan, random.random(_SAMPLES))),
        "category": Column("text", np.where(gaps, "", random.choice(["a", "b"], _SAMPLES))),
    }


def _toy_text() -> dict[str, Column]:
    return {"text": Column("text", np.array(["the fever is back again"] * _SAMPLES))}
