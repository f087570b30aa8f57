"""The states of clients between rounds: in memory up to a limit, on disk beyond it.

:class:`ClientStates` is immutable: a round creates a new one that shares all states except the
cohort's with the old one. So a run interrupted at any moment still has the states of its last
complete round, a round costs only the memory of its cohort's states, and a checkpoint writes only
the states that changed since the previous one.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from unskew.composition.values import Tensors
from unskew.runs.intmap import IntMap
from unskew.runs.state_files import StateFile, StateFolder, StateRecord, is_full

MEMORY = 2**30
"""The default limit for states in memory, in bytes."""

_MAX_SMALL_FILES = 100


class StateStore:
    """Stores the states of one run: recently trained clients in memory, the others on disk."""

    def __init__(self, folder: Path | None = None, memory: int = MEMORY) -> None:
        self.folder = StateFolder(folder)
        self._memory = memory
        self._recent: OrderedDict[int, StateRecord] = OrderedDict()
        self._nbytes = 0
        self._kept: frozenset[str] = frozenset()

    def add(self, records: Mapping[int, StateRecord]) -> None:
        """Add the newest states of clients; move the oldest to disk if the memory is exceeded."""
        for client, record in records.items():
            old = self._recent.pop(client, None)
            self._nbytes += record.nbytes - (0 if old is None else old.nbytes)
            self._recent[client] = record
        if self._nbytes > self._memory:
            self._spill()

    def tidy(self, kept: Iterable[str]) -> None:
        """Remove unused files; from now on, files of checkpoints are kept by name."""
        self._kept = frozenset(kept)
        self.folder.tidy(self._kept)

    def _spill(self) -> None:
        """Move the states of the least recently trained clients to disk, down to 3/4 of the limit.

        Moving only as many as necessary would create many small files.
        """
        moved = []
        while self._recent and self._nbytes > self._memory * 3 // 4:
            _, record = self._recent.popitem(last=False)
            self._nbytes -= record.nbytes
            moved.append(record)
        self.folder.write(record for record in moved if record.file is None)
        for record in moved:
            record.tensors = None
        self.folder.tidy(self._kept)


class ClientStates(Mapping[int, Tensors]):
    """The states of all clients at one moment; clients without a state are not included."""

    def __init__(
        self, store: StateStore | None = None, records: IntMap[StateRecord] | None = None
    ) -> None:
        self._store = StateStore() if store is None else store
        self._records = IntMap[StateRecord]() if records is None else records

    def __getitem__(self, client: int) -> Tensors:
        return self._records[client].load()

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[int]:
        return iter(self._records)

    def updated(self, changes: Mapping[int, Tensors]) -> "ClientStates":
        """Return the states with those of some clients replaced."""
        if not changes:
            return self
        records = {client: StateRecord(client, state) for client, state in changes.items()}
        self._store.add(records)
        return ClientStates(self._store, self._records.updated(records))

    def in_store(self, store: StateStore) -> "ClientStates":
        """Return these states in a store: unchanged, or copied if they are in another store."""
        return self if store is self._store else ClientStates(store).updated(dict(self))

    def on_disk(self) -> dict[StateFile, list[StateRecord]]:
        """Write the states that are only in memory, and return all records by their file.

        Files in which few states are current are merged into new files.
        """
        records = list(self._records.values())
        stale = _worth_rewriting(_by_file(record for record in records if record.file))
        self._store.folder.write(
            record for record in records if record.file is None or record.file in stale
        )
        return _by_file(records)

    @classmethod
    def from_disk(cls, store: StateStore, records: Iterable[StateRecord]) -> "ClientStates":
        """Return states that are in files; each is read on access."""
        return cls(store, IntMap[StateRecord]().updated({each.client: each for each in records}))


def _by_file(records: Iterable[StateRecord]) -> dict[StateFile, list[StateRecord]]:
    files: dict[StateFile, list[StateRecord]] = defaultdict(list)
    for record in records:
        assert record.file is not None
        files[record.file].append(record)
    return dict(files)


def _worth_rewriting(files: Mapping[StateFile, list[StateRecord]]) -> set[StateFile]:
    """Return files with mostly outdated states, and the small files if there are many."""
    stale = {file for file, records in files.items() if 2 * len(records) < file.clients}
    small = {
        file
        for file, records in files.items()
        if not is_full(2 * len(records), 2 * sum(record.nbytes for record in records))
    }
    return stale | small if len(small) > _MAX_SMALL_FILES else stale
