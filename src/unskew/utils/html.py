"""HTML for notebooks: tables, notes and legends. Every text is escaped.

Notebooks have light and dark themes, so colours are those of the surrounding text, lightened by
opacity, and nothing has a background.
"""

from collections.abc import Iterable, Sequence
from html import escape

from unskew.utils.palette import color

_LEFT = "text-align:left;"
_RIGHT = "text-align:right;white-space:nowrap;"
_CELL = "padding:2px 10px 2px 0;vertical-align:top;"
_PROSE = "max-width:36em;white-space:normal;"
_RULE = "border-bottom:1px solid rgba(128,128,128,.5);"


def html_block(*parts: str) -> str:
    """Return parts below each other, without those that are empty."""
    return "<div>" + "\n".join(part for part in parts if part) + "</div>"


def html_heading(text: str) -> str:
    """Return a short heading."""
    return f'<p style="margin:4px 0"><strong>{escape(text)}</strong></p>'


def html_line(text: str, *, soft: bool = False) -> str:
    """Return a line of text; soft ones are less prominent."""
    style = "margin:4px 0" + (";opacity:.75" if soft else "")
    return f'<p style="{style}">{escape(text)}</p>'


def html_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    bold: str | None = None,
    text_columns: Iterable[int] = (0,),
) -> str:
    """Return a table; ``bold`` is the first cell of a row to emphasise.

    Numbers are aligned to the right, and ``text_columns`` to the left; long texts are wrapped.
    """
    left = set(text_columns)

    def style(column: int) -> str:
        if column not in left:
            return _CELL + _RIGHT
        return _CELL + _LEFT + ("white-space:nowrap;" if column == 0 else _PROSE)

    def line(cells: Sequence[str], tag: str, extra: str = "") -> str:
        return "".join(
            f'<{tag} style="{style(i)}{extra}">{escape(cell)}</{tag}>'
            for i, cell in enumerate(cells)
        )

    body = "\n".join(
        f"<tr>{line(row, 'td', 'font-weight:bold;' if row[0] == bold else '')}</tr>" for row in rows
    )
    return (
        '<div style="overflow-x:auto"><table style="border-collapse:collapse;margin:6px 0">\n'
        f"<thead><tr>{line(columns, 'th', _RULE)}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def html_legend(names: Sequence[str]) -> str:
    """Return the names of lines with their colours, which are given by their order."""
    entries = "".join(
        f'<span style="margin-right:14px;white-space:nowrap">'
        f'<span style="color:{theme_color(i)}">━</span> {escape(name)}</span>'
        for i, name in enumerate(names)
    )
    return f'<p style="margin:2px 0;max-width:640px">{entries}</p>'


def theme_color(index: int) -> str:
    """Return the colour of a line; the darkest is that of the text, for dark themes."""
    found = color(index)
    return "currentColor" if found == "#333333" else found
