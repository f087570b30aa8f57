"""Features on unlike scales: columns among each other, and a client among the others."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unskew.data.preprocessing.transform import OTHER
from unskew.data.quality.findings import Finding, Severity
from unskew.data.quality.naming import client_name, column_name, listed
from unskew.data.quality.sampled import Floats, SampledFeatures

if TYPE_CHECKING:
    from unskew.data.federation import Federation

UNLIKE = 100.0
"""Columns are on unlike scales if the range of one is this many times that of another."""

LARGE = 50.0
"""Values above this are large for a network, whose weights are made for values of about 1."""

_FAR = 4.0
"""A client is on another scale if its mean is this many standard deviations from the others'."""

_WIDE = 10.0
"""Or if its standard deviation is this many times theirs, or this part of theirs."""

_MIN_FOR_MEAN, _MIN_FOR_DEVIATION = 5, 20
"""The samples a client needs for its mean, and for its standard deviation, to be compared."""

_MAX_CLIENTS, _MAX_COLUMNS = 10, 10
"""How many suspicious clients, and columns of each, are examined."""

_FAR_FROM_ZERO = 5.0
"""Pixels are far from zero if their mean is more than this many standard deviations."""

Indices = NDArray[np.int64]


def scale_findings(
    federation: "Federation", sample: SampledFeatures, doubtful: Severity
) -> Iterator[Finding]:
    """Yield findings about the scales of features that are numbers, not bytes or tokens.

    ``doubtful`` is the severity of what a partitioner may have caused on purpose.
    """
    low, high = sample.values.min(axis=0), sample.values.max(axis=0)
    if len(federation.shape) == 1:
        yield from _constant_columns(federation, np.flatnonzero(low == high))
    ranges = high - low
    varied = np.flatnonzero(ranges > 0)
    largest = float(max(abs(low.min()), abs(high.max())))
    if len(varied) and ranges[varied].max() > UNLIKE * ranges[varied].min():
        wide, narrow = varied[ranges[varied].argmax()], varied[ranges[varied].argmin()]
        yield Finding(
            "warning",
            "columns",
            f"are on unlike scales: {column_name(federation, int(wide))} spans {ranges[wide]:.3g}, "
            f"{column_name(federation, int(narrow))} spans {ranges[narrow]:.3g}",
            f"{_scaling(federation)}, or the network may learn nothing",
        )
    elif largest > LARGE:
        is_table = len(federation.shape) == 1
        column = int(np.maximum(np.abs(low), np.abs(high)).argmax())
        yield Finding(
            "warning",
            column_name(federation, column) if is_table else "x",
            f"has values up to {largest:.3g}",
            "scale it to about 1, or the network may learn nothing"
            if is_table
            else "divide pixels by 255, or pass them as uint8",
        )
    yield from _clients_on_other_scales(federation, sample, doubtful)


def pixel_findings(sample: SampledFeatures) -> Iterator[Finding]:
    """Yield a warning if images are nearly white, as dark characters on a white background are.

    The first layer then sees a large constant and small differences, so that steps which are small
    enough for the constant hardly learn from the differences.
    """
    mean, deviation = float(sample.values.mean()), float(sample.values.std())
    if abs(mean) > _FAR_FROM_ZERO * deviation > 0:
        white = 255 if sample.values.max() > 1 else 1
        yield Finding(
            "warning",
            "x",
            f"has pixels of {mean:.3g} with a standard deviation of {deviation:.3g}: networks "
            "without normalisation learn slowly from them",
            f"invert the images ({white} - x) if their background is light, or subtract the mean",
        )


def _scaling(federation: "Federation") -> str:
    """Return how the columns of a federation can be brought to the same scale."""
    if federation.preprocessing is not None:
        return "use --prepare federated, which scales by standard deviations, or give ranges"
    return "scale them, for instance to mean 0 and standard deviation 1 (--prepare federated)"


