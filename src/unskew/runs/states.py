"""What clients keep between rounds: in memory up to a limit, on disk beyond it.

:class:`States` is a value: a round makes a new one that shares all but the cohort's states with
the old. So a run stopped at any moment still has the states of its last whole round, a round costs
what its cohort keeps, and a checkpoint writes only what changed since the one before.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from unskew.methods.common.base import Tensors
from unskew.runs.intmap import IntMap
from unskew.runs.state_files import StateFile, StateFolder, StateRecord, is_full

MEMORY = 2**30
"""Bytes of states that stay in memory unless the run says otherwise."""

_MOST_SMALL_FILES = 100


class StateStore:
    """Where the states of one run are: those that trained last in memory, the others on disk."""

    def __init__(self, folder: Path | None = None, memory: int = MEMORY) -> None:
        self.folder = StateFolder(folder)
        self._memory = memory
        self._recent: OrderedDict[int, StateRecord] = OrderedDict()
        self._nbytes = 0
        self._wanted: frozenset[str] = frozenset()

    def remember(self, records: Mapping[int, StateRecord]) -> None:
        """Take the newest states of some clients in; move the oldest out if they are too many."""
        for client, record in records.items():
            old = self._recent.pop(client, None)
            self._nbytes += record.nbytes - (0 if old is None else old.nbytes)
            self._recent[client] = record
        if self._nbytes > self._memory:
            self._spill()

    def tidy(self, wanted: Iterable[str]) -> None:
        """Remove files that nobody needs; checkpoints want theirs by name from now on."""
        self._wanted = frozenset(wanted)
        self.folder.tidy(self._wanted)

    def _spill(self) -> None:
        """Move out the states of those who trained longest ago: a quarter more than needed.

        Moving a few clients at a time would make a small file of each.
        """
        leaving = []
        while self._recent and self._nbytes > self._memory * 3 // 4:
            _, record = self._recent.popitem(last=False)
            self._nbytes -= record.nbytes
            leaving.append(record)
        self.folder.write(record for record in leaving if record.file is None)
        for record in leaving:
            record.tensors = None
        self.folder.tidy(self._wanted)


class ClientStates(Mapping[int, Tensors]):
    """The states of all clients at one moment; a client without any is not in it."""

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
        """Return the states after some clients changed theirs."""
        if not changes:
            return self
        records = {client: StateRecord(client, state) for client, state in changes.items()}
        self._store.remember(records)
        return ClientStates(self._store, self._records.updated(records))

    def held_by(self, store: StateStore) -> "ClientStates":
        """Return these states in a store: themselves, or a copy if they are in another one."""
        return self if store is self._store else ClientStates(store).updated(dict(self))

    def on_disk(self) -> dict[StateFile, list[StateRecord]]:
        """Write down what is in memory alone, and return all records by the file they are in.

        Files with few states that are still anybody's are written anew, together.
        """
        records = list(self._records.values())
        stale = _worth_rewriting(_by_file(record for record in records if record.file))
        self._store.folder.write(
            record for record in records if record.file is None or record.file in stale
        )
        return _by_file(records)

    @classmethod
    def from_disk(cls, store: StateStore, records: Iterable[StateRecord]) -> "ClientStates":
        """Return states that are in files; each is read when it is used."""
        return cls(store, IntMap[StateRecord]().updated({each.client: each for each in records}))


def _by_file(records: Iterable[StateRecord]) -> dict[StateFile, list[StateRecord]]:
    files: dict[StateFile, list[StateRecord]] = defaultdict(list)
    for record in records:
        assert record.file is not None
        files[record.file].append(record)
    return dict(files)


def _worth_rewriting(files: Mapping[StateFile, list[StateRecord]]) -> set[StateFile]:
    """Name the files of which most is out of date, and the small ones if they are many."""
    stale = {file for file, records in files.items() if 2 * len(records) < file.clients}
    small = {
        file
        for file, records in files.items()
        if not is_full(2 * len(records), 2 * sum(record.nbytes for record in records))
    }
    return stale | small if len(small) > _MOST_SMALL_FILES else stale
