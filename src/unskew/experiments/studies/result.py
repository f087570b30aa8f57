"""The result of a study: plain values for JSON, and a page of Markdown for people."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unskew import __version__
from unskew.experiments.studies.claims import Judged
from unskew.experiments.studies.library import study_names
from unskew.experiments.studies.measure_registry import measure_of
from unskew.experiments.studies.scheduler import StudyRuns
from unskew.experiments.studies.study import PAPERS, Case, Study
from unskew.experiments.studies.values import Cells, mean_and_sd
from unskew.report.charts.chart import thinned, tidied
from unskew.report.charts.curves import seed_curves
from unskew.utils.tables import Table

_POINTS = 25
"""A curve keeps at most so many points."""

Plain = dict[str, Any]


def result_of(played: StudyRuns, cells: Cells, judged: Sequence[Judged]) -> Plain:
    """Return everything that was found, small enough to be committed."""
    study = played.study
    return {
        "study": study.name,
        "title": study.file.title,
        "paper": study.file.paper,
        "makes": study.file.makes,
        "scale": study.scale,
        "changes": study.changes,
        "note": study.file.note,
        "seeds": study.seeds,
        "version": __version__,
        "cases": [_case(played, case, cells.get(case.name, {})) for case in study.cases],
        "claims": [_claim(one) for one in judged],
    }


def markdown_of(study: Study, result: Plain) -> str:
    """Write the result for people: the verdicts first, then our figures beside the paper's."""
    named = study.name if study.name in study_names() else f"{study.name}.toml"
    lines = [
        f"# {study.file.title}",
        "",
        f"{', '.join(study.file.makes)} of *{PAPERS[study.file.paper]}*.",
        f"Scale `{study.scale}`, {_seeds(study.seeds)}. "
        f"Made by `unskew study run {named} --scale {study.scale} --seeds {study.seeds}`.",
        "",
        f"Against the paper's setting this scale changes: {study.changes}",
    ]
    if study.file.note:
        lines += ["", study.file.note.strip()]
    if result["claims"]:
        lines += ["", "## Claims", "", left_aligned(_claims_table(result["claims"]))]
    lines += ["", "## Figures, ours and the paper's", "", _legend(study), ""]
    lines += [figures_table(study, result).to_markdown(), ""]
    lines += ["## Settings", "", left_aligned(settings_table(study.cases)), ""]
    return "\n".join(lines)


def figures_table(study: Study, result: Plain) -> Table:
    """Lay our figures out beside the paper's: a row a case and method."""
    told = {m for case in result["cases"] for row in case["rows"] for m in row["paper"]}
    names = [m for m in study.file.measures if m in told or _was_measured(result, m)]
    columns = ["case", "method"]
    for name in names:
        columns += [name] + (["paper"] if name in told else [])
    rows = []
    for case in result["cases"]:
        for row in case["rows"]:
            cells = [case["name"], row["method"]]
            for name in names:
                cells.append(_ours(row["measured"].get(name), name))
                if name in told:
                    cells.append(measure_of(name).text(row["paper"].get(name, math.nan)))
            rows.append(cells)
    return Table(columns, rows, study.file.title)


def left_aligned(table: Table) -> str:
    """Return a table of sentences as Markdown; tables of numbers are aligned to the right."""
    return table.to_markdown().replace("---:", "---")


def _case(played: StudyRuns, case: Case, cells: Mapping[str, Mapping[str, Any]]) -> Plain:
    labels = dict.fromkeys([*case.methods, *cells, *(k for v in case.paper.values() for k in v)])
    rows = []
    for label in labels:
        measured = {}
        for name, by_seed in cells.get(label, {}).items():
            mean, sd = mean_and_sd(by_seed)
            values = {str(seed): _tidy(value) for seed, value in by_seed.items()}
            measured[name] = {"mean": _tidy(mean), "sd": _tidy(sd), "values": values}
        told = {name: values[label] for name, values in case.paper.items() if label in values}
        spelled = case.methods.get(label)
        rows.append({"method": label, "spelled": spelled, "measured": measured, "paper": told})
    return {
        "name": case.name,
        "missing": case.missing,
        "data": {k: v for k, v in case.data.model_dump().items() if v is not None},
        "model": case.model,
        "train": case.train.model_dump(exclude_defaults=True),
        "rows": rows,
        "curves": _curves(played, case),
    }


def _curves(played: StudyRuns, case: Case) -> dict[str, Plain]:
    """Return the mean curve of each method's judged figure, thinned out."""
    found: dict[str, Plain] = {}
    for label in case.methods:
        runs = played.of(case.name, label)
        if not runs:
            continue
        level = played.runs[case.name].level
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


def _claim(judged: Judged) -> Plain:
    differences = [
        {
            "against": difference.second,
            "mean": _tidy(difference.mean),
            "low": _tidy(difference.low),
            "high": _tidy(difference.high),
            "p": _tidy(difference.p),
            "paper": _tidy(told),
        }
        for difference, told in zip(judged.differences, judged.paper, strict=True)
    ]
    return {
        "text": judged.claim.text,
        "measure": judged.claim.measure,
        "verdict": judged.word,
        "by": str(judged),
        "differences": differences,
    }


def _claims_table(claims: Sequence[Plain]) -> Table:
    rows = [[c["text"], f"**{c['verdict']}**", f"`{c['measure']}`: {c['by']}"] for c in claims]
    return Table(["the paper says", "verdict", "measured (positive is better)"], rows)


def settings_table(cases: Sequence[Case]) -> Table:
    """Lay out what each case trains on, and how."""
    rows = []
    for case in cases:
        data = case.data
        samples = "all" if data.samples is None else f"{data.samples:,}"
        train = case.train.model_dump(exclude_defaults=True)
        told = ", ".join(
            f"{key} {value}" for key, value in train.items() if key != "evaluate_every"
        )
        what = f"{data.name} ({samples}), {data.skew or 'iid'}"
        clients = "-" if data.clients is None else str(data.clients)
        rows.append([case.name, case.missing or what, clients, case.model or "-", told])
    return Table(["case", "data (samples), skew", "clients", "network", "training"], rows)


def _legend(study: Study) -> str:
    names = [f"`{name}`: {measure_of(name).title}" for name in study.file.measures]
    return "Means and deviations over seeds. " + "; ".join(names) + "."


def _ours(measured: Plain | None, name: str) -> str:
    if measured is None or measured["mean"] is None:
        return "-"
    text = measure_of(name).text(measured["mean"])
    lacking = sum(value is None for value in measured["values"].values())
    if lacking:
        return f"{text} ({len(measured['values']) - lacking}/{len(measured['values'])} seeds)"
    return text if measured["sd"] is None else f"{text} ± {measure_of(name).text(measured['sd'])}"


def _was_measured(result: Plain, name: str) -> bool:
    rows = [row for case in result["cases"] for row in case["rows"]]
    return any(row["measured"].get(name, {}).get("mean") is not None for row in rows)


def _tidy(value: float) -> float | None:
    return None if not math.isfinite(value) else float(np.format_float_positional(
        value, precision=6, unique=False, fractional=False))  # fmt: skip


def _seeds(count: int) -> str:
    return f"{count} seed{'' if count == 1 else 's'}"
