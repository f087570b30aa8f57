"""A text table that prints on terminals and exports to Markdown, CSV and LaTeX."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unskew.utils.html import html_block, html_heading, html_line, html_table
from unskew.utils.printable import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, JustifyMethod
    from rich.table import Table as RichTable
    from rich.text import Text


@dataclass(frozen=True)
class Table:
    """Rows of text under named columns; the first column names the row.

    ``notes`` are lines below the table; CSV files do not have them.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Make all texts printable: names may come from a file that anybody has written."""
        rows = [[printable(cell) for cell in row] for row in self.rows]
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "columns", [printable(name) for name in self.columns])
        object.__setattr__(self, "title", printable(self.title))
        object.__setattr__(self, "notes", [printable(note) for note in self.notes])

    def __str__(self) -> str:
        return "\n".join([*self._lines(), *self.notes])

    def _lines(self) -> list[str]:
        widths = [self._full_width(i) for i in range(len(self.columns))]
        return [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in [self.columns, *self.rows]
        ]

    def __rich_console__(
        self, console: "Console", options: "ConsoleOptions"
    ) -> Iterator["RichTable | Text"]:
        from rich.box import SIMPLE_HEAD  # noqa: PLC0415 (only for terminals)
        from rich.table import Table as RichTable  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        # If the table is too wide, long row names and headings are wrapped, and columns that still
        # do not fit go into a second table, so that no value is cut off.
        widths = [self._min_width(i) for i in range(len(self.columns))]
        narrow = max(map(len, self._lines()), default=0) + _EDGES > options.max_width
        if narrow:
            room = options.max_width - _EDGES - _GAP - max(widths[1:], default=0)
            widths[0] = min(widths[0], max(_MIN_NAME_WIDTH, min(room, _MAX_NAME_WIDTH)))
        names = [_wrapped(row[0], widths[0]) if narrow else row[0] for row in self.rows]
        for part in _parts(widths, options.max_width if narrow else None):
            table = RichTable(
                title=Text(self.title) if self.title and part.start == 1 else None,
                box=SIMPLE_HEAD,
                padding=(0, 1, 0, 0),
                pad_edge=False,
            )
            spare = options.max_width - _total_width([widths[i] for i in (0, *part)])
            for i in (0, *part):
                justify: JustifyMethod = "right" if i else "left"
                extra = min(spare, self._full_width(i) - widths[i]) if i else 0
                spare -= extra
                width = widths[i] + extra if narrow else None
                table.add_column(Text(self.columns[i]), justify=justify, width=width)
            for name, row in zip(names, self.rows, strict=True):
                table.add_row(Text(name), *(Text(row[i]) for i in part))
            yield table
        for note in self.notes:
            yield Text(note)

    def _repr_html_(self) -> str:
        return html_block(
            html_heading(self.title) if self.title else "",
            html_table(self.columns, self.rows),
            *map(html_line, self.notes),
        )

    def _full_width(self, column: int) -> int:
        """Return the width of a column without wrapped cells."""
        return max(len(line[column]) for line in [self.columns, *self.rows])

    def _min_width(self, column: int) -> int:
        """Return the width of a column whose headings and text in brackets are wrapped."""
        unbreakable = [*self.columns[column].split()]
        for row in self.rows:
            value, _, remark = row[column].partition(" (")
            unbreakable += [value, *f"({remark}".split()]
        return max(map(len, unbreakable), default=0)

    def to_markdown(self) -> str:
        """Return the table as Markdown."""
        rule = ["---"] + ["---:"] * (len(self.columns) - 1)
        lines = [
            "| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |"
            for line in [self.columns, rule, *self.rows]
        ]
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)])

    def to_csv(self) -> str:
        """Return the table as CSV; a text that a spreadsheet would execute gets an apostrophe."""
        out = io.StringIO()
        csv.writer(out).writerows([map(inert, line) for line in (self.columns, *self.rows)])
        return out.getvalue()

    def to_latex(self) -> str:
        """Return the table as LaTeX, for the booktabs package."""
        lines = [" & ".join(map(_escaped, line)) + r" \\" for line in [self.columns, *self.rows]]
        start = rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}"
        body = [start, r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"]
        notes = [f"% {note}" for note in self.notes]
        return "\n".join([*body, r"\end{tabular}", *notes, ""])


_EDGES, _GAP = 2, 2
"""Characters at a table's sides, and between its columns."""

_MAX_NAME_WIDTH, _MIN_NAME_WIDTH = 16, 6
"""Characters of a row's name per line on a narrow terminal."""


def _wrapped(name: str, width: int) -> str:
    return "\n".join(name[start : start + width] for start in range(0, len(name), width))


def _parts(widths: Sequence[int], room: int | None) -> Iterator[range]:
    """Yield the ranges of columns that fit next to the first one; all if there is no limit."""
    first = 1
    for i in range(2, len(widths)):
        if room is not None and _total_width([widths[0], *widths[first : i + 1]]) > room:
            yield range(first, i)
            first = i
    yield range(first, len(widths))


def _total_width(widths: Sequence[int]) -> int:
    return _EDGES + sum(widths) + _GAP * (len(widths) - 1)


_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", **{mark: f"\\{mark}" for mark in "&%$#_{}"},
}  # fmt: skip


_NUMBER = re.compile(r"[+-]?(\d[\d.,]*(e[+-]?\d+)?( ± [\d.]+)?( %)?( \([a-z0-9/ ]+\))?)?")
"""A cell that may start with a sign: a number with its spread, unit and note, or a dash."""


def inert(cell: str) -> str:
    """Return a cell of a CSV file that a spreadsheet does not read as a formula."""
    cell = printable(cell)
    if cell[:1] in ("=", "+", "-", "@", "\t", "\r") and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell


def _escaped(text: str) -> str:
    """Escape a text for LaTeX."""
    return "".join(_LATEX.get(mark, mark) for mark in text)
