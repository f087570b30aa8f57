"""From a source, a table or a folder to a federation: read, partition, hold out test sets."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from unskew.data.catalogue import CATALOGUE
from unskew.data.columns import Array, Columns
from unskew.data.config import DataConfig
from unskew.data.federation import Federation
from unskew.data.open_npz import is_source, npz_federation, npz_source, read_arrays
from unskew.data.preprocessing.spec import TEXT_LENGTH, VOCABULARY_SIZE
from unskew.data.read_once import read_once
from unskew.data.sources import Source, source
from unskew.data.storage import is_saved
from unskew.data.table_sources import HOLDOUT, open_table_source
from unskew.data.targets import BINS, BINS_NOTE, in_bins
from unskew.errors import UnskewError
from unskew.partition.base import Indices, Partition, Partitioner, SamplePool
from unskew.partition.feature_noise import unit_interval
from unskew.partition.natural import assign_by_group
from unskew.partition.registry import parse_partitioner, partitioner_spec
from unskew.partition.report import PartitionReport
from unskew.utils.rng import generator

Pool = Literal["train", "all"]
Common = Literal["source", "union"]

_DEFAULTS = {"pool": "train", "common": "source"}
"""The defaults of the options that have one other than None."""

_SOURCE_OPTIONS = ("skew", "clients", "samples", "pool", "common")
_TABLE_OPTIONS = ("label_column", "client_column", "features", "task", "prepare", "columns")
"""Options that have no effect on other kinds of data."""


def depends_on_seed(config: DataConfig) -> bool:
    """Return whether the seed decides which client has which samples, or which are test samples.

    It does not for a folder or table that names its clients if nothing is held out.
    """
    path = Path(config.name)
    if config.name in CATALOGUE or not path.exists() or config.holdout:
        return True
    return path.suffix == ".npz" and is_source(read_arrays(path))


def open_data(config: DataConfig, seed: int) -> Federation:
    """Open a source by name, or the folder or table at a path, which defines its clients."""
    path = Path(config.name)
    if not path.exists() and _looks_like_a_path(config.name):
        raise UnskewError(f"{config.name}: no such file or folder")
    if config.name in CATALOGUE or not path.exists():
        if config.name in CATALOGUE and CATALOGUE[config.name].table is not None:
            return _open_table(config, seed)
        if config.name in CATALOGUE:
            _reject(
                config, "is a source with a fixed shape and fixed labels", (*_TABLE_OPTIONS, "size")
            )
        return load(
            config.name,
            config.skew,
            config.clients,
            seed,
            holdout=config.holdout,
            pool=config.pool,
            common=config.common,
            samples=config.samples,
        )
    if path.suffix == ".npz" and path.is_file():
        return _open_npz(config, path, seed)
    _reject(config, "defines its own clients", _SOURCE_OPTIONS)
    holdout = config.holdout or 0.0
    if path.is_dir() and is_saved(path):
        _reject(config, "is a saved federation", (*_TABLE_OPTIONS, "size"))
        saved = Federation.open(path)
        return saved.held_out(holdout, seed) if holdout else saved
    if path.is_dir():
        _reject(config, "is a folder of images", _TABLE_OPTIONS)
        return Federation.from_folder(path, size=config.size, holdout=holdout, seed=seed)
    _reject(config, "is not a folder of images", ("size",))
    return Federation.from_table(
        path,
        label=config.label_column,
        client=config.client_column,
        features=config.features,
        prepare=config.prepare,
        columns=config.columns,
        task=config.task,
        holdout=holdout,
        seed=seed,
    )


def _open_npz(config: DataConfig, path: Path, seed: int) -> Federation:
    """Open a file of arrays: samples with their clients, or a source to be partitioned."""
    _reject(config, "is a file of arrays", (*_TABLE_OPTIONS, "size"))
    arrays = read_arrays(path)
    if not is_source(arrays):
        _reject(config, "defines its own clients", _SOURCE_OPTIONS)
        return npz_federation(path, arrays, config.holdout or 0.0, seed)
    federation = federate(
        npz_source(path, arrays),
        config.skew or ("natural" if "group_train" in arrays else "iid"),
        config.clients,
        seed,
        holdout=config.holdout,
        pool=config.pool,
        common=config.common,
        samples=config.samples,
    )
    assert federation.report is not None
    return replace(federation, report=replace(federation.report, cut=True))


def _open_table(config: DataConfig, seed: int) -> Federation:
    """Open a source that is a table; options of tables override what the catalogue says."""
    info, default = CATALOGUE[config.name], DataConfig.model_fields["label_column"].default
    _reject(config, "is a table", ("samples", "pool", "common", "size"))
    return open_table_source(
        config.name,
        info,
        seed=seed,
        holdout=config.holdout,
        skew=config.skew,
        clients=config.clients,
        label=None if config.label_column == default else config.label_column,
        client=config.client_column,
        features=config.features,
        prepare=config.prepare,
        columns=config.columns,
        task=config.task,
    )


def load(
    name: str,
    skew: str | Partitioner | None = None,
    clients: int | None = None,
    seed: int = 0,
    *,
    holdout: float | None = None,
    pool: Pool = "train",
    common: Common = "source",
    samples: int | None = None,
) -> Federation:
    """Partition a named source among clients.

    ``skew`` is a partitioner or its spec string, such as ``dirichlet:alpha=0.1``, by default
    ``iid``. A source that is a table, such as ``heart``, has clients of its own. ``holdout`` is
    the share of each client's samples that becomes its local test set, 0.2 by default. With the
    partitioner ``natural`` a client's local test set is its group's part of the source's test set,
    if there is one, and no samples are held out unless ``holdout`` is given. The common test set
    is the source's test set or, with ``common="union"``, the union of all local test sets. With
    ``pool="all"`` the source's training and test samples are merged before they are partitioned,
    as in PFLlib; the common test set is then always the union. ``samples`` limits the partition to
    that many randomly chosen samples.
    """
    info = CATALOGUE.get(name)
    if info is not None and info.table is not None:
        if (pool, common, samples) != ("train", "source", None):
            raise UnskewError(f"{name}: is a table; remove pool, common and samples")
        return open_table_source(name, info, seed=seed, holdout=holdout, skew=skew, clients=clients)
    data = read_once(lambda: source(name), ("x_test", "y_test"), "source", name)
    return federate(
        data, "iid" if skew is None else skew, clients, seed,
        holdout=holdout, pool=pool, common=common, samples=samples,
    )  # fmt: skip


def federate(
    data: Source,
    skew: str | Partitioner = "iid",
    clients: int | None = None,
    seed: int = 0,
    *,
    holdout: float | None = None,
    pool: Pool = "train",
    common: Common = "source",
    samples: int | None = None,
) -> Federation:
    """Partition a source among clients; the options are those of :func:`load`."""
    _check_choice("pool", pool, get_args(Pool))
    _check_choice("common", common, get_args(Common))
    partitioner, spec = (
        (parse_partitioner(skew), skew.strip())
        if isinstance(skew, str)
        else (skew, partitioner_spec(skew))
    )
    given = {"holdout": holdout, "pool": pool, "common": common, "samples": samples}
    options = {name: value for name, value in given.items() if value != _DEFAULTS.get(name)}
    train, test, vocabulary = _samples(data)
    merged = pool == "all"
    pooled = train.concatenated(test) if merged else train
    if samples is not None:
        pooled = pooled.subset(samples, seed)
    is_regression = pooled.y.dtype.kind == "f"
    sample_pool = (
        SamplePool(in_bins(pooled.y), BINS, pooled.group)
        if is_regression
        else SamplePool(pooled.y, data.classes, pooled.group)
    )
    count = partitioner.num_clients(sample_pool, clients)
    partition = partitioner.partition(sample_pool, count, generator(seed, "skew"))
    columns = _distorted(partitioner, pooled.columns(partition), seed, 0)
    federation = Federation(
        train=columns,
        test=Columns.empty_like(columns),
        common=_common(test, columns),
        classes=1 if is_regression else data.classes,
        name=data.name,
        client_names=_client_names(partition, data.group_names),
        class_names=None if is_regression else data.class_names,
        vocabulary=vocabulary,
        report=PartitionReport.of(
            spec, sample_pool, partition, _notes(merged, is_regression), options, seed
        ),
    )
    by_group = None if merged or holdout is not None else _tests_by_group(test, partition, seed)
    if by_group is not None:
        local = _distorted(partitioner, test.columns(by_group), seed, 1)
        federation = replace(federation, test=local)
    else:
        divided = federation.held_out(HOLDOUT if holdout is None else holdout, seed)
        federation = replace(divided, report=federation.report)
    return _with_union(federation) if merged or common == "union" else federation


@dataclass(frozen=True)
class _Samples:
    """Features, labels and natural groups of a source's training or test set."""

    x: Array
    y: Array
    group: Array | None

    def concatenated(self, other: "_Samples") -> "_Samples":
        group = None
        if self.group is not None and other.group is not None:
            group = np.concatenate([self.group, other.group])
        return _Samples(np.concatenate([self.x, other.x]), np.concatenate([self.y, other.y]), group)

    def subset(self, number: int, seed: int) -> "_Samples":
        """Return ``number`` random samples in their original order."""
        if not 1 <= number <= len(self.y):
            raise UnskewError(f"samples must be from 1 to {len(self.y)} (got {number})")
        rows = np.sort(generator(seed, "samples").permutation(len(self.y))[:number])
        group = None if self.group is None else self.group[rows]
        return _Samples(self.x[rows], self.y[rows], group)

    def columns(self, partition: Partition) -> Columns:
        rows = partition.rows
        offsets = np.concatenate([[0], np.cumsum(partition.sizes)]).astype(np.int64)
        return Columns(self.x[rows], self.y[rows], offsets)


