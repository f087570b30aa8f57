"""The folder of a run: its settings, its metrics, and its checkpoints."""

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from unskew.errors import FolderError, UnskewError
from unskew.runs.atomic import sync_file, write_bytes, write_json
from unskew.runs.checkpoint import Checkpoints, Position, has_checkpoint
from unskew.runs.client_tables import ClientTables
from unskew.runs.cpu import CPUS, cpu_kind, recorded_cpus
from unskew.runs.file_names import CHECKPOINTS, CLIENTS, LOGS, METRICS, RUN, SAMPLE_WEIGHTS_FILE
from unskew.runs.json_files import parse_line, read_json_object
from unskew.runs.leftovers import remove_leftovers
from unskew.runs.lock import FolderLock
from unskew.runs.ownership import check_run_folder
from unskew.runs.stage_cache import StageCache
from unskew.runs.states import MEMORY, ClientStates

_BLOCK_BYTES = 2**20


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
        self._digests = {name: hashlib.sha256() for name in LOGS}
        self._unsaved: tuple[Position, dict[str, int], dict[str, str]] | None = None
        self._lock: FolderLock | None = None
        self._metadata: dict[str, Any] = {}
        self.resumed = False
        """Whether the run was resumed from one of its checkpoints."""

    def open(
        self,
        identity: Mapping[str, Any],
        metadata: Mapping[str, Any],
        *,
        resume: bool,
        cache: StageCache | None = None,
        end: tuple[int, int] | None = None,
    ) -> Position:
        """Create the folder, or return the position from which the run in it is resumed.

        ``identity`` must be equal for a run to be resumed; ``metadata`` is recorded with it.
        ``end`` is the last stage and its number of rounds: a run beyond it is rejected, because its
        metrics would be of later rounds than requested. Without a checkpoint, the run starts from
        the beginning, or from the end of a stage that another run has completed.
        """
        check_run_folder(self.path)
        self._create_folder()
        self._lock = FolderLock(self.path)
        try:
            return self._open(identity, metadata, resume=resume, cache=cache, end=end)
        except BaseException:
            self.close()
            raise

    def _open(
        self,
        identity: Mapping[str, Any],
        metadata: Mapping[str, Any],
        *,
        resume: bool,
        cache: StageCache | None,
        end: tuple[int, int] | None,
    ) -> Position:
        stored = self._read_run()
        found = None if stored is None else self._checkpoints.load()
        if found is not None and not resume:
            raise _there_is_a_run(self.path)
        requested = json.loads(json.dumps({"identity": identity, **metadata}))
        if stored is not None and found is not None:
            _reject_changes(self.path, stored, requested["identity"])
            _reject_fewer_rounds(self.path, found[0], end)
        self.resumed = found is not None
        remove_leftovers(self.path)
        self._checkpoints.remove_leftovers()
        if found is None:
            # The manifest comes before run.json, and both before a cached stage: see ownership.
            self._checkpoints.clear()
            write_json(self.path / RUN, {"identity": identity, **metadata})
            if cache is not None and cache.restore(self.path):
                found = self._checkpoints.load()
        beginning = Position(states=ClientStates(self._checkpoints.store))
        position, marks = found or (beginning, dict.fromkeys(LOGS, 0))
        self._check_logs(marks)
        self._metadata = requested
        if self.resumed and stored is not None:
            self._metadata[CPUS] = recorded_cpus(stored)
            if stored != self._metadata:
                write_json(self.path / RUN, self._metadata)
        for name in LOGS:
            file = (self.path / name).open("a+", encoding="utf-8")
            file.truncate(marks[name])  # rounds after the checkpoint are run again
            self._files[name] = file
        return position

    @property
    def cpus(self) -> list[str]:
        """The kinds of CPU that executed the run's rounds so far."""
        return recorded_cpus(self._metadata)

    def metrics(self) -> list[dict[str, Any]]:
        """Return the recorded metrics, one row per round."""
        return read_lines(self.path / METRICS)

    def client_tables(self) -> ClientTables:
        """Return the recorded tables of clients, which are read when they are used."""
        return ClientTables(self.path / CLIENTS)

    def write(
        self, metrics: Mapping[str, Any], tables: list[dict[str, Any]], position: Position
    ) -> None:
        """Record one round, and save a checkpoint if the last one is old enough.

        ``position`` is the position of the run after the round.
        """
        if cpu_kind() not in self.cpus:  # the run was begun on another machine
            self._metadata[CPUS] = [*self.cpus, cpu_kind()]
            write_json(self.path / RUN, self._metadata)
        self._append(METRICS, metrics)
        for table in tables:
            self._append(CLIENTS, table)
        marks = {name: (self.path / name).stat().st_size for name in LOGS}
        hashes = {name: digest.hexdigest() for name, digest in self._digests.items()}
        # One assignment, so that Ctrl-C cannot leave half a round.
        self._unsaved = position, marks, hashes
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
        """Raise if a log is shorter than when the checkpoint was saved, or was changed since."""
        hashes = self._checkpoints.log_hashes
        for name in LOGS:
            path = self.path / name
            if (path.stat().st_size if path.is_file() else 0) < marks[name]:
                raise FolderError(
                    f"{path}: is damaged, it was longer when its checkpoint was saved; move the "
                    "run's folder away and run it again"
                )
            if marks[name]:
                self._digests[name] = _digest_of(path, marks[name])
            if name in hashes and self._digests[name].hexdigest() != hashes[name]:
                raise FolderError(
                    f"{path}: is damaged, it was changed after its checkpoint was saved; restore "
                    "it, or move the run's folder away and run it again"
                )

    def _append(self, name: str, value: Mapping[str, Any]) -> None:
        line = json.dumps(value) + "\n"
        self._files[name].write(line)
        self._files[name].flush()
        self._digests[name].update(line.encode())

    def _read_run(self) -> dict[str, Any] | None:
        path = self.path / RUN
        return read_json_object(path) if path.exists() else None

    def _create_folder(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnskewError(f"out: cannot create the folder {self.path}: {error}") from None


def reject_existing_run(path: Path) -> None:
    """Raise if a folder holds a run that could be resumed."""
    if has_checkpoint(path):
        raise _there_is_a_run(path)


def _there_is_a_run(path: Path) -> FolderError:
    return FolderError(
        f"{path}: there is a run already; resume it with resume=True (--resume), or choose another "
        "folder"
    )


def _digest_of(path: Path, size: int) -> "hashlib._Hash":
    """Return the hash of the start of a file, to be updated with what is appended."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while size > 0:
            block = file.read(min(size, _BLOCK_BYTES))
            if not block:
                break
            digest.update(block)
            size -= len(block)
    return digest


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file with one JSON object per line; an incomplete last line is ignored."""
    if not path.is_file():
        return []
    *lines, _incomplete = path.read_bytes().split(b"\n")
    return [parse_line(line, path) for line in lines]


_HASHED = {
    "data": " (different samples, clients, skew, data options or seed)",
    "layout": " (a different network)",
    "start": " (different initial weights: a different network or seed)",
}
"""What the hashes in a run's identity depend on."""


def _reject_changes(path: Path, stored: Mapping[str, Any], requested: Mapping[str, Any]) -> None:
    """Raise if a resumed run would differ from the one in the folder; name the difference."""
    if not isinstance(stored.get("identity"), Mapping):
        raise FolderError(f"{path}: its run.json was not written by unskew; choose another folder")
    flat_stored, flat_requested = _flat(stored["identity"]), _flat(requested)
    _reject_other_code(path, flat_stored, flat_requested)
    for key in sorted(set(flat_stored) | set(flat_requested)):
        was, now = flat_stored.get(key), flat_requested.get(key)
        if was != now:
            what = _HASHED.get(key, "")
            raise FolderError(
                f"{path}: cannot resume, {key} was {was!r} and is now {now!r}{what}; "
                "change it back, or choose another folder"
            )


def _reject_other_code(path: Path, stored: Mapping[str, Any], requested: Mapping[str, Any]) -> None:
    """Raise if custom code has changed since the run; name its files, or names in a notebook."""
    names = {key for key in (*stored, *requested) if key.startswith("code.")}
    changed = sorted(name for name in names if stored.get(name) != requested.get(name))
    if "code" in stored:
        raise FolderError(
            f"{path}: cannot reuse the run: an earlier version of unskew wrote it, which did not "
            "record all code that your method, network or metrics use; choose another folder"
        )
    if changed:
        listed = ", ".join(name.removeprefix("code.") for name in changed)
        raise FolderError(
            f"{path}: cannot reuse the run, because code that it used has changed: {listed}; "
            "undo the change, or choose another folder"
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
