"""Where progress is shown: bars on a terminal or in a notebook, single lines, or nothing."""

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html import escape, unescape
from importlib import import_module
from typing import Any, Literal, Protocol

from unskew.utils.wording import duration

Surface = Literal["terminal", "notebook", "lines", "nothing"]

_SECONDS_BETWEEN_UPDATES = 0.25
"""A notebook's output is replaced at most this often; each update is a message to the browser."""


class Bars(Protocol):
    """Bars with a text each, and lines above them."""

    is_live: bool
    """Whether bars are visible; otherwise only lines are."""

    def add(self, label: str, total: int, done: int = 0) -> int:
        """Add a bar and return its number."""

    def update(self, bar: int, done: int, text: str) -> None:
        """Move a bar and replace its text."""

    def resize(self, bar: int, total: int) -> None:
        """Change what a bar counts up to."""

    def remove(self, bar: int) -> None:
        """Remove a bar."""

    def say(self, line: str) -> None:
        """Show a line that stays."""


def surface_for(progress: bool | None) -> Surface:
    """Return where progress is shown; None means wherever a person is watching.

    Elsewhere (a log file, a pipe), bars would be thousands of lines, so only lines are printed.
    """
    if progress is False:
        return "nothing"
    if in_notebook():
        return "notebook"
    return "terminal" if progress or sys.stderr.isatty() else "lines"


def in_notebook() -> bool:
    """Return whether this code runs in a notebook: in an IPython shell that has a kernel."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


@contextmanager
def open_bars(surface: Surface) -> Iterator[Bars]:
    """Show bars on a surface until the block ends."""
    if surface == "terminal":
        with _rich_progress() as progress:
            yield _TerminalBars(progress)
    elif surface == "notebook":
        bars = NotebookBars(_notebook_output())
        try:
            yield bars
        finally:
            bars.close()
    else:
        yield Lines(_print_line if surface == "lines" else _ignore)


class Lines:
    """No bars; lines are printed, or ignored."""

    is_live = False

    def __init__(self, write: Callable[[str], None] | None = None) -> None:
        self._write = write or _ignore

    def add(self, label: str, total: int, done: int = 0) -> int:
        """Do nothing."""
        del label, total, done
        return 0

    def update(self, bar: int, done: int, text: str) -> None:
        """Do nothing."""

    def resize(self, bar: int, total: int) -> None:
        """Do nothing."""

    def remove(self, bar: int) -> None:
        """Do nothing."""

    def say(self, line: str) -> None:
        """Print the line."""
        self._write(line)


class _TerminalBars:
    """Bars drawn by rich on standard error."""

    is_live = True

    def __init__(self, progress: Any) -> None:
        self._progress = progress

    def add(self, label: str, total: int, done: int = 0) -> int:
        """Add a bar and return its number."""
        return int(self._progress.add_task(label, total=total, completed=done, text=""))

    def update(self, bar: int, done: int, text: str) -> None:
        """Move a bar and replace its text."""
        self._progress.update(bar, completed=done, text=text)

    def resize(self, bar: int, total: int) -> None:
        """Change what a bar counts up to."""
        self._progress.update(bar, total=total)

    def remove(self, bar: int) -> None:
        """Remove a bar."""
        self._progress.remove_task(bar)

    def say(self, line: str) -> None:
        """Print a line above the bars."""
        self._progress.console.print(line, highlight=False, markup=False)


@dataclass(frozen=True)
class _Bar:
    label: str
    total: int
    done: int
    text: str = ""


class NotebookBars:
    """Bars in one output of a notebook, which is replaced in place.

    Neither ipywidgets nor a thread is needed, and a saved notebook holds one short line: what was
    done, and how long it took.
    """

    is_live = True

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._bars: dict[int, _Bar] = {}
        self._lines: list[str] = []
        self._started = time.monotonic()
        self._shown = 0.0

    def add(self, label: str, total: int, done: int = 0) -> int:
        """Add a bar and return its number."""
        bar = max(self._bars, default=-1) + 1
        self._bars[bar] = _Bar(label, total, done)
        self._render()
        return bar

    def update(self, bar: int, done: int, text: str) -> None:
        """Move a bar and replace its text."""
        self._bars[bar] = replace(self._bars[bar], done=done, text=text)
        self._render()

    def resize(self, bar: int, total: int) -> None:
        """Change what a bar counts up to."""
        self._bars[bar] = replace(self._bars[bar], total=total)
        self._render()

    def remove(self, bar: int) -> None:
        """Remove a bar."""
        del self._bars[bar]
        self._render()

    def say(self, line: str) -> None:
        """Show a line above the bars; it stays when they are gone."""
        self._lines.append(line)
        self._render()

    def close(self) -> None:
        """Replace the bars by one line."""
        lines, first = list(self._lines), next(iter(self._bars.values()), None)
        if first is not None:
            seconds = duration(time.monotonic() - self._started)
            lines.append(f"{first.label}: {first.done}/{first.total} in {seconds}")
        self._show("".join(map(_html_line, lines)))

    def _render(self) -> None:
        now = time.monotonic()
        if now - self._shown < _SECONDS_BETWEEN_UPDATES:
            return
        self._shown = now
        rows = "".join(
            f"<tr><td style='text-align:left'>{escape(bar.label)}</td>"
            f"<td><progress value='{bar.done}' max='{bar.total}'></progress></td>"
            f"<td>{bar.done}/{bar.total}</td>"
            f"<td style='text-align:left'>{escape(bar.text)}</td></tr>"
            for bar in self._bars.values()
        )
        self._show("".join(map(_html_line, self._lines)) + f"<table>{rows}</table>")


def _html_line(line: str) -> str:
    return f"<p style='margin:2px 0;opacity:.75'>{escape(line)}</p>"


def _notebook_output() -> Callable[[str], None]:
    """Return a function that replaces one output of the current cell."""
    ipython: Any = import_module("IPython.display")
    output = ipython.display(_Html(""), display_id=True)
    return lambda html: output.update(_Html(html))


@dataclass(frozen=True)
class _Html:
    """HTML, which is shown as plain text where a notebook is read without a browser."""

    html: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return unescape(re.sub("<[^>]*>", " ", self.html)).strip()


def _rich_progress() -> Any:
    from rich.console import Console  # noqa: PLC0415 (only when something is shown)
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}"),
        console=Console(stderr=True),
    )


def _print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def _ignore(line: str) -> None:
    del line
