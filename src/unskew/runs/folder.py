"""The folder of a run: what it was asked, what happened, and where to go on."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from unskew.errors import FolderError, UnskewError
from unskew.runs.atomic import sync_file, write_bytes, write_json
from unskew.runs.checkpoint import Checkpoints, Position
from unskew.runs.file_names import CHECKPOINTS, CLIENTS, LOGS, METRICS, RUN, SAMPLE_WEIGHTS
from unskew.runs.lock import FolderLock
from unskew.runs.stage_cache import StageCache
from unskew.runs.states import MEMORY, ClientStates


class RunFolder:
    """Writes a run down as it goes."""

    def __init__(
        self, path: str | Path, checkpoint_seconds: float, state_memory: int = MEMORY
    ) -> None:
        self.path = Path(path)
        self._checkpoints = Checkpoints(self.path / CHECKPOINTS, state_memory)
        self._every = checkpoint_seconds
        self._last = time.monotonic()
        self._files: dict[str, IO[str]] = {}
        self._whole: tuple[Position, dict[str, int]] | None = None
        self._lock: FolderLock | None = None
        self.resumed = False
        """Whether the run goes on from a checkpoint of its own."""

    def open(
        self,
        identity: Mapping[str, Any],
        facts: Mapping[str, Any],
        *,
        resume: bool,
        cache: StageCache | None = None,
        end: tuple[int, int] | None = None,
    ) -> Position:
        """Start the folder, or find in it where to go on.

        ``identity`` is what must agree for a run to be resumed, ``facts`` is what else is worth
        knowing, ``end`` are the stage and the number of its rounds that the run may not be beyond:
        its figures would be of later rounds than those asked for. Resuming a folder without a
        checkpoint starts from the beginning, or from the end of a stage that another run has
        played.
        """
        self._make_folder()
        self._lock = FolderLock(self.path)
        try:
            return self._open(identity, facts, resume=resume, cache=cache, end=end)
        except BaseException:
            self.close()
            raise

    def _open(
        self,
        identity: Mapping[str, Any],
        facts: Mapping[str, Any],
        *,
        resume: bool,
        cache: StageCache | None,
        end: tuple[int, int] | None,
    ) -> Position:
        known = self._read_run()
        found = None if known is None else self._checkpoints.load()
        if found is not None and not resume:
            raise FolderError(
                f"{self.path}: there is a run already; go on with it by resume=True (--resume), or "
                "choose another folder"
            )
        if known is not None and found is not None:
            _refuse_changes(self.path, known, json.loads(json.dumps(identity)))
            _refuse_fewer_rounds(self.path, found[0], end)
        self.resumed = found is not None
        if found is None:
            self._checkpoints.clear()
            if cache is not None and cache.adopt(self.path):
                found = self._checkpoints.load()
        beginning = Position(states=ClientStates(self._checkpoints.store))
        position, marks = found or (beginning, dict.fromkeys(LOGS, 0))
        self._check_logs(marks)
        write_json(self.path / RUN, {"identity": identity, **facts})
        for name in LOGS:
            file = (self.path / name).open("a+", encoding="utf-8")
            file.truncate(marks[name])  # what came after the checkpoint is played again
            self._files[name] = file
        return position

    def metrics(self) -> list[dict[str, Any]]:
        """Read the rounds that are written down."""
        return read_lines(self.path / METRICS)

    def client_tables(self) -> list[dict[str, Any]]:
        """Read the tables of clients that are written down."""
        return read_lines(self.path / CLIENTS)

    def write(
        self, metrics: Mapping[str, Any], tables: list[dict[str, Any]], position: Position
    ) -> None:
        """Write one round down; make a checkpoint when the last one is old enough.

        ``position`` is where the run stands after the round.
        """
        self._append(METRICS, metrics)
        for table in tables:
            self._append(CLIENTS, table)
        marks = {name: (self.path / name).stat().st_size for name in LOGS}
        self._whole = position, marks  # in one step: Ctrl-C finds this round whole, or the last
        if time.monotonic() - self._last >= self._every:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Make a checkpoint of the last whole round, unless there is one."""
        if self._whole is None:
            return
        for name in LOGS:
            sync_file(self.path / name)
        self._checkpoints.save(*self._whole)
        self._whole, self._last = None, time.monotonic()

    def write_sample_weights(self, table: Mapping[str, Any]) -> None:
        """Write down how clients weigh their samples."""
        write_bytes(self.path / SAMPLE_WEIGHTS, (json.dumps(table) + "\n").encode())

    def close(self) -> None:
        """Close the files, and let others play here."""
        for file in self._files.values():
            file.close()
        if self._lock is not None:
            self._lock.release()

    def _check_logs(self, marks: Mapping[str, int]) -> None:
        """Complain about logs that lack what was in them when the checkpoint was made."""
        for name in LOGS:
            path = self.path / name
            if (path.stat().st_size if path.is_file() else 0) < marks[name]:
                raise FolderError(
                    f"{path}: is damaged, it was longer when its checkpoint was made; move the "
                    "run's folder away and play it again"
                )

    def _append(self, name: str, value: Mapping[str, Any]) -> None:
        self._files[name].write(json.dumps(value) + "\n")
        self._files[name].flush()

    def _read_run(self) -> dict[str, Any] | None:
        path = self.path / RUN
        if not path.is_file():
            return None
        try:
            known: dict[str, Any] = json.loads(path.read_text())
        except ValueError:
            raise UnskewError(f"{path}: is not JSON; move the folder away") from None
        return known

    def _make_folder(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnskewError(f"out: cannot make the folder {self.path}: {error}") from None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of one JSON object a line; a last line that was cut off is left out."""
    if not path.is_file():
        return []
    *lines, _cut_off = path.read_bytes().split(b"\n")
    return [parsed(line, path) for line in lines]


def parsed(line: bytes, path: Path) -> dict[str, Any]:
    """Read a line of a log."""
    try:
        value = json.loads(line)
    except ValueError as error:
        raise UnskewError(
            f"{path}: is damaged, a line of it is not JSON ({error}); move the run's folder away "
            "and play it again"
        ) from None
    if not isinstance(value, dict):
        raise UnskewError(f"{path}: is damaged, a line of it is {value!r}")
    return value


_HASHED = {
    "code": " (the source of your own method or network)",
    "data": " (other samples, clients, skew, options of the data or seed)",
    "layout": " (another network)",
    "start": " (other first weights: another network or seed)",
}
"""What the hashes in a run's identity stand for."""


def _refuse_changes(path: Path, known: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Raise if a resumed run would not be the one in the folder, and name what differs."""
    if "identity" not in known:
        raise FolderError(f"{path}: its run.json was not written by unskew; choose another folder")
    flat_known, flat_asked = _flat(known["identity"]), _flat(asked)
    for key in sorted(set(flat_known) | set(flat_asked)):
        was, now = flat_known.get(key), flat_asked.get(key)
        if key == "code" and was is None:
            continue  # written by a version that took no note of it
        if was != now:
            what = _HASHED.get(key, "")
            raise FolderError(
                f"{path}: cannot resume, {key} was {was!r} and is now {now!r}{what}; "
                "change it back, or choose another folder"
            )


def _refuse_fewer_rounds(path: Path, position: Position, end: tuple[int, int] | None) -> None:
    if end is not None and (position.stage, position.round) > end:
        raise FolderError(
            f"rounds: {path} has {position.round} already (asked for {end[1]}); ask for "
            f"{position.round} or more, or choose another folder"
        )


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat
