"""Checkpoints: everything a run needs to be resumed, as safetensors and JSON.

A checkpoint is a folder that is created by one rename; a second rename updates the manifest, which
lists it with the hash of each file. The previous checkpoint is kept in case the newest is damaged.
Random numbers are not saved: they depend only on seed, purpose, round and client.

Clients' states are in files that checkpoints share, so that only changed states are written;
``clients.safetensors`` maps each client to the file of its state.
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from unskew.composition.accepted_sizes import AcceptedSizes, Sizes
from unskew.composition.values import Server, Tensors
from unskew.errors import UnskewError
from unskew.runs.atomic import sha256, sync_file, sync_folder, write_json
from unskew.runs.file_names import CHECKPOINTS, MANIFEST
from unskew.runs.leftovers import (
    ACCEPTED,
    CHECKPOINT,
    CHECKPOINT_FILES,
    STATE_FILE,
    TUNED,
    remove_checkpoint,
    remove_leftovers,
    temporary_path,
)
from unskew.runs.state_files import StateFile, StateRecord, contiguous_copy
from unskew.runs.states import MEMORY, ClientStates, StateStore

_NUM_KEPT = 2
_STATES = "states"


@dataclass(frozen=True, eq=False)
class Position:
    """The position of a run: the next stage and round, and the state of the server and all clients.

    It is immutable, so that a run interrupted at any moment has a complete position to save.
    """

    stage: int = 0
    round: int = 0
    server: Server | None = None
    states: ClientStates = field(default_factory=ClientStates)
    tuned: ClientStates = field(default_factory=ClientStates)
    """At the end of the run, what fine-tuning has changed in the clients' personal models."""
    earlier: Mapping[str, Server] = field(default_factory=dict)
    accepted: AcceptedSizes = field(default_factory=AcceptedSizes)
    """How large what clients sent in this stage was, where it was accepted."""

    def after_round(
        self, server: Server, changed: Mapping[int, Tensors], sizes: Sizes
    ) -> "Position":
        """Return the position after one more round.

        ``changed`` are the new states of its clients, and ``sizes`` those of what was accepted.
        """
        return replace(
            self,
            round=self.round + 1,
            server=server,
            states=self.states.updated(changed),
            tuned=ClientStates(),
            accepted=self.accepted.after_round(sizes),
        )

    def after_stage(self, name: str) -> "Position":
        """Return the position at the start of the next stage; this stage's server is kept."""
        assert self.server is not None
        earlier = {**self.earlier, name: self.server}
        states = self.states
        return Position(stage=self.stage + 1, states=states, earlier=earlier)