def _constant_columns(federation: "Federation", candidates: Indices) -> Iterator[Finding]:
    """Yield a note if columns have one value, also in the samples that were not read so far."""
    x = federation.train.x
    features = federation.feature_names if federation.preprocessing is not None else None
    constant = [
        int(c)
        for c in candidates
        # No training sample has another category: the feature is for samples to come.
        if not (features and features[c].endswith(OTHER)) and bool((x[:, c] == x[0, c]).all())
    ]
    if constant:
        names = listed(column_name(federation, column) for column in constant)
        yield Finding(
            "note", names, "has the same value in all training samples", "remove it: nothing can "
            "be learnt from it",
        )  # fmt: skip


def _clients_on_other_scales(
    federation: "Federation", sample: SampledFeatures, doubtful: Severity
) -> Iterator[Finding]:
    if len(sample.clients) < 2:
        return
    pairs = _suspects(sample)
    for index in np.unique(pairs[:, 0])[:_MAX_CLIENTS]:
        columns = pairs[pairs[:, 0] == index, 1][:_MAX_COLUMNS]
        found = (_difference(federation, sample, int(index), int(each)) for each in columns)
        if texts := [text for text in found if text]:
            yield Finding(
                doubtful,
                client_name(federation, int(sample.clients[index])),
                f"is on another scale than the other clients: {listed(texts)}",
                "check its units and how its values were prepared",
            )


def _suspects(sample: SampledFeatures) -> Indices:
    """Return pairs of a client and a column that are far from those of most clients."""
    means, deviations = sample.moments()
    counts = np.diff(sample.offsets)[:, None]
    center, typical = np.median(means, axis=0), np.median(deviations, axis=0)
    between = np.zeros_like(center)
    if len(means) > 2:  # the deviation from the middle of two clients says nothing about either
        between = 1.4826 * np.median(np.abs(means - center), axis=0)
    spread = np.hypot(typical, between)
    with np.errstate(divide="ignore", invalid="ignore"):
        far = (np.abs(means - center) > _FAR * spread) & (counts >= _MIN_FOR_MEAN)
        ratio = deviations / typical
        wide = (
            ((ratio > _WIDE) | (ratio < 1 / _WIDE))
            & (deviations > 0)
            & (counts >= _MIN_FOR_DEVIATION)
        )
    return np.argwhere((far | wide) & (typical > 0))


def _difference(federation: "Federation", sample: SampledFeatures, index: int, column: int) -> str:
    """Describe how a client's column differs, or return nothing if outliers alone caused it.

    The middle four fifths of its values must lie outside those of the others, or differ in width
    by half of what raised the suspicion.
    """
    own = sample.client(index)[:, column]
    values, rows = sample.values[:, column], slice(*sample.offsets[index : index + 2])
    others = np.concatenate([values[: rows.start], values[rows.stop :]])
    first, middle, last = np.quantile(own, [0.1, 0.5, 0.9])
    low, median, high = np.quantile(others, [0.1, 0.5, 0.9])
    apart = first > high or last < low
    own_width, width = last - first, high - low
    stretched = min(own_width, width) > 0 and not (
        2 / _WIDE < own_width / width < _WIDE / 2  # half of the ratio of standard deviations
    )
    if not apart and not stretched:
        return ""
    what = column_name(federation, column) if len(federation.shape) == 1 else "its values"
    return (
        f"{what} is mostly {_interval(first, last)}, on the others {_interval(low, high)}"
        f"{_factor(middle, median)}"
    )


def _interval(low: float, high: float) -> str:
    return f"{low:.3g} to {high:.3g}"


def _factor(own: float, others: float) -> str:
    """Return the ratio of two medians, which may point to a unit."""
    if own * others <= 0:
        return ""
    ratio = own / others
    return f" ({ratio:.3g} times)" if ratio >= 1 else f" (1/{1 / ratio:.3g})"


def is_scalable(x: Floats | NDArray[np.generic]) -> bool:
    """Return whether features are quantities: not bytes, which are scaled, and not tokens."""
    return x.dtype.kind == "f"
