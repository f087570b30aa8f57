"""The federation: every client's samples in one columnar store; a client is a slice of it.

Features, labels and client offsets are three plain arrays, in memory or memory-mapped from a
folder of ``.npy`` files. Looking at a client copies nothing, so a million small clients cost
little more than their bytes.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.errors import UnskewError
from unskew.rng import generator

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from unskew.skew.report import SkewReport

Array = NDArray[Any]
FORMAT = 1


@dataclass(frozen=True, eq=False)
class Columns:
    """Samples of many clients, one client after the other.

    ``x`` holds features as the data has them (``uint8`` images as samples x channels x height x
    width, ``float32`` features, ``int32`` tokens), ``y`` integer labels. Client k owns the rows
    ``offsets[k]:offsets[k + 1]``.
    """

    x: Array
    y: Array
    offsets: NDArray[np.int64]

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise UnskewError(
                f"x and y must have one row a sample: x has {len(self.x)}, y has {len(self.y)}"
            )
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.y):
            raise UnskewError("offsets must run from 0 to the number of samples")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def samples(self) -> int:
        """How many samples all clients hold together."""
        return len(self.y)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """How many samples each client holds."""
        return np.diff(self.offsets)

    def client(self, k: int) -> tuple[Array, Array]:
        """Return client k's features and labels, as views."""
        rows = slice(self.offsets[k], self.offsets[k + 1])
        return self.x[rows], self.y[rows]

    def owners(self) -> NDArray[np.int64]:
        """Return the client of each sample."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def label_counts(self, classes: int) -> NDArray[np.int64]:
        """Count labels: one row a client, one column a class."""
        cells = self.owners() * classes + self.y
        return np.bincount(cells, minlength=len(self) * classes).reshape(len(self), classes)

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays."""
        return self.x.nbytes + self.y.nbytes + self.offsets.nbytes

    @staticmethod
    def grouped(x: Array, y: Array, client: NDArray[np.int64], clients: int) -> "Columns":
        """Lay samples out client by client; samples already in that order are not copied."""
        if len(client) and np.any(client[1:] < client[:-1]):
            order = np.argsort(client, kind="stable")
            x, y = x[order], y[order]
        counts = np.bincount(client, minlength=clients)
        return Columns(x, y, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    @staticmethod
    def gathered(x: Array, y: Array, parts: Sequence[NDArray[np.int64]]) -> "Columns":
        """Gather the rows ``parts[k]`` of x and y for each client k."""
        rows = np.concatenate([*parts, np.empty(0, np.int64)]).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        return Columns(x[rows], y[rows], offsets.astype(np.int64))

    @staticmethod
    def empty_like(other: "Columns") -> "Columns":
        """Return a store with the same clients and no samples."""
        return Columns(other.x[:0], other.y[:0], np.zeros(len(other) + 1, np.int64))


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients and their data.

    ``train`` and ``test`` hold each client's own samples (``test`` may be empty), ``common`` is
    the test set that belongs to nobody; it is stored as one "client".
    """

    train: Columns
    test: Columns
    common: Columns
    classes: int
    name: str = "custom"
    client_names: Array | None = None
    class_names: tuple[str, ...] | None = None
    vocabulary: tuple[str, ...] | None = None
    report: "SkewReport | None" = field(default=None)

    def __len__(self) -> int:
        return len(self.train)

    def __repr__(self) -> str:
        return (
            f"Federation({self.name!r}, clients={len(self)}, train={self.train.samples}, "
            f"test={self.test.samples}, common={self.common.samples}, "
            f"shape={self.shape}, classes={self.classes})"
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample's features."""
        return tuple(self.train.x.shape[1:])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        return self.train.nbytes + self.test.nbytes + self.common.nbytes

    @cached_property
    def fingerprint(self) -> str:
        """A hash of every sample and of who holds it: two federations that train alike share it."""
        digest = hashlib.sha256(str(self.classes).encode())
        for part in (self.train, self.test, self.common):
            for array in (part.x, part.y, part.offsets):
                digest.update(f"{array.dtype.str}{array.shape}".encode())
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:32]

    @classmethod
    def from_arrays(
        cls,
        x: ArrayLike,
        y: ArrayLike,
        client: ArrayLike | None = None,
        *,
        common: tuple[ArrayLike, ArrayLike] | None = None,
        holdout: float = 0.0,
        seed: int = 0,
        classes: int | None = None,
        name: str = "custom",
    ) -> "Federation":
        """Build a federation from features, integer labels and the client of each sample.

        ``client`` may be any array of ids, numbers or names; without it everybody's data belongs
        to one client. ``holdout`` is the share of each client's samples kept back as its own
        test; ``common`` is a pair (x, y) of test samples that belong to nobody.
        """
        features, labels = np.asarray(x), _labels(y, "y")
        names, owner = _owners(client, len(labels))
        if len(features) != len(labels) or len(owner) != len(labels):
            raise UnskewError(
                "x, y and client must have one row a sample: "
                f"{len(features)}, {len(labels)} and {len(owner)}"
            )
        clients = len(names) if names is not None else int(owner.max(initial=-1)) + 1
        train = Columns.grouped(_features(features), labels, owner, clients)
        shared = Columns.empty_like(_one(train))
        if common is not None:
            shared = _one_client(_features(np.asarray(common[0])), _labels(common[1], "common[1]"))
        if shared.x.shape[1:] != train.x.shape[1:]:
            raise UnskewError(
                f"common: samples have shape {shared.x.shape[1:]}, those in x {train.x.shape[1:]}"
            )
        top = 1 + max(int(part.y.max(initial=-1)) for part in (train, shared))
        if classes is not None and classes < top:
            raise UnskewError(f"classes must be at least {top}: the labels run up to {top - 1}")
        federation = cls(
            train=train,
            test=Columns.empty_like(train),
            common=shared,
            classes=classes or top,
            name=name,
            client_names=names,
        )
        return federation.held_out(holdout, seed) if holdout else federation

    @classmethod
    def from_dataset(
        cls, dataset: "Dataset[Any]", client: ArrayLike | None = None, **options: Any
    ) -> "Federation":
        """Build a federation from a torch ``Dataset`` of (features, label) pairs.

        ``options`` are those of :meth:`from_arrays`.
        """
        pairs = [dataset[i] for i in range(len(dataset))]  # type: ignore[arg-type]
        x = np.stack([np.asarray(features) for features, _ in pairs])
        return cls.from_arrays(x, np.array([int(label) for _, label in pairs]), client, **options)

    def held_out(self, share: float, seed: int = 0) -> "Federation":
        """Keep ``share`` of each client's training samples back as its own test.

        The number kept back is rounded down, so that the smallest client still trains.
        """
        if not 0 <= share < 1:
            raise UnskewError(f"holdout must be at least 0 and less than 1 (got {share})")
        sizes, owners = self.train.sizes, self.train.owners()
        # Sorting by (client, random key) shuffles all clients at once; the first few go to test.
        order = np.lexsort((generator(seed, "holdout").random(len(owners)), owners))
        rank = np.empty(len(owners), np.int64)
        rank[order] = np.arange(len(owners)) - np.repeat(self.train.offsets[:-1], sizes)
        is_test = rank < np.floor(sizes * share)[owners]
        parts = {
            name: Columns.grouped(self.train.x[rows], self.train.y[rows], owners[rows], len(self))
            for name, rows in (("train", ~is_test), ("test", is_test))
        }
        return replace(self, train=parts["train"], test=parts["test"])

    def save(self, folder: str | Path) -> Path:
        """Write the federation to a folder of ``.npy`` files that :meth:`open` can map."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, part in (("train", self.train), ("test", self.test), ("common", self.common)):
            np.save(folder / f"{name}_x.npy", part.x, allow_pickle=False)
            np.save(folder / f"{name}_y.npy", part.y, allow_pickle=False)
            np.save(folder / f"{name}_offsets.npy", part.offsets, allow_pickle=False)
        if self.client_names is not None:
            np.save(folder / "client_names.npy", self.client_names, allow_pickle=False)
        facts = {
            "format": FORMAT,
            "name": self.name,
            "classes": self.classes,
            "class_names": self.class_names,
            "vocabulary": self.vocabulary,
            "report": self.report.to_dict() if self.report else None,
        }
        (folder / "federation.json").write_text(json.dumps(facts))
        return folder

    @classmethod
    def open(cls, folder: str | Path, *, mmap: bool = True) -> "Federation":
        """Open a saved federation; with ``mmap`` samples are read from disk only when used."""
        from unskew.skew.report import SkewReport  # noqa: PLC0415 (skew imports data)

        folder = Path(folder)
        if not (folder / "federation.json").is_file():
            raise UnskewError(f"{folder}: no saved federation there (no federation.json)")
        facts = json.loads((folder / "federation.json").read_text())
        if facts["format"] != FORMAT:
            raise UnskewError(f"{folder}: format {facts['format']} is not known; {FORMAT} is")

        def column(name: str) -> Array:
            array: Array = np.load(
                folder / f"{name}.npy", mmap_mode="r" if mmap else None, allow_pickle=False
            )
            return array

        parts = {
            name: Columns(column(f"{name}_x"), column(f"{name}_y"), column(f"{name}_offsets"))
            for name in ("train", "test", "common")
        }
        named = (folder / "client_names.npy").is_file()
        return cls(
            **parts,
            classes=facts["classes"],
            name=facts["name"],
            client_names=column("client_names") if named else None,
            class_names=_strings(facts["class_names"]),
            vocabulary=_strings(facts["vocabulary"]),
            report=SkewReport.from_dict(facts["report"]) if facts["report"] else None,
        )


def _features(x: Array) -> Array:
    """Keep compact types as they are; other numbers become float32, the type of the networks."""
    if x.dtype in (np.uint8, np.float32, np.int32):
        return x
    if x.dtype.kind in "fiub":
        return x.astype(np.float32)
    raise UnskewError(f"x must hold numbers, not {x.dtype}; turn text into tokens first")


def _labels(y: ArrayLike, field_name: str) -> Array:
    labels = np.asarray(y)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise UnskewError(
            f"{field_name} must be one integer label a sample "
            f"(got {labels.dtype} of shape {labels.shape})"
        )
    if labels.size and labels.min() < 0:
        raise UnskewError(f"{field_name} must hold labels from 0 up (got {labels.min()})")
    return labels


def _owners(client: ArrayLike | None, samples: int) -> tuple[Array | None, NDArray[np.int64]]:
    """Number the clients from 0; names are kept only where they are not those numbers."""
    if client is None:
        return None, np.zeros(samples, np.int64)
    ids = np.asarray(client)
    if ids.ndim != 1:
        raise UnskewError(f"client must be one id a sample (got shape {ids.shape})")
    if ids.dtype.kind in "iu" and len(ids) and np.all(ids[1:] >= ids[:-1]) and ids[0] == 0:
        steps = np.diff(ids)
        if np.all(steps <= 1):  # already 0, 0, 1, 1, 1, 2 …: sorted and without gaps
            return None, ids
    names, owner = np.unique(ids, return_inverse=True)
    if names.dtype.kind in "iu" and np.array_equal(names, np.arange(len(names))):
        return None, owner
    if names.dtype.kind == "O":
        names = names.astype(str)
    return names, owner


def _one_client(x: Array, y: Array) -> Columns:
    return Columns(x, y, np.array([0, len(y)], np.int64))


def _one(columns: Columns) -> Columns:
    return _one_client(columns.x, columns.y)


def _strings(values: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)