class Checkpoints:
    """The checkpoints of one run, in a folder."""

    def __init__(self, folder: Path, state_memory: int = MEMORY) -> None:
        self._folder = folder
        self._manifest = folder / MANIFEST
        self.store = StateStore(folder / _STATES, state_memory)
        self.log_hashes: dict[str, str] = {}
        """The hashes of the logs when the checkpoint that was loaded last was saved."""

    def save(
        self,
        position: Position,
        marks: Mapping[str, int],
        log_hashes: Mapping[str, str] | None = None,
    ) -> None:
        """Write a checkpoint.

        ``marks`` are integers to store with it, such as the sizes of the logs, whose hashes are
        ``log_hashes``.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        name = _name_of(position.stage, position.round)
        temporary = temporary_path(self._folder / name)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        save_tensors(_servers_to_tensors(position), temporary / "server.safetensors")
        save_tensors(position.accepted.to_tensors(), temporary / ACCEPTED)
        files = position.states.in_store(self.store).on_disk()
        save_tensors(_state_index(files), temporary / "clients.safetensors")
        if position.tuned:
            tuned = position.tuned.in_store(self.store).on_disk()
            save_tensors(_state_index(tuned, len(files)), temporary / TUNED)
            files |= tuned
        content = {
            "stage": position.stage,
            "round": position.round,
            "marks": dict(marks),
            "log_hashes": dict(log_hashes or {}),
            "states": {file.path.name: file.sha256 for file in files},
        }
        (temporary / "position.json").write_text(json.dumps(content))
        hashes = {}
        for file in sorted(temporary.iterdir()):
            sync_file(file)
            hashes[file.name] = sha256(file)
        sync_folder(temporary)
        if not remove_checkpoint(self._folder / name):
            raise UnskewError(
                f"{self._folder / name}: holds files that are not part of a checkpoint; move them "
                "away and resume the run"
            )
        temporary.rename(self._folder / name)
        sync_folder(self._folder)
        listed = self._listed()
        others = {known: files for known, files in listed.items() if known != name}
        newest = dict(list({**others, name: hashes}.items())[-_NUM_KEPT:])
        write_json(self._manifest, newest)
        self._tidy(set(listed) - set(newest), set(newest))

    def load(self) -> tuple[Position, dict[str, int]] | None:
        """Read the newest undamaged checkpoint; None if there is no checkpoint."""
        found = self._newest()
        return None if found is None else self._read(self._folder / found[0])

    def clear(self) -> None:
        """Write an empty manifest and remove checkpoints that it does not list.

        They cannot be resumed, such as those of a run interrupted at its start. Files that no
        checkpoint has written are kept.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        write_json(self._manifest, {})
        for path in self._folder.iterdir():
            if CHECKPOINT.fullmatch(path.name):
                remove_checkpoint(path)
        self.store.tidy(())

    def remove_leftovers(self) -> None:
        """Remove temporary files of a process that was killed while it wrote a checkpoint."""
        remove_leftovers(self._folder)
        remove_leftovers(self._folder / _STATES)

    def link_to(self, target: Path) -> dict[str, int] | None:
        """Link the newest undamaged checkpoint into another folder and return its marks.

        The files never change, so both folders can share them. The manifest is written last: after
        a crash before that, the other folder has no checkpoint.
        """
        found = self._newest()
        if found is None:
            return None
        name, files = found
        content = _read_position(self._folder / name)
        Checkpoints(target).clear()
        for place, linked in ((name, files), (_STATES, content["states"])):
            (target / place).mkdir(exist_ok=True)
            for file in linked:
                _link(self._folder / place / file, target / place / file)
            sync_folder(target / place)
        write_json(target / self._manifest.name, {name: files})
        return dict(content["marks"])

    def _newest(self) -> tuple[str, dict[str, str]] | None:
        listed = self._listed()
        for name, files in reversed(listed.items()):
            if self._is_undamaged(self._folder / name, files):
                return name, files
        if listed:
            raise UnskewError(f"{self._folder}: all checkpoints are damaged; choose another folder")
        return None

    def _listed(self) -> dict[str, dict[str, str]]:
        """Return the checkpoints of the manifest, oldest first, with the hashes of their files."""
        if not self._manifest.is_file():
            return {}
        try:
            listed = json.loads(self._manifest.read_text())
            checkpoints = {name: dict(files) for name, files in listed.items()}
            if all(map(_is_checkpoint, checkpoints, checkpoints.values())):
                return checkpoints
            raise ValueError("it lists other files")
        except (ValueError, TypeError, AttributeError):
            raise UnskewError(
                f"{self._manifest}: is damaged, so the run cannot be resumed; choose another folder"
            ) from None

    def _is_undamaged(self, folder: Path, files: Mapping[str, str]) -> bool:
        return _have_hashes(folder, files) and _have_hashes(
            self._folder / _STATES, _read_position(folder)["states"]
        )

    def _tidy(self, dropped: set[str], kept: set[str]) -> None:
        """Remove checkpoints that the manifest no longer lists, and states that none needs."""
        for name in dropped:
            if CHECKPOINT.fullmatch(name):
                remove_checkpoint(self._folder / name)
        files: set[str] = set()
        for name in kept:  # a damaged checkpoint keeps no files
            with suppress(OSError, UnskewError, ValueError, KeyError, TypeError, RecursionError):
                files.update(_read_position(self._folder / name)["states"])
        self.store.tidy(files)

    def _read(self, folder: Path) -> tuple[Position, dict[str, int]]:
        try:
            content = _read_position(folder)
            servers = _servers_from_tensors(load_file(folder / "server.safetensors"))
            states = self._read_states(folder / "clients.safetensors", content["states"])
            tuned = ClientStates()
            if (folder / TUNED).is_file():
                tuned = self._read_states(folder / TUNED, content["states"])
            sizes = load_file(folder / ACCEPTED) if (folder / ACCEPTED).is_file() else {}
            accepted = AcceptedSizes.from_tensors(sizes)
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise UnskewError(f"{folder}: cannot be read: {error}") from None
        self.log_hashes = content.get("log_hashes", {})
        position = Position(
            stage=content["stage"],
            round=content["round"],
            server=servers.pop("now", None),
            states=states,
            tuned=tuned,
            earlier={name.removeprefix("earlier/"): server for name, server in servers.items()},
            accepted=accepted,
        )
        return position, content["marks"]

    def _read_states(self, index: Path, files: Mapping[str, str]) -> ClientStates:
        records = list(self._read_records(load_file(index), files))
        return ClientStates.from_disk(self.store, records)

    def _read_records(self, index: Tensors, files: Mapping[str, str]) -> Iterator[StateRecord]:
        for number, (name, digest) in enumerate(files.items()):
            in_file = index["file"] == number
            if not bool(in_file.any()):
                continue
            clients, nbytes = index["client"][in_file].tolist(), index["nbytes"][in_file].tolist()
            yield from self.store.folder.read(name, digest, dict(zip(clients, nbytes, strict=True)))


