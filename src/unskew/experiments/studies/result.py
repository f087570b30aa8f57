"""The result of a study, as plain values for JSON and as a page of Markdown."""

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unskew import __version__
from unskew.experiments.studies.claims import JudgedClaim
from unskew.experiments.studies.library import study_names
from unskew.experiments.studies.measure_registry import measure_of
from unskew.experiments.studies.study import PAPERS, Case, Study
from unskew.experiments.studies.study_scheduler import StudyRuns
from unskew.experiments.studies.values import Cells, mean_and_sd
from unskew.report.charts.chart import thinned, tidied
from unskew.runs.curves import seed_curves
from unskew.utils.tables import Table

_POINTS = 25
"""The maximum number of points per curve."""

Plain = dict[str, Any]


def result_of(study_runs: StudyRuns, cells: Cells, judged: Sequence[JudgedClaim]) -> Plain:
    """Return the whole result, small enough to be committed."""
    study = study_runs.study
    return {
        "study": study.name,
        "title": study.file.title,
        "paper": study.file.paper,
        "reproduces": study.file.reproduces,
        "scale": study.scale,
        "changes": study.changes,
        "note": study.file.note,
        "seeds": study.seeds,
        "version": __version__,
        "cases": [_case(study_runs, case, cells.get(case.name, {})) for case in study.cases],
        "claims": [claim_values(one) for one in judged],
    }


def markdown_of(study: Study, result: Plain) -> str:
    """Return the result as Markdown: the verdicts, then our values beside the paper's."""
    path = study.name if study.name in study_names() else shlex.quote(f"{study.name}.toml")
    lines = [
        f"# {study.file.title}",
        "",
        f"{', '.join(study.file.reproduces)} of *{PAPERS[study.file.paper]}*.",
        f"Scale `{study.scale}`, {_seeds(study.seeds)}. "
        f"Created by `unskew study run {path} --scale {study.scale} --seeds {study.seeds}`.",
        "",
        f"Changes from the paper's setting: {study.changes}",
    ]
    if study.file.note:
        lines += ["", study.file.note.strip()]
    if result["claims"]:
        lines += ["", "## Claims", "", left_aligned(_claims_table(result["claims"]))]
    lines += ["", "## Measured values and the paper's", "", _legend(study), ""]
    lines += [values_table(study, result).to_markdown(), ""]
    lines += ["## Settings", "", left_aligned(settings_table(study.cases)), ""]
    return "\n".join(lines)


def values_table(study: Study, result: Plain) -> Table:
    """Return our values beside the paper's, one row per case and method."""
    printed = {m for case in result["cases"] for row in case["rows"] for m in row["paper"]}
    names = [m for m in study.file.measures if m in printed or _was_measured(result, m)]
    columns = ["case", "method"]
    for name in names:
        columns += [name] + (["paper"] if name in printed else [])
    rows = []
    for case in result["cases"]:
        for row in case["rows"]:
            cells = [case["name"], row["method"]]
            for name in names:
                cells.append(_ours(row["measured"].get(name), name))
                if name in printed:
                    cells.append(measure_of(name).text(row["paper"].get(name, math.nan)))
            rows.append(cells)
    return Table(columns, rows, study.file.title)


def left_aligned(table: Table) -> str:
    """Return a table of sentences as Markdown, with its columns aligned to the left."""
    return table.to_markdown().replace("---:", "---")


def _case(study_runs: StudyRuns, case: Case, cells: Mapping[str, Mapping[str, Any]]) -> Plain:
    labels = dict.fromkeys([*case.methods, *cells, *(k for v in case.paper.values() for k in v)])
    rows = []
    for label in labels:
        measured = {}
        for name, by_seed in cells.get(label, {}).items():
            mean, sd = mean_and_sd(by_seed)
            values = {str(seed): _tidy(value) for seed, value in by_seed.items()}
            measured[name] = {"mean": _tidy(mean), "sd": _tidy(sd), "values": values}
        paper = {name: values[label] for name, values in case.paper.items() if label in values}
        spec = case.methods.get(label)
        rows.append({"method": label, "spec": spec, "measured": measured, "paper": paper})
    return {
        "name": case.name,
        "missing": case.missing,
        "data": {k: v for k, v in case.data.model_dump().items() if v is not None},
        "model": case.model,
        "train": case.train.model_dump(exclude_defaults=True),
        "rows": rows,
        "curves": _curves(study_runs, case),
    }