def _samples(data: Source) -> tuple[_Samples, _Samples, tuple[str, ...] | None]:
    """Return training and test samples in the networks' layout, and the vocabulary of texts."""
    vocabulary: tuple[str, ...] | None = None
    if data.kind == "text":
        from unskew.data.text import Vocabulary  # noqa: PLC0415 (images do not need it)

        words = Vocabulary.from_texts(data.x_train, max_size=VOCABULARY_SIZE)
        x_train, x_test = (
            words.encode(x.tolist(), TEXT_LENGTH) for x in (data.x_train, data.x_test)
        )
        vocabulary = words.words
    else:
        x_train, x_test = (_channels_first(x) for x in (data.x_train, data.x_test))
    return (
        _Samples(x_train, data.y_train, data.group_train),
        _Samples(x_test, data.y_test, data.group_test),
        vocabulary,
    )


def _channels_first(images: Array) -> Array:
    """Convert samples x height x width (x channels) to samples x channels x height x width."""
    if images.ndim == 3:
        return images[:, None]
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def _distorted(partitioner: Partitioner, columns: Columns, seed: int, part: int) -> Columns:
    rng = generator(seed, "distort", part)
    x = partitioner.distort(columns.x, columns.owners(), len(columns), rng)
    return replace(columns, x=x)