class StatesInFolder(Mapping[int, Tensors]):
    """The states of a run's clients in its folder, opened when they are first used."""

    def __init__(self, run: Path) -> None:
        self._run = run

    @cached_property
    def _states(self) -> Mapping[int, Tensors]:
        found = Checkpoints(self._run / CHECKPOINTS).load()
        return {} if found is None else found[0].states

    def __getitem__(self, client: int) -> Tensors:
        return self._states[client]

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[int]:
        return iter(self._states)


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a safetensors file; a full disk is an error of one line."""
    try:
        save_file(dict(tensors), path)
    except SafetensorError as error:
        raise UnskewError(
            f"{path.parent}: the checkpoint cannot be written ({error}); free some space and "
            "resume the run, whose earlier checkpoint was kept"
        ) from None


def _servers_to_tensors(position: Position) -> dict[str, Tensor]:
    servers = {f"earlier/{name}": server for name, server in position.earlier.items()}
    if position.server is not None:
        servers["now"] = position.server
    tensors = {}
    for place, server in servers.items():
        tensors[f"{place}:vector"] = contiguous_copy(server.vector)
        for name, tensor in server.state.items():
            tensors[f"{place}:slot/{name}"] = contiguous_copy(tensor)
    return tensors


def _state_index(files: Mapping[StateFile, list[StateRecord]], first: int = 0) -> dict[str, Tensor]:
    """Return for each client the index of the file of its state, and the size of the state."""
    rows = [
        (record.client, number, record.nbytes)
        for number, records in enumerate(files.values(), start=first)
        for record in records
    ]
    columns = torch.tensor(rows, dtype=torch.int64).reshape(-1, 3).T
    return {name: contiguous_copy(column) for name, column in zip(_COLUMNS, columns, strict=True)}


_COLUMNS = ("client", "file", "nbytes")


def has_checkpoint(run: Path) -> bool:
    """Return whether a run's folder has a checkpoint; it is not checked whether it is undamaged."""
    return bool(_newest_checkpoint(run))


def has_checkpoint_of(run: Path, end: tuple[int, int]) -> bool:
    """Return whether the newest checkpoint in a run's folder is of a stage and round.

    It is not checked whether the checkpoint is undamaged.
    """
    return _newest_checkpoint(run) == _name_of(*end)


def rounds_done(run: Path, stage: int) -> int:
    """Return how many rounds of a stage the newest checkpoint in a run's folder holds."""
    prefix, newest = _name_of(stage, 0)[:-6], _newest_checkpoint(run)
    number = newest.removeprefix(prefix)
    return int(number) if number != newest and number.isdigit() else 0


def _newest_checkpoint(run: Path) -> str:
    """Return the name of the newest checkpoint in a run's folder; empty if there is none."""
    try:
        *_, newest = json.loads((run / CHECKPOINTS / MANIFEST).read_bytes())
    except (OSError, ValueError, TypeError):  # none yet, or a damaged file: opening it explains
        return ""
    return str(newest)


def _name_of(stage: int, round_: int) -> str:
    return f"stage{stage}-round{round_:06d}"


def _read_position(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "position.json").read_text())
    if not all(map(STATE_FILE.fullmatch, content["states"])):
        raise UnskewError(f"{folder}: lists files that are not states; choose another folder")
    return content


def _is_checkpoint(name: str, files: Iterable[str]) -> bool:
    """Return whether names in a manifest are those of a checkpoint and of its files."""
    return bool(CHECKPOINT.fullmatch(name)) and set(files) <= set(CHECKPOINT_FILES)


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:  # some file systems have no hard links
        shutil.copyfile(source, target)
        sync_file(target)


def _have_hashes(folder: Path, files: Mapping[str, str]) -> bool:
    return all(
        (folder / name).is_file() and sha256(folder / name) == digest
        for name, digest in files.items()
    )


def _servers_from_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Server]:
    vectors: dict[str, Tensor] = {}
    states: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        place, _, name = key.rpartition(":")
        if name == "vector":
            vectors[place] = tensor
        else:
            states.setdefault(place, {})[name.removeprefix("slot/")] = tensor
    return {place: Server(vector, states.get(place, {})) for place, vector in vectors.items()}
