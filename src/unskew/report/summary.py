"""The first screen of a report: what was compared, who leads, how skewed the data is."""

from collections.abc import Mapping
from html import escape
from typing import Any

from unskew.report.charts.curves import has_personal_models
from unskew.runs.runs import Runs
from unskew.stats.verdict import TEST, Verdict
from unskew.utils.tables import Table


def opening(runs: Runs) -> str:
    """Return the heading and the two cards."""
    data = runs[0].facts.get("data", {})
    dealt = f" · {data['skew']}" if data.get("skew") else ""
    return (
        f"<header><h1>{escape(runs[0].data + dealt)}</h1>"
        f'<p class="soft">{escape(compared(runs))}</p></header>'
        f'<div class="cards">{_leader(runs)}{_skew(data)}</div>'
    )


def compared(runs: Runs) -> str:
    """Say in one sentence what was compared."""
    first, settings = runs[0], runs[0].facts.get("configuration", {})
    seeds = len({run.seed for run in runs})
    parts = [
        f"{_several(len(runs.methods), 'method')}, {_several(seeds, 'seed')}",
        f"{first.network} on {_several(first.clients, 'client')}{_cohort(settings)}",
        f"{_several(first.task_rounds, 'round')}",
    ]
    if settings:
        work = f"{settings['steps']} steps" if settings.get("steps") else (
            _several(settings.get("epochs") or 1, "epoch")
        )  # fmt: skip
        parts.append(f"{work} of {settings['optimizer']} a round, {_rate(runs)}")
    return "; ".join(parts)


def swatched_table(runs: Runs, target: float | None) -> str:
    """Return the table of the runs as HTML, with each method's standing to the leader."""
    verdict = runs.verdict()
    return html_table(runs.table_with_verdict(target), leader=verdict.leader if verdict else None)


def html_table(table: Table, leader: str | None = None) -> str:
    """Return a table as HTML; the first cell of a row names its method for the script."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.columns)
    body = ""
    for first, *others in table.rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in others)
        mark = ' class="leads"' if first == leader else ""
        name = escape(first)
        body += f'<tr{mark}><td data-method="{name}">{name}</td>{cells}</tr>'
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _leader(runs: Runs) -> str:
    verdict = runs.verdict()
    if verdict is None:
        return '<section class="card"><h3>Result</h3><p>No test was made.</p></section>'
    where = "common test" if runs.level == "global" else "clients' own tests"
    values = [run.last(runs.level, runs.figure.name) for run in runs.of(verdict.leader)]
    mean = runs.figure.text(sum(values) / len(values))
    personal = runs.verdict("personal") if has_personal_models(runs) else None
    also = "" if personal is None else f"<p>By personal models: {escape(str(personal))}</p>"
    return (
        '<section class="card"><h3>Leader</h3>'
        f'<div class="big">{escape(verdict.leader)} <small>{escape(mean)} '
        f"{runs.figure.name} on the {where}</small></div>{_badge(verdict)}"
        f'<p>{escape(str(verdict))}</p>{also}<p class="note">Judged by: {escape(TEST)}.</p>'
        "</section>"
    )


def _badge(verdict: Verdict) -> str:
    if not verdict.behind:
        return ""
    if verdict.is_significant:
        return '<span class="badge good">the lead is real</span>'
    beaten, all_ = len(verdict.behind) - len(verdict.level), len(verdict.behind)
    word = f"really ahead of {beaten} of {all_} only" if beaten else "within noise"
    return f'<span class="badge doubt">{word}</span>'


def _skew(data: Mapping[str, Any]) -> str:
    found = data.get("diagnosis")
    if found is None:
        return '<section class="card"><h3>Skew</h3><p>Not measured.</p></section>'
    numbers = {
        "expected by chance": f"{found['label_skew_by_chance']:.2f}",
        "classes a client holds": f"{found['classes_held']:.1f} of {data['classes']}",
        "effective classes": f"{found['effective_classes']:.1f}",
        "largest client over smallest": f"{found['size_ratio']:.1f} to 1",
        "training samples": f"{found['samples']:,}",
    }
    rows = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in numbers.items())
    share, chance = 100 * found["label_skew"], 100 * found["label_skew_by_chance"]
    return (
        '<section class="card"><h3>Skew at a glance</h3>'
        f'<div class="big">{found["label_skew"]:.2f} <small>label skew, 0 to 1</small></div>'
        f'<div class="gauge" title="The mark is what chance alone would give">'
        f'<i style="width:{share:.1f}%"></i><b style="left:{chance:.1f}%"></b></div>'
        f'<dl class="numbers">{rows}</dl></section>'
    )


def _rate(runs: Runs) -> str:
    rates = {method: runs.learning_rate(method) for method in runs.methods}
    if len(set(rates.values())) > 1:
        return "each method's own rate"
    return f"rate {next(iter(rates.values())):g}"


def _cohort(settings: Mapping[str, Any]) -> str:
    if settings.get("cohort"):
        return f", {settings['cohort']} a round"
    share = settings.get("participation")
    return f", {100 * share:g} % a round" if share and share < 1 else ""


def _several(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
