"""Follow a run that another process is writing, round by round."""

from pathlib import Path
from typing import Any

from unskew.runs.file_names import METRICS
from unskew.runs.json_files import parse_line
from unskew.runs.lock import is_locked
from unskew.runs.read import read_run
from unskew.runs.run import TASK, Run


class Tail:
    """The new lines of a run's metrics. A truncated file of a resumed run is reread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: list[dict[str, Any]] = []
        self._offset = 0
        self._run: Run | None = None

    @property
    def run(self) -> Run:
        """The run with the rounds read so far, without its tables of clients."""
        if self._run is None:
            self._run = read_run(self.folder, tables=False)
        self._run.metrics = self.rows
        return self._run

    @property
    def rounds(self) -> int:
        """The requested number of rounds of the task."""
        return self.run.requested_rounds or 0

    @property
    def stages(self) -> dict[str, int]:
        """The rounds of each stage; a stage may end before its last one."""
        stages = self.run.metadata.get("stages") or [[TASK, self.rounds]]
        return {str(name): int(rounds) for name, rounds in stages}

    @property
    def is_done(self) -> bool:
        """Whether the last requested round is complete."""
        return bool(self.rows) and self.rows[-1]["stage"] == TASK and (
            self.rows[-1]["round"] >= self.rounds
        )  # fmt: skip

    @property
    def is_stopped(self) -> bool:
        """Whether the run is not done and no process is executing it."""
        return not self.is_done and not is_locked(self.folder)

    def read(self) -> list[dict[str, Any]]:
        """Read the complete lines written since the last call, and return them."""
        path = self.folder / METRICS
        if not path.is_file():
            return []
        if path.stat().st_size < self._offset:
            self._offset, self._run = 0, None
            self.rows.clear()
        with path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        complete = text[: text.rfind(b"\n") + 1]
        self._offset += len(complete)
        new = [parse_line(line, path) for line in complete.split(b"\n") if line]
        self.rows += new
        return new