def _tests_by_group(test: _Samples, partition: Partition, seed: int) -> Partition | None:
    """Give clients that are natural groups the test samples of their group, if it has any."""
    if partition.origin is None or test.group is None:
        return None
    owner = assign_by_group(partition.origin, test.group, generator(seed, "skew", 1))
    tests = Partition(owner, partition.clients)
    return tests if tests.sizes.any() else None


def _common(test: _Samples, like: Columns) -> Columns:
    """Return the source's test set in the units of the clients' samples."""
    same = test.x.dtype == like.x.dtype
    x = test.x if same else unit_interval(test.x)
    return Columns(x, test.y, np.array([0, len(test.y)], np.int64))


def _with_union(federation: Federation) -> Federation:
    test = federation.test
    if test.samples == 0:
        raise UnskewError(
            "holdout must be more than 0 if the common test set is the union of local test sets"
        )
    return replace(
        federation, common=Columns(test.x, test.y, np.array([0, test.samples], np.int64))
    )


def _client_names(partition: Partition, names: tuple[str, ...] | None) -> Array | None:
    """Name clients by their group, with a number if several come from the same group."""
    origin = partition.origin
    if origin is None:
        return None
    groups = origin.astype(str) if names is None else np.array(names)[origin]
    if len(np.unique(origin)) == len(origin):
        return groups
    numbers = _numbers_within_group(origin)
    return np.array([f"{group}/{number}" for group, number in zip(groups, numbers, strict=True)])


def _numbers_within_group(origin: Indices) -> Indices:
    """Number the clients of each group from 1 (``origin`` is sorted)."""
    return np.arange(1, len(origin) + 1) - np.searchsorted(origin, origin)


def _notes(merged: bool, is_regression: bool) -> tuple[str, ...]:
    notes = []
    if merged:
        notes.append(
            "training and test samples were merged; the local test sets form the common one"
        )
    if is_regression:
        notes.append(BINS_NOTE)
    return tuple(notes)


def _check_choice(field: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UnskewError(f"{field} must be one of {', '.join(choices)} (got {value!r})")


def _reject(config: DataConfig, reason: str, options: Sequence[str]) -> None:
    """Raise an error if one of these options, which have no effect on this data, is set."""
    fields = DataConfig.model_fields
    unused = [name for name in options if getattr(config, name) != fields[name].default]
    if unused:
        raise UnskewError(f"{config.name}: {reason}; remove {' and '.join(unused)}")


def _looks_like_a_path(name: str) -> bool:
    """Return whether a name is meant as a path: it has a separator or a suffix."""
    return len(Path(name).parts) > 1 or bool(Path(name).suffix) or name.endswith("/")
