"""What a node keeps to itself between rounds: in Flower's memory, and in files that outlive it.

Every state goes by the stage and the round that left it, and the server says which one counts: a
node whose answer came too late, was rejected, or is replayed after the server's restart goes on
from the state it had before. So the last few are kept.
"""

from pathlib import Path
from urllib.parse import quote

from flwr.app import ConfigRecord, Context
from safetensors.torch import load, save

from unskew.flower.wire import Refusal, Version
from unskew.methods.common.base import Tensors
from unskew.runs.atomic import write_bytes
from unskew.runs.state_files import contiguous_copy

_RECORD = "unskew"
_EARLIER = 2
"""How many states before the newest are kept: the server has two checkpoints to go back to."""


class NodeStateStore:
    """The states of one node in one run."""

    def __init__(self, context: Context, folder: Path | None, run: str, name: str) -> None:
        self._context = context
        self._folder = None if folder is None else folder / run / quote(name, safe="")
        self._run = run

    def read(self, version: Version | None) -> Tensors:
        """Return a state; without a version, that of a client that never took part."""
        if version is None:
            return {}
        content = self._in_memory().get(_key(version))
        if content is None and self._folder is not None:
            path = self._folder / f"{_key(version)}.safetensors"
            content = path.read_bytes() if path.is_file() else None
        if content is None:
            raise Refusal(
                f"it has lost its state of stage {version[0] + 1}, round {version[1] + 1}"
            )
        return load(content)

    def write(self, version: Version, before: Version | None, state: Tensors) -> None:
        """Keep a new state and the few it may be taken back to; forget the others."""
        content = save({name: contiguous_copy(tensor) for name, tensor in state.items()})
        known = self._in_memory()
        wanted = {_key(version): content}
        if before is not None:
            older = sorted(key for key in self._keys(known) if key <= _key(before))[-_EARLIER:]
            wanted |= {key: known[key] for key in older if key in known}
            keep = {*older, _key(version)}
        else:
            keep = {_key(version)}
        self._context.state[_RECORD] = ConfigRecord({"run": self._run, **wanted})
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_bytes(self._folder / f"{_key(version)}.safetensors", content)
            for path in self._folder.glob("*.safetensors"):
                if path.stem not in keep:
                    path.unlink(missing_ok=True)

    def _in_memory(self) -> dict[str, bytes]:
        record = self._context.state.config_records.get(_RECORD, ConfigRecord())
        if record.get("run") != self._run:
            return {}
        return {key: value for key, value in record.items() if isinstance(value, bytes)}

    def _keys(self, known: dict[str, bytes]) -> set[str]:
        files = [] if self._folder is None else self._folder.glob("*.safetensors")
        return {*known, *(path.stem for path in files)}


def _key(version: Version) -> str:
    """Return a name that sorts as the versions do."""
    return f"{version[0]:03d}-{version[1]:08d}"
