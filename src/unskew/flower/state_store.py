"""A node's private state between rounds, in Flower's context and in files that survive a restart.

A state is identified by the stage and the round that produced it, and the server says which one
counts: a node whose reply was late or rejected, or that repeats a round after a restart of the
server, starts from the state it had before that round. This is why the last few are kept.
"""

from pathlib import Path

from flwr.app import ConfigRecord, Context
from safetensors.torch import load, save

from unskew.composition.values import Tensors
from unskew.flower.node_files import NodeFiles
from unskew.flower.wire import Refusal, StateVersion
from unskew.runs.state_files import contiguous_copy

_RECORD = "unskew"
_SUFFIX = ".safetensors"
_EARLIER = 2
"""How many states before the newest are kept: the server can go back two checkpoints."""


class NodeStateStore:
    """The states of one node in one run."""

    def __init__(self, context: Context, folder: Path | None, run: str, name: str) -> None:
        self._context = context
        self._files = None if folder is None else NodeFiles(folder, run, name)
        self._run = run

    def read(self, version: StateVersion | None) -> Tensors:
        """Return a state; without a version, the empty state of a client that never trained."""
        if version is None:
            return {}
        content = self._in_memory().get(_key(version))
        if content is None and self._files is not None:
            content = self._files.read(f"{_key(version)}{_SUFFIX}")
        if content is None:
            raise Refusal(
                f"it has lost its state of stage {version[0] + 1}, round {version[1] + 1}"
            )
        return load(content)

    def write(self, version: StateVersion, before: StateVersion | None, state: Tensors) -> None:
        """Store a new state, keep the few that the server may go back to, and delete the rest."""
        content = save({name: contiguous_copy(tensor) for name, tensor in state.items()})
        in_memory = self._in_memory()
        record = {_key(version): content}
        kept_keys = {_key(version)}
        if before is not None:
            older = sorted(key for key in self._keys(in_memory) if key <= _key(before))[-_EARLIER:]
            record |= {key: in_memory[key] for key in older if key in in_memory}
            kept_keys |= set(older)
        self._context.state[_RECORD] = ConfigRecord({"run": self._run, **record})
        if self._files is not None:
            self._files.write(f"{_key(version)}{_SUFFIX}", content)
            self._files.remove(f"{key}{_SUFFIX}" for key in self._stored() - kept_keys)

    def _in_memory(self) -> dict[str, bytes]:
        record = self._context.state.config_records.get(_RECORD, ConfigRecord())
        if record.get("run") != self._run:
            return {}
        return {key: value for key, value in record.items() if isinstance(value, bytes)}

    def _keys(self, in_memory: dict[str, bytes]) -> set[str]:
        return in_memory.keys() | self._stored()

    def _stored(self) -> set[str]:
        files = set() if self._files is None else self._files.written()
        return {name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX)}


def _key(version: StateVersion) -> str:
    """Return a key whose alphabetical order is the order of the versions."""
    return f"{version[0]:03d}-{version[1]:08d}"
