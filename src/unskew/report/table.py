"""A small table that prints well and exports to what papers need."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, JustifyMethod
    from rich.table import Table as RichTable


@dataclass(frozen=True)
class Table:
    """Rows of text under named columns; the first column names the row."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""

    def __str__(self) -> str:
        lines = [self.columns, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )

    def __rich_console__(
        self, console: "Console", options: "ConsoleOptions"
    ) -> Iterator["RichTable"]:
        from rich.box import SIMPLE_HEAD  # noqa: PLC0415 (only for terminals)
        from rich.table import Table as RichTable  # noqa: PLC0415

        table = RichTable(
            title=self.title or None, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
        )
        # Where all is too wide, columns with long headings and long names of rows take more
        # lines; else figures were cut off.
        narrow = max(map(len, str(self).splitlines())) + 2 > options.max_width
        for i, column in enumerate(self.columns):
            side: JustifyMethod = "left" if i == 0 else "right"
            table.add_column(column, justify=side, no_wrap=" " not in column)
        for name, *cells in self.rows:
            table.add_row(_folded(name) if narrow else name, *cells)
        yield table

    def to_markdown(self) -> str:
        """Return the table as Markdown."""
        rule = ["---"] + ["---:"] * (len(self.columns) - 1)
        return "\n".join(
            "| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |"
            for line in [self.columns, rule, *self.rows]
        )

    def to_csv(self) -> str:
        """Return the table as CSV."""
        out = io.StringIO()
        csv.writer(out).writerows([self.columns, *self.rows])
        return out.getvalue()

    def to_latex(self) -> str:
        """Return the table as LaTeX, for the booktabs package."""
        lines = [" & ".join(map(_escaped, line)) + r" \\" for line in [self.columns, *self.rows]]
        start = rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}"
        body = [start, r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"]
        return "\n".join([*body, r"\end{tabular}", ""])


_NAME = 16
"""Characters of a row's name that a narrow terminal has room for."""


def _folded(name: str) -> str:
    return "\n".join(name[start : start + _NAME] for start in range(0, len(name), _NAME))


_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", **{mark: f"\\{mark}" for mark in "&%$#_{}"},
}  # fmt: skip


def _escaped(text: str) -> str:
    """Return a text that LaTeX prints as it is."""
    return "".join(_LATEX.get(mark, mark) for mark in text)
