"""One self-contained HTML page about a comparison, readable offline and on paper."""

import json
from functools import cache
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path

from unskew.errors import UnskewError
from unskew.report.charts import Chart, all_pictures
from unskew.report.charts.curves import has_personal_models
from unskew.report.densities import densities_note
from unskew.report.reproduce import configuration, python_text
from unskew.report.summary import opening, swatched_table
from unskew.report.tuning_table import tuning_section
from unskew.runs.atomic import write_bytes
from unskew.runs.runs import Runs

_SCRIPTS = ("base.js", "lines.js", "bars.js", "maps.js", "page.js")

_MOST_CSV = 100_000
"""A table of more characters than this is not put into the page; the exported files have it."""


def write_page(
    path: str | Path,
    runs: Runs,
    *,
    target: float | None = None,
    command: str | None = None,
    embedding: bool = False,
) -> Path:
    """Write the page; ``command`` is what a reader types to get it again, where it is known.

    ``target`` is the figure whose cost is told, ``embedding`` asks for the t-SNE of the clients.
    """
    path = Path(path)
    if not any(run.metrics for run in runs):
        raise UnskewError("runs: no round has been played yet, so there is nothing to report")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, page_text(runs, target, command, embedding=embedding).encode())
    except OSError as error:
        raise UnskewError(f"{path}: cannot be written: {error.strerror}") from None
    return path


def page_text(
    runs: Runs, target: float | None, command: str | None, *, embedding: bool = False
) -> str:
    """Return the page as text."""
    pictures = all_pictures(runs, target=target, embedding=embedding)
    title = escape(runs.table(target).title)
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title><style>{_asset('style.css')}</style></head><body><main>",
            opening(runs),
            f'<div class="scroll">{swatched_table(runs, target)}</div>',
            f'<p class="note">{escape(_explanation(runs))}</p>',
            '<div id="legend" role="group" aria-label="Show or hide methods"></div>',
            "<noscript><p>The figures are drawn by a script of this page.</p></noscript>",
            *(_section(name, list(group)) for name, group in groupby(pictures, _place)),
            densities_note(runs),
            tuning_section(runs),
            "<h2>Configuration</h2>",
            configuration(runs),
            "<h2>How to reproduce</h2>",
            "" if command is None else f"<pre><code>{escape(command)}</code></pre><p>Or:</p>",
            f"<pre><code>{escape(python_text(runs))}</code></pre>",
            '</main><div id="tip" role="status"></div>',
            f'<script type="application/json" id="report-data">{_data(runs, pictures)}</script>',
            f"<script>{''.join(map(_asset, _SCRIPTS))}</script></body></html>\n",
        ]
    )


def _explanation(runs: Runs) -> str:
    figure = runs.figure.name
    personal = ""
    if has_personal_models(runs):
        personal = "Personal: each client's own model on its own test. "
    return (
        f"{figure.capitalize()}: the global model on the common test set, after the last round, "
        "mean ± standard deviation over seeds. Local: its mean over the clients' own tests; "
        f"worst: that of the client it serves worst. {personal}"
        "Rounds and MB to a target: until the global model first reaches it; MB counts both "
        "directions and all clients."
    )


def _place(picture: Chart) -> str:
    return picture.section


def _section(name: str, pictures: list[Chart]) -> str:
    wide = " wide" if len(pictures) == 1 else ""
    figures = "".join(map(_figure, pictures))
    notes = {picture.note for picture in pictures}
    note = f'<p class="note">{escape(notes.pop())}</p>' if len(notes) == 1 else ""
    return f'<h2>{escape(name)}</h2>{note}<div class="figures{wide}">{figures}</div>'


def _figure(picture: Chart) -> str:
    return (
        f'<figure id="{escape(picture.name)}"><h3>{escape(picture.title)}'
        '<span class="tools"></span></h3><div class="drawing"></div></figure>'
    )


def _data(runs: Runs, pictures: list[Chart]) -> str:
    """Return what the script draws, in a form that cannot end its element."""
    drawn = []
    for picture in pictures:
        csv = picture.table.to_csv()
        drawn.append(
            {
                "name": picture.name,
                "title": picture.title,
                "kind": picture.kind,
                "data": picture.data,
                "csv": csv if len(csv) <= _MOST_CSV else None,
            }
        )
    values = {"methods": runs.methods, "pictures": drawn}
    text = json.dumps(values, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028")


@cache
def _asset(name: str) -> str:
    return (files("unskew.report") / "assets" / name).read_text(encoding="utf-8")
