"""Checkpoints: everything a run needs to go on, as safetensors and JSON.

A checkpoint is a folder that appears in one rename; the manifest names it, with the hash of each
file, in another. The one before is kept, in case the newest was damaged. Random numbers need no
saving: they depend on seed, purpose, round and client alone.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from unskew.errors import UnskewError
from unskew.methods.base import Server, Tensors
from unskew.runs.atomic import sha256, sync_file, sync_folder, write_json

_KEEP = 2


@dataclass(eq=False)
class Position:
    """How far a run is: the stage and the round to play next, and everybody's state."""

    stage: int = 0
    round: int = 0
    server: Server | None = None
    states: dict[int, Tensors] = field(default_factory=dict)
    earlier: dict[str, Server] = field(default_factory=dict)


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
        listed: dict[str, dict[str, str]] = json.loads(self._manifest.read_text())
        return listed

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
        tensors[f"{place}:vector"] = server.vector.clone()
        for name, tensor in server.slots.items():
            tensors[f"{place}:slot/{name}"] = tensor.clone()
    return tensors


def _states_to_tensors(states: Mapping[int, Tensors]) -> dict[str, Tensor]:
    return {
        f"{client}/{name}": tensor.clone()
        for client, state in sorted(states.items())
        for name, tensor in state.items()
    }


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
        states=dict(states),
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