def _curves(study_runs: StudyRuns, case: Case) -> dict[str, Plain]:
    """Return the mean curve of each method's metric, thinned out."""
    found: dict[str, Plain] = {}
    for label in case.methods:
        runs = study_runs.of(case.name, label)
        if not runs:
            continue
        level = study_runs.runs[case.name].level
        rounds, values = seed_curves(runs, level, runs[0].metric.name)
        places = thinned(len(rounds), _POINTS)
        if values.size:
            sd = values.std(0, ddof=min(1, len(values) - 1))
            found[label] = {
                "level": level,
                "rounds": [rounds[i] for i in places],
                "mean": tidied(values.mean(0)[places]),
                "sd": tidied(sd[places]),
            }
    return found


def claim_values(judged: JudgedClaim) -> Plain:
    """Return a judged claim as plain values."""
    differences = [
        {
            "against": difference.second,
            "mean": _tidy(difference.mean),
            "low": _tidy(difference.low),
            "high": _tidy(difference.high),
            "p": _tidy(difference.p),
            "paper": _tidy(paper),
        }
        for difference, paper in zip(judged.differences, judged.paper, strict=True)
    ]
    return {
        "text": judged.claim.text,
        "measure": judged.claim.measure,
        "verdict": judged.verdict,
        "evidence": str(judged),
        "differences": differences,
    }


def _claims_table(claims: Sequence[Plain]) -> Table:
    rows = [
        [c["text"], f"**{c['verdict']}**", f"`{c['measure']}`: {c['evidence']}"] for c in claims
    ]
    return Table(["claim of the paper", "verdict", "measured (positive is better)"], rows)


def settings_table(cases: Sequence[Case]) -> Table:
    """Return a table of the data, the network and the training settings of each case."""
    rows = []
    for case in cases:
        data = case.data
        samples = "all" if data.samples is None else f"{data.samples:,}"
        train = case.train.model_dump(exclude_defaults=True)
        training = ", ".join(
            f"{key} {value}"
            for key, value in train.items()
            if key != "evaluate_every" and value not in (None, [])
        )
        what = f"{data.name} ({samples}), {data.skew or 'iid'}"
        clients = "-" if data.clients is None else str(data.clients)
        rows.append([case.name, case.missing or what, clients, case.model or "-", training])
    return Table(["case", "data (samples), skew", "clients", "network", "training"], rows)


def _legend(study: Study) -> str:
    names = [f"`{name}`: {measure_of(name).title}" for name in study.file.measures]
    return "Means and standard deviations over seeds. " + "; ".join(names) + "."


def _ours(measured: Plain | None, name: str) -> str:
    if measured is None or measured["mean"] is None:
        return "-"
    text = measure_of(name).text(measured["mean"])
    missing = sum(value is None for value in measured["values"].values())
    if missing:
        return f"{text} ({len(measured['values']) - missing}/{len(measured['values'])} seeds)"
    return text if measured["sd"] is None else f"{text} ± {measure_of(name).text(measured['sd'])}"


def _was_measured(result: Plain, name: str) -> bool:
    rows = [row for case in result["cases"] for row in case["rows"]]
    return any(row["measured"].get(name, {}).get("mean") is not None for row in rows)


def _tidy(value: float) -> float | None:
    return None if not math.isfinite(value) else float(np.format_float_positional(
        value, precision=6, unique=False, fractional=False))  # fmt: skip


def _seeds(count: int) -> str:
    return f"{count} seed{'' if count == 1 else 's'}"
