"""Files of client states: each is written once, named by a number, and never changed."""

import hashlib
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from unskew.errors import UnskewError
from unskew.methods.common.base import Tensors
from unskew.runs.atomic import write_bytes

_FILE_BYTES, _FILE_CLIENTS = 2**26, 256
"""How much one file holds. Reading a state takes reading all names in its file, so not too many;
the last state may go beyond."""


class StateFile:
    """One file; whoever holds this object still needs it."""

    def __init__(self, path: Path, sha256: str, clients: int) -> None:
        self.path, self.sha256, self.clients = path, sha256, clients


class StateRecord:
    """One client's state, in memory, on disk, or both; what it says never changes."""

    __slots__ = ("client", "file", "names", "nbytes", "tensors")

    def __init__(self, client: int, tensors: Tensors) -> None:
        self.client = client
        self.tensors: Tensors | None = {name: _alone(each) for name, each in tensors.items()}
        self.names = tuple(self.tensors)
        self.nbytes = sum(tensor.nbytes for tensor in self.tensors.values())
        self.file: StateFile | None = None

    @classmethod
    def on_disk(
        cls, client: int, file: StateFile, names: Iterable[str], nbytes: int
    ) -> "StateRecord":
        """Return a record whose tensors are in a file alone."""
        record = cls(client, {})
        record.tensors, record.file = None, file
        record.names, record.nbytes = tuple(names), nbytes
        return record

    def load(self) -> Tensors:
        """Return the tensors, from the disk if they are there alone."""
        tensors = self.tensors
        if tensors is not None:
            return tensors
        assert self.file is not None
        try:
            with safe_open(self.file.path, "pt") as file:
                return {name: own(file.get_tensor(f"{self.client}/{name}")) for name in self.names}
        except (OSError, SafetensorError) as error:
            raise UnskewError(f"{self.file.path}: a client's state is lost: {error}") from None


class StateFolder:
    """A folder of such files; a temporary one where none is given."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._needed: weakref.WeakSet[StateFile] = weakref.WeakSet()
        self._number: int | None = None

    def write(self, records: Iterable[StateRecord]) -> None:
        """Write records down, many a file."""
        for batch in _batches(records):
            tensors = {
                f"{record.client}/{name}": own(tensor)
                for record in batch
                for name, tensor in record.load().items()
            }
            content = save(tensors)
            path = self._next_path()
            write_bytes(path, content)
            file = StateFile(path, hashlib.sha256(content).hexdigest(), len(batch))
            self._needed.add(file)
            for record in batch:
                record.file = file

    def read(self, name: str, sha256: str, sizes: Mapping[int, int]) -> list[StateRecord]:
        """Return records of a file, without their tensors; ``sizes`` are their clients' bytes."""
        path = self._folder() / name
        names: dict[int, list[str]] = {}
        with safe_open(path, "pt") as opened:
            for key in opened.keys():  # noqa: SIM118 (it is no mapping)
                client, _, tensor = key.partition("/")
                names.setdefault(int(client), []).append(tensor)
        file = StateFile(path, sha256, len(names))
        self._needed.add(file)
        return [
            StateRecord.on_disk(client, file, names[client], nbytes)
            for client, nbytes in sizes.items()
        ]

    def tidy(self, wanted: Iterable[str]) -> None:
        """Remove the files that neither a record nor anybody who wants them by name needs."""
        if self._path is None or not self._path.is_dir():
            return
        needed = {file.path.name for file in self._needed} | set(wanted)
        for path in self._path.glob("*.safetensors"):
            if path.name not in needed:
                path.unlink(missing_ok=True)

    def _folder(self) -> Path:
        if self._path is None:
            self._path = Path(tempfile.mkdtemp(prefix="unskew-states-"))
            weakref.finalize(self, shutil.rmtree, self._path, ignore_errors=True)
        self._path.mkdir(parents=True, exist_ok=True)
        return self._path

    def _next_path(self) -> Path:
        folder = self._folder()
        if self._number is None:
            known = [int(path.stem) for path in folder.glob("*.safetensors")]
            self._number = max(known, default=-1)
        self._number += 1
        return folder / f"{self._number:08d}.safetensors"


def own(tensor: Tensor) -> Tensor:
    """Copy a tensor into memory of its own, in the plain order that safetensors takes."""
    return tensor.clone(memory_format=torch.contiguous_format)


def _alone(tensor: Tensor) -> Tensor:
    """Return a tensor that holds no more memory than its own: a row would hold its matrix."""
    return own(tensor) if tensor.untyped_storage().nbytes() > tensor.nbytes else tensor


def is_full(clients: int, nbytes: int) -> bool:
    """Tell whether a file should take no more states."""
    return clients >= _FILE_CLIENTS or nbytes >= _FILE_BYTES


def _batches(records: Iterable[StateRecord]) -> Iterator[list[StateRecord]]:
    batch: list[StateRecord] = []
    nbytes = 0
    for record in records:
        batch.append(record)
        nbytes += record.nbytes
        if is_full(len(batch), nbytes):
            yield batch
            batch, nbytes = [], 0
    if batch:
        yield batch
