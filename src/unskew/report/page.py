"""One self-contained HTML page about a comparison: the table, the curves, who holds what."""

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from unskew.report.curves import draw_curves, to_svg
from unskew.report.holdings import holdings_figure
from unskew.report.table import Table
from unskew.runs.atomic import write_bytes
from unskew.runs.runs import Runs

if TYPE_CHECKING:
    from unskew.data.federation import Federation

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto;
       padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.15rem; margin-top: 2rem; }}
table {{ border-collapse: collapse; }} .scroll {{ overflow-x: auto; }}
th, td {{ padding: .35rem .8rem; text-align: right; border-bottom: 1px solid #8884; }}
th:first-child, td:first-child {{ text-align: left; }}
figure {{ margin: 1rem 0; background: #fff; padding: .5rem; border-radius: .5rem; }}
figure svg {{ width: 100%; height: auto; }}
code {{ background: #8882; padding: .1rem .3rem; border-radius: .25rem; overflow-wrap: anywhere; }}
</style></head><body>
<h1>{title}</h1>
<div class="scroll">{table}</div>
<p>{explanation}</p>
<h2>Over the rounds</h2>
<p>Lines are means over seeds, bands one standard deviation.</p>
<figure>{curves}</figure>
{holdings}
<h2>How to make this page</h2>
<p><code>{command}</code></p>
</body></html>
"""


def write_page(
    path: Path,
    runs: Runs,
    *,
    target: float | None = None,
    federation: "Federation | None" = None,
    command: str,
) -> Path:
    """Write the page; ``command`` is what a reader types to get it again."""
    table = runs.table(target)
    figure = "" if federation is None else to_svg(holdings_figure(federation))
    holdings = f"<h2>Who holds what</h2><figure>{figure}</figure>" if figure else ""
    page = _PAGE.format(
        title=escape(table.title),
        table=html_table(table),
        explanation=escape(_EXPLANATION),
        curves=to_svg(draw_curves(runs)),
        holdings=holdings,
        command=escape(command),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, page.encode())
    return path


_EXPLANATION = (
    "Accuracy: the global model on the common test set, after the last round, mean ± standard "
    "deviation over seeds. Local: its mean over the clients' own tests; worst: that of the client "
    "it serves worst. Personal: each client's own model on its own test, where a method has such. "
    "Rounds and MB to a target: until the global model first reaches it; MB counts both "
    "directions and all clients."
)


def html_table(table: Table) -> str:
    """Return a table as HTML."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
