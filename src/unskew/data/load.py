"""From a named source to a federation: read it, deal it out by a skew, keep back local tests."""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from unskew.data.federation import Columns, Federation
from unskew.data.sources import Source, source
from unskew.errors import UnskewError
from unskew.partition.base import Indices, Partition, Partitioner, SamplePool
from unskew.partition.feature_noise import unit_interval
from unskew.partition.natural import follow
from unskew.partition.registry import parse_partitioner, partitioner_spec
from unskew.partition.report import PartitionReport
from unskew.utils.rng import generator

Array = NDArray[Any]
Dealt = Literal["train", "all"]
Common = Literal["source", "union"]

HOLDOUT = 0.2
"""The share of a client's samples kept back as its own test, unless said otherwise."""

_USUAL = {"pool": "train", "common": "source"}
"""The options that have a default, and it."""

WORDS, TOKENS = 10_000, 40
"""The size of a text's vocabulary, and the number of tokens a text is cut or padded to."""


def load(
    name: str,
    skew: str | Partitioner = "iid",
    clients: int | None = None,
    seed: int = 0,
    *,
    holdout: float | None = None,
    pool: Dealt = "train",
    common: Common = "source",
    samples: int | None = None,
) -> Federation:
    """Deal a named source out to clients by a skew such as ``dirichlet:alpha=0.1``.

    ``holdout`` is the share of each client's samples kept back as its own test, 0.2 unless given.
    Under the skew ``natural`` a client's test is what the source's test set has of its group, if
    it has any, and nothing is kept back unless ``holdout`` is given. The common test is the
    source's test set or, with ``common="union"``, all local tests together. With ``pool="all"``
    the source's training and test samples are merged before they are dealt out, as PFLlib does;
    the common test is then always the union. ``samples`` deals out so many of them only, drawn at
    random.
    """
    return federate(
        source(name), skew, clients, seed,
        holdout=holdout, pool=pool, common=common, samples=samples,
    )  # fmt: skip


def federate(
    data: Source,
    skew: str | Partitioner = "iid",
    clients: int | None = None,
    seed: int = 0,
    *,
    holdout: float | None = None,
    pool: Dealt = "train",
    common: Common = "source",
    samples: int | None = None,
) -> Federation:
    """Deal a source out to clients; the options are those of :func:`load`."""
    _check_choice("pool", pool, get_args(Dealt))
    _check_choice("common", common, get_args(Common))
    recipe, spelled = (
        (parse_partitioner(skew), skew.strip())
        if isinstance(skew, str)
        else (skew, partitioner_spec(skew))
    )
    asked = {"holdout": holdout, "pool": pool, "common": common, "samples": samples}
    options = {name: value for name, value in asked.items() if value != _USUAL.get(name)}
    train, test, vocabulary = _samples(data)
    merged = pool == "all"
    dealt = train.joined(test) if merged else train
    if samples is not None:
        dealt = dealt.some(samples, seed)
    seen = SamplePool(dealt.y, data.classes, dealt.group)
    partition = recipe.deal(seen, recipe.clients(seen, clients), generator(seed, "skew"))
    columns = _distorted(recipe, dealt.columns(partition), seed, 0)
    federation = Federation(
        train=columns,
        test=Columns.empty_like(columns),
        common=_common(test, columns),
        classes=data.classes,
        name=data.name,
        client_names=_client_names(partition, data.group_names),
        class_names=data.class_names,
        vocabulary=vocabulary,
        report=PartitionReport.of(spelled, seen, partition, _notes(merged), options, seed),
    )
    own = None if merged or holdout is not None else _own_tests(test, partition, seed)
    if own is not None:
        federation = replace(federation, test=_distorted(recipe, test.columns(own), seed, 1))
    else:
        federation = federation.held_out(HOLDOUT if holdout is None else holdout, seed)
    return _with_union(federation) if merged or common == "union" else federation


@dataclass(frozen=True)
class _Samples:
    """Features, labels and natural groups of a source's training or test set."""

    x: Array
    y: Array
    group: Array | None

    def joined(self, other: "_Samples") -> "_Samples":
        group = None
        if self.group is not None and other.group is not None:
            group = np.concatenate([self.group, other.group])
        return _Samples(np.concatenate([self.x, other.x]), np.concatenate([self.y, other.y]), group)

    def some(self, number: int, seed: int) -> "_Samples":
        """Return so many of the samples, in their order."""
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
    """Return training and test samples as networks take them, and the words that tokens mean."""
    vocabulary: tuple[str, ...] | None = None
    if data.kind == "text":
        from unskew.data.text import Vocabulary  # noqa: PLC0415 (images do not need it)

        words = Vocabulary.from_texts(data.x_train, max_size=WORDS)
        x_train, x_test = (words.encode(x.tolist(), TOKENS) for x in (data.x_train, data.x_test))
        vocabulary = words.words
    else:
        x_train, x_test = (_channels_first(x) for x in (data.x_train, data.x_test))
    return (
        _Samples(x_train, data.y_train, data.group_train),
        _Samples(x_test, data.y_test, data.group_test),
        vocabulary,
    )


def _channels_first(images: Array) -> Array:
    """Turn samples x height x width (x channels) into samples x channels x height x width."""
    if images.ndim == 3:
        return images[:, None]
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def _distorted(recipe: Partitioner, columns: Columns, seed: int, part: int) -> Columns:
    rng = generator(seed, "distort", part)
    return replace(columns, x=recipe.distort(columns.x, columns.owners(), len(columns), rng))


def _own_tests(test: _Samples, partition: Partition, seed: int) -> Partition | None:
    """Give clients that are natural groups the test samples of their group, if there are any."""
    if partition.origin is None or test.group is None:
        return None
    owner = follow(partition.origin, test.group, generator(seed, "skew", 1))
    found = Partition(owner, partition.clients)
    return found if found.sizes.any() else None


def _common(test: _Samples, like: Columns) -> Columns:
    """Keep the source's test set as it is, but in the same units as the clients' samples."""
    same = test.x.dtype == like.x.dtype
    x = test.x if same else unit_interval(test.x)
    return Columns(x, test.y, np.array([0, len(test.y)], np.int64))


def _with_union(federation: Federation) -> Federation:
    test = federation.test
    if test.samples == 0:
        raise UnskewError("holdout must be more than 0 when the common test is the local tests")
    return replace(
        federation, common=Columns(test.x, test.y, np.array([0, test.samples], np.int64))
    )


def _client_names(partition: Partition, names: tuple[str, ...] | None) -> Array | None:
    """Name clients by their group, numbered where several come from the same one."""
    origin = partition.origin
    if origin is None:
        return None
    groups = origin.astype(str) if names is None else np.array(names)[origin]
    if len(np.unique(origin)) == len(origin):
        return groups
    return np.array([f"{group}/{turn}" for group, turn in zip(groups, _turns(origin), strict=True)])


def _turns(origin: Indices) -> Indices:
    """Count the clients of each group from 1 (``origin`` is sorted)."""
    return np.arange(1, len(origin) + 1) - np.searchsorted(origin, origin)


def _notes(merged: bool) -> tuple[str, ...]:
    if not merged:
        return ()
    return ("training and test samples were merged; the common test is the union of local tests",)


def _check_choice(field: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UnskewError(f"{field} must be one of {', '.join(choices)} (got {value!r})")
