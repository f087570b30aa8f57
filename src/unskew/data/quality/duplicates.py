"""Test samples that are training samples too."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unskew.data.columns import Array
from unskew.data.quality.findings import Finding
from unskew.utils.rng import generator
from unskew.utils.wording import plural

if TYPE_CHECKING:
    from unskew.data.federation import Federation

_BLOCK_BYTES = 2**22
"""Blocks that fit into a processor's cache are hashed fastest."""

_WORTH_A_WARNING = 0.01
"""The share of the test samples above which more than two duplicates are a warning, not a note."""

Hashes = NDArray[np.uint64]


def duplicate_findings(federation: "Federation") -> Iterator[Finding]:
    """Yield a finding for each test set that has more training samples than chance explains.

    Features with few values, such as sex and age group, are equal for many samples. So duplicates
    are expected as often as a training sample is equal to another one.
    """
    tests = {"test": federation.test, "common": federation.common}
    if not any(part.samples for part in tests.values()):
        return
    train = np.sort(row_hashes(federation.train.x))
    again = train[1:] == train[:-1]
    expected = float((np.r_[again, False] | np.r_[False, again]).mean())
    for name, part in tests.items():
        if not part.samples:
            continue
        hashes = np.sort(row_hashes(part.x))  # in order, they are found several times faster
        places = np.minimum(np.searchsorted(train, hashes), len(train) - 1)
        shared = int((train[places] == hashes).sum())
        by_chance = expected * part.samples
        excess = shared - by_chance
        if excess < max(1.0, 3 * np.sqrt(by_chance * (1 - expected))):
            continue
        yield Finding(
            "warning" if excess > max(2, _WORTH_A_WARNING * part.samples) else "note",
            "common test" if name == "common" else "test",
            f"{shared:,} of {plural(part.samples, 'sample')} have the same features as a training "
            "sample",
            "remove duplicates before dividing data into training and test samples, or the metrics "
            "are too good",
        )


def row_hashes(x: Array) -> Hashes:
    """Return a hash of 64 bits for each row; rows with the same bytes have the same one."""
    flat = np.ascontiguousarray(x).reshape(len(x), -1)
    width = flat.shape[1] * flat.dtype.itemsize
    words = -(-width // 8)
    # Fixed factors: a hash depends on the row alone. The first belongs to the bytes at the end.
    factors = generator(0, "row-hash").integers(0, 2**63, words, np.uint64) * 2 + 1
    hashes = np.empty(len(flat), np.uint64)
    rows = max(1, _BLOCK_BYTES // max(1, width))
    for start in range(0, len(flat), rows):
        block = flat[start : start + rows]
        hashes[start : start + rows] = _mixed(_as_words(block, words)) @ factors
    return hashes


def _as_words(block: NDArray[Any], words: int) -> Hashes:
    """Return rows as 8-byte words, padded with zeros."""
    data = block.view(np.uint8)
    if data.shape[1] != 8 * words:
        padded = np.zeros((len(data), 8 * words), np.uint8)
        padded[:, : data.shape[1]] = data
        data = padded
    return data.view(np.uint64)


def _mixed(words: Hashes) -> Hashes:
    """Move high bits down: products keep the trailing zeros that small floats have in common."""
    mixed: Hashes = words ^ (words >> np.uint64(23)) ^ (words >> np.uint64(41))
    return mixed
