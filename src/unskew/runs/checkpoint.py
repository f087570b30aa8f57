"""Checkpoints: everything a run needs to go on, as safetensors and JSON.

A checkpoint is a folder that appears in one rename; the manifest names it, with the hash of each
file, in another. The one before is kept, in case the newest was damaged. Random numbers need no
saving: they depend on seed, purpose, round and client alone.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from unskew.errors import UnskewError
from unskew.methods.base import Server, Tensors
from unskew.runs.atomic import sha256, sync_file, sync_folder, write_json

_KEEP = 2


@dataclass(frozen=True, eq=False)
class Position:
    """How far a run is: the stage and the round to play next, and everybody's state.

    A value that never changes, so that a run stopped at any moment has a whole one to write down.
    """

    stage: int = 0
    round: int = 0
    server: Server | None = None
    states: Mapping[int, Tensors] = field(default_factory=dict)
    earlier: Mapping[str, Server] = field(default_factory=dict)

    def after_round(self, server: Server, states: Mapping[int, Tensors]) -> "Position":
        """Return the position one round on, with the states of the clients that changed theirs."""
        merged = {**self.states, **states} if states else self.states
        return replace(self, round=self.round + 1, server=server, states=merged)

    def after_stage(self, name: str) -> "Position":
        """Return the position at the next stage's beginning; this one's server is remembered."""
        assert self.server is not None
        earlier = {**self.earlier, name: self.server}
        return replace(self, stage=self.stage + 1, round=0, server=None, earlier=earlier)


class Checkpoints:
    """The checkpoints of one run, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._manifest = folder / "manifest.json"

    def save(self, position: Position, marks: Mapping[str, int]) -> None:
        """Write a checkpoint; ``marks`` are whole numbers to find again, such as file lengths."""
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"stage{position.stage}-round{position.round:06d}"
        building = self._folder / f".{name}.{os.getpid()}"
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir()
        save_file(_servers_to_tensors(position), building / "server.safetensors")
        save_file(_states_to_tensors(position.states), building / "clients.safetensors")
        facts = {"stage": position.stage, "round": position.round, "marks": dict(marks)}
        (building / "position.json").write_text(json.dumps(facts))
        hashes = {}
        for file in sorted(building.iterdir()):
            sync_file(file)
            hashes[file.name] = sha256(file)
        sync_folder(building)
        shutil.rmtree(self._folder / name, ignore_errors=True)
        building.rename(self._folder / name)
        sync_folder(self._folder)
        others = {known: files for known, files in self._listed().items() if known != name}
        newest = dict(list({**others, name: hashes}.items())[-_KEEP:])
        write_json(self._manifest, newest)
        self._tidy(set(newest))

    def load(self) -> tuple[Position, dict[str, int]] | None:
        """Read the newest checkpoint whose files are whole; None if there never was one."""
        listed = self._listed()
        for name, files in reversed(listed.items()):
            if self._is_whole(self._folder / name, files):
                return _read(self._folder / name)
        if listed:
            raise UnskewError(f"{self._folder}: no checkpoint is whole; start anew elsewhere")
        return None

    def _listed(self) -> dict[str, dict[str, str]]:
        """Return the checkpoints of the manifest, oldest first, with the hashes of their files."""
        if not self._manifest.is_file():
            return {}
        try:
            listed = json.loads(self._manifest.read_text())
            return {name: dict(files) for name, files in listed.items()}
        except (ValueError, TypeError, AttributeError):
            raise UnskewError(
                f"{self._manifest}: is damaged, so nothing can be resumed; start anew elsewhere"
            ) from None

    @staticmethod
    def _is_whole(folder: Path, files: Mapping[str, str]) -> bool:
        return all(
            (folder / name).is_file() and sha256(folder / name) == digest
            for name, digest in files.items()
        )

    def _tidy(self, wanted: set[str]) -> None:
        """Remove older checkpoints, and what a crash left half built."""
        for path in self._folder.iterdir():
            if path.is_dir() and path.name not in wanted:
                shutil.rmtree(path, ignore_errors=True)


def _servers_to_tensors(position: Position) -> dict[str, Tensor]:
    servers = {f"earlier/{name}": server for name, server in position.earlier.items()}
    if position.server is not None:
        servers["now"] = position.server
    tensors = {}
    for place, server in servers.items():
        tensors[f"{place}:vector"] = _own(server.vector)
        for name, tensor in server.slots.items():
            tensors[f"{place}:slot/{name}"] = _own(tensor)
    return tensors


def _states_to_tensors(states: Mapping[int, Tensors]) -> dict[str, Tensor]:
    return {
        f"{client}/{name}": _own(tensor)
        for client, state in sorted(states.items())
        for name, tensor in state.items()
    }


def _own(tensor: Tensor) -> Tensor:
    """Copy a tensor into memory of its own, in the plain order that safetensors takes."""
    return tensor.clone(memory_format=torch.contiguous_format)


def _read(folder: Path) -> tuple[Position, dict[str, int]]:
    try:
        facts = json.loads((folder / "position.json").read_text())
        servers = _servers_from_tensors(load_file(folder / "server.safetensors"))
        states: dict[int, dict[str, Tensor]] = {}
        for key, tensor in load_file(folder / "clients.safetensors").items():
            client, _, name = key.partition("/")
            states.setdefault(int(client), {})[name] = tensor
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise UnskewError(f"{folder}: cannot be read: {error}") from None
    position = Position(
        stage=facts["stage"],
        round=facts["round"],
        server=servers.pop("now", None),
        states=states,
        earlier={name.removeprefix("earlier/"): server for name, server in servers.items()},
    )
    return position, facts["marks"]


def _servers_from_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Server]:
    vectors: dict[str, Tensor] = {}
    slots: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        place, _, name = key.rpartition(":")
        if name == "vector":
            vectors[place] = tensor
        else:
            slots.setdefault(place, {})[name.removeprefix("slot/")] = tensor
    return {place: Server(vector, slots.get(place, {})) for place, vector in vectors.items()}
