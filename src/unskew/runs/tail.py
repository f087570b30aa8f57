"""Following a run that another process is writing: its new rounds, as they come."""

from pathlib import Path
from typing import Any

from unskew.runs.file_names import METRICS
from unskew.runs.folder import parsed
from unskew.runs.read import read_run
from unskew.runs.run import Run


class Tail:
    """The end of a run's metrics. A run that was resumed may have been cut back: it is reread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: list[dict[str, Any]] = []
        self._place = 0
        self._run: Run | None = None

    @property
    def run(self) -> Run:
        """The run with the rounds read so far, and without its tables of clients."""
        if self._run is None:
            self._run = read_run(self.folder, tables=False)
        self._run.metrics = self.rows
        return self._run

    @property
    def rounds(self) -> int:
        """How many rounds the task was asked to have."""
        return int(self.run.facts["configuration"]["rounds"])

    @property
    def is_done(self) -> bool:
        """Whether the last round asked for has been played."""
        return bool(self.rows) and self.rows[-1]["stage"] == "task" and (
            self.rows[-1]["round"] >= self.rounds
        )  # fmt: skip

    def read(self) -> list[dict[str, Any]]:
        """Read what was written since the last time, whole lines only, and return it."""
        path = self.folder / METRICS
        if not path.is_file():
            return []
        if path.stat().st_size < self._place:
            self._place, self._run = 0, None
            self.rows.clear()
        with path.open("rb") as file:
            file.seek(self._place)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._place += len(whole)
        new = [parsed(line, path) for line in whole.split(b"\n") if line]
        self.rows += new
        return new
