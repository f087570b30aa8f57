"""The folder of a run: its settings, its metrics, and its checkpoints."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from unskew.errors import FolderError, UnskewError
from unskew.runs.atomic import sync_file, write_bytes, write_json
from unskew.runs.checkpoint import Checkpoints, Position
from unskew.runs.file_names import CHECKPOINTS, CLIENTS, LOGS, METRICS, RUN, SAMPLE_WEIGHTS_FILE
from unskew.runs.leftovers import remove_leftovers
from unskew.runs.lock import FolderLock
from unskew.runs.ownership import check_run_folder
from unskew.runs.stage_cache import StageCache
from unskew.runs.states import MEMORY, ClientStates


class RunFolder:
    """Writes the rounds of a run and its checkpoints."""

    def __init__(
        self, path: str | Path, checkpoint_seconds: float, state_memory: int = MEMORY
    ) -> None:
        self.path = Path(path)
        self._checkpoints = Checkpoints(self.path / CHECKPOINTS, state_memory)
        self._every = checkpoint_seconds
        self._last = time.monotonic()
        self._files: dict[str, IO[str]] = {}
        self._unsaved: tuple[Position, dict[str, int]] | None = None
        self._lock: FolderLock | None = None
        self.resumed = False
        """Whether the run was resumed from one of its checkpoints."""

    def open(
        self,
        identity: Mapping[str, Any],
        facts: Mapping[str, Any],
        *,
        resume: bool,
        cache: StageCache | None = None,
        end: tuple[int, int] | None = None,
    ) -> Position:
        """Create the folder, or return the position from which the run in it is resumed.

        ``identity`` must be equal for a run to be resumed; ``facts`` are recorded with it. ``end``
        is the last stage and its number of rounds: a run beyond it is rejected, because its
        metrics would be of later rounds than requested. Without a checkpoint, the run starts from
        the beginning, or from the end of a stage that another run has completed.
        """
        check_run_folder(self.path)
        self._create_folder()
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
        stored = self._read_run()
        found = None if stored is None else self._checkpoints.load()
        if found is not None and not resume:
            raise FolderError(
                f"{self.path}: there is a run already; resume it with resume=True (--resume), or "
                "choose another folder"
            )
        if stored is not None and found is not None:
            _reject_changes(self.path, stored, json.loads(json.dumps(identity)))
            _reject_fewer_rounds(self.path, found[0], end)
        self.resumed = found is not None
        remove_leftovers(self.path)
        self._checkpoints.remove_leftovers()
        if found is None:
            # The manifest comes before run.json, and both before a cached stage: see ownership.
            self._checkpoints.clear()
            write_json(self.path / RUN, {"identity": identity, **facts})
            if cache is not None and cache.restore(self.path):
                found = self._checkpoints.load()
        beginning = Position(states=ClientStates(self._checkpoints.store))
        position, marks = found or (beginning, dict.fromkeys(LOGS, 0))
        self._check_logs(marks)
        if self.resumed:
            write_json(self.path / RUN, {"identity": identity, **facts})
        for name in LOGS:
            file = (self.path / name).open("a+", encoding="utf-8")
            file.truncate(marks[name])  # rounds after the checkpoint are run again
            self._files[name] = file
        return position

    def metrics(self) -> list[dict[str, Any]]:
        """Return the recorded metrics, one row per round."""
        return read_lines(self.path / METRICS)

    def client_tables(self) -> list[dict[str, Any]]:
        """Return the recorded tables of clients."""
        return read_lines(self.path / CLIENTS)

    def write(
        self, metrics: Mapping[str, Any], tables: list[dict[str, Any]], position: Position
    ) -> None:
        """Record one round, and save a checkpoint if the last one is old enough.

        ``position`` is the position of the run after the round.
        """
        self._append(METRICS, metrics)
        for table in tables:
            self._append(CLIENTS, table)
        marks = {name: (self.path / name).stat().st_size for name in LOGS}
        self._unsaved = position, marks  # one assignment, so that Ctrl-C cannot leave half a round
        if time.monotonic() - self._last >= self._every:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Save a checkpoint of the last complete round, unless it is saved already."""
        if self._unsaved is None:
            return
        for name in LOGS:
            sync_file(self.path / name)
        self._checkpoints.save(*self._unsaved)
        self._unsaved, self._last = None, time.monotonic()

    def write_sample_weights(self, table: Mapping[str, Any]) -> None:
        """Write the histograms of the clients' sample weights."""
        write_bytes(self.path / SAMPLE_WEIGHTS_FILE, (json.dumps(table) + "\n").encode())

    def close(self) -> None:
        """Close the files and release the lock on the folder."""
        for file in self._files.values():
            file.close()
        if self._lock is not None:
            self._lock.release()

    def _check_logs(self, marks: Mapping[str, int]) -> None:
        """Raise if a log is shorter than it was when the checkpoint was saved."""
        for name in LOGS:
            path = self.path / name
            if (path.stat().st_size if path.is_file() else 0) < marks[name]:
                raise FolderError(
                    f"{path}: is damaged, it was longer when its checkpoint was saved; move the "
                    "run's folder away and run it again"
                )

    def _append(self, name: str, value: Mapping[str, Any]) -> None:
        self._files[name].write(json.dumps(value) + "\n")
        self._files[name].flush()

    def _read_run(self) -> dict[str, Any] | None:
        path = self.path / RUN
        if not path.is_file():
            return None
        try:
            stored: dict[str, Any] = json.loads(path.read_text())
        except ValueError:
            raise UnskewError(f"{path}: is not JSON; move the folder away") from None
        return stored

    def _create_folder(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnskewError(f"out: cannot create the folder {self.path}: {error}") from None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file with one JSON object per line; an incomplete last line is ignored."""
    if not path.is_file():
        return []
    *lines, _incomplete = path.read_bytes().split(b"\n")
    return [parsed(line, path) for line in lines]


def parsed(line: bytes, path: Path) -> dict[str, Any]:
    """Parse a line of a log."""
    try:
        value = json.loads(line)
    except ValueError as error:
        raise UnskewError(
            f"{path}: is damaged, a line of it is not JSON ({error}); move the run's folder away "
            "and run it again"
        ) from None
    if not isinstance(value, dict):
        raise UnskewError(f"{path}: is damaged, a line of it is {value!r}")
    return value


_HASHED = {
    "code": " (the source of your custom method or network)",
    "data": " (different samples, clients, skew, data options or seed)",
    "layout": " (a different network)",
    "start": " (different initial weights: a different network or seed)",
}
"""What the hashes in a run's identity depend on."""


def _reject_changes(path: Path, stored: Mapping[str, Any], requested: Mapping[str, Any]) -> None:
    """Raise if a resumed run would differ from the one in the folder; name the difference."""
    if "identity" not in stored:
        raise FolderError(f"{path}: its run.json was not written by unskew; choose another folder")
    flat_stored, flat_requested = _flat(stored["identity"]), _flat(requested)
    for key in sorted(set(flat_stored) | set(flat_requested)):
        was, now = flat_stored.get(key), flat_requested.get(key)
        if key == "code" and was is None:
            continue  # the run was written by a version that did not record it
        if was != now:
            what = _HASHED.get(key, "")
            raise FolderError(
                f"{path}: cannot resume, {key} was {was!r} and is now {now!r}{what}; "
                "change it back, or choose another folder"
            )


def _reject_fewer_rounds(path: Path, position: Position, end: tuple[int, int] | None) -> None:
    if end is not None and (position.stage, position.round) > end:
        raise FolderError(
            f"rounds: {path} has {position.round} already (requested {end[1]}); request "
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
