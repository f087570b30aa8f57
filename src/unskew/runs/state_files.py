"""Files of client states: each is numbered, written once and never changed."""

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

from unskew.composition.values import Tensors
from unskew.errors import UnskewError
from unskew.runs.atomic import write_bytes
from unskew.runs.leftovers import STATE_FILE

_FILE_BYTES, _FILE_CLIENTS = 2**26, 256
"""Limits per file, which the last state may exceed. Reading a state reads all names in its file,
so the number of clients is limited, too."""


class StateFile:
    """One file; it is needed as long as this object is referenced."""

    def __init__(self, path: Path, sha256: str, clients: int) -> None:
        self.path, self.sha256, self.clients = path, sha256, clients


class StateRecord:
    """One client's state, in memory, on disk, or both; its content never changes."""

    __slots__ = ("client", "file", "names", "nbytes", "tensors")

    def __init__(self, client: int, tensors: Tensors) -> None:
        self.client = client
        self.tensors: Tensors | None = {
            name: _without_shared_storage(each) for name, each in tensors.items()
        }
        self.names = tuple(self.tensors)
        self.nbytes = sum(tensor.nbytes for tensor in self.tensors.values())
        self.file: StateFile | None = None

    @classmethod
    def on_disk(
        cls, client: int, file: StateFile, names: Iterable[str], nbytes: int
    ) -> "StateRecord":
        """Return a record whose tensors are only in a file."""
        record = cls(client, {})
        record.tensors, record.file = None, file
        record.names, record.nbytes = tuple(names), nbytes
        return record

    def load(self) -> Tensors:
        """Return the tensors, read from the disk if they are not in memory."""
        tensors = self.tensors
        if tensors is not None:
            return tensors
        assert self.file is not None
        try:
            with safe_open(self.file.path, "pt") as file:
                return {
                    name: contiguous_copy(file.get_tensor(f"{self.client}/{name}"))
                    for name in self.names
                }
        except (OSError, SafetensorError) as error:
            raise UnskewError(f"{self.file.path}: cannot read a client's state: {error}") from None


class StateFolder:
    """A folder of such files; a temporary folder if no path is given."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._needed: weakref.WeakSet[StateFile] = weakref.WeakSet()
        self._number: int | None = None

    def write(self, records: Iterable[StateRecord]) -> None:
        """Write records, many per file."""
        for batch in _batches(records):
            tensors = {
                f"{record.client}/{name}": contiguous_copy(tensor)
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
        """Return records of a file without their tensors; ``sizes`` maps clients to bytes."""
        path = self._folder() / name
        names: dict[int, list[str]] = {}
        with safe_open(path, "pt") as opened:
            for key in opened.keys():  # noqa: SIM118 (it is not a mapping)
                client, _, tensor = key.partition("/")
                names.setdefault(int(client), []).append(tensor)
        file = StateFile(path, sha256, len(names))
        self._needed.add(file)
        return [
            StateRecord.on_disk(client, file, names[client], nbytes)
            for client, nbytes in sizes.items()
        ]

    def tidy(self, kept: Iterable[str]) -> None:
        """Remove files that no record refers to and that are not listed in ``kept`` by name."""
        if self._path is None or not self._path.is_dir():
            return
        needed = {file.path.name for file in self._needed} | set(kept)
        for path in self._path.glob("*.safetensors"):
            if path.name not in needed and STATE_FILE.fullmatch(path.name):
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
            paths = folder.glob("*.safetensors")
            known = [int(path.stem) for path in paths if STATE_FILE.fullmatch(path.name)]
            self._number = max(known, default=-1)
        self._number += 1
        return folder / f"{self._number:08d}.safetensors"


def contiguous_copy(tensor: Tensor) -> Tensor:
    """Copy a tensor into separate contiguous memory, as safetensors requires."""
    return tensor.clone(memory_format=torch.contiguous_format)


def _without_shared_storage(tensor: Tensor) -> Tensor:
    """Return a tensor with storage of its size: a view of a row would keep the whole matrix."""
    return contiguous_copy(tensor) if tensor.untyped_storage().nbytes() > tensor.nbytes else tensor


def is_full(clients: int, nbytes: int) -> bool:
    """Return whether a file has reached its limits."""
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
