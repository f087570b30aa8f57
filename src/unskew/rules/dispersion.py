"""Which coordinates of a tensor differ much between clients, and how far each client is off.

The first half of FedSA: the coefficient of variation of each coordinate, the high-dispersion
region, and the micro-classes (MIC) of the clients in it. Deviations are divided by the largest of
their column before they are squared, so no scale of the models can overflow or vanish.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from unskew.rules.blocks import column_blocks, take_columns

CvScale = Literal["minmax", "rank", "clip99"]
Bins = Literal["column", "layer", "raw"]

ROUNDING = 4 * torch.finfo(torch.float32).eps
"""A coefficient of variation below this is rounding: the clients agree."""

NEAR_ZERO = 1e-8
"""Means below this share of the tensor's root mean square do not raise dispersion further."""

BOUNDARY = 1e-5
"""Deviations that exceed a class boundary by less than this, in classes, are on the boundary."""


@dataclass(frozen=True, eq=False)
class Dispersion:
    """One tensor's deviations, a value a coordinate: the largest, and the coefficient of variation.

    The largest is never zero, so that one can divide by it.
    """

    largest: Tensor
    variation: Tensor


def measure(rows: Tensor, mean: Tensor) -> Dispersion:
    """Measure the dispersion of clients x coordinates around the given mean."""
    largest, spread = torch.empty_like(mean), torch.empty_like(mean)
    even = rows.new_full((len(rows),), 1 / len(rows))
    for columns in column_blocks(*rows.shape):
        deviation = (rows[:, columns] - mean[columns]).abs_()
        peak = deviation.amax(0).clamp_(min=torch.finfo(rows.dtype).tiny)
        largest[columns] = peak
        spread[columns] = (even @ deviation.div_(peak).square_()).sqrt_().mul_(peak)
    floor = NEAR_ZERO * _root_mean_square(mean, spread)
    variation = spread.div_(mean.abs().add_(floor))
    # All zeros give 0/0, which is no dispersion either.
    return Dispersion(largest, torch.where(variation > ROUNDING, variation, 0.0))


def high_columns(variation: Tensor, scale: CvScale, threshold: float) -> Tensor:
    """Return the places of the coordinates whose scaled variation exceeds the threshold.

    "minmax" scales the tensor's variations to [0, 1]; "clip99" does so with the 99th percentile
    as the top, so that a few means near zero do not hide all others; "rank" takes the share of
    coordinates with a smaller variation.
    """
    nothing = torch.empty(0, dtype=torch.int64, device=variation.device)
    if threshold >= 1 or variation.numel() == 0:
        return nothing
    if scale == "rank":
        return (variation > _quantile(variation, threshold)).nonzero().squeeze(1)
    low = variation.min()
    top = variation.max() if scale == "minmax" else _quantile(variation, 0.99)
    if not bool(top > low):
        return nothing
    return ((variation - low) / (top - low) > threshold).nonzero().squeeze(1)


def micro_classes(
    rows: Tensor, mean: Tensor, largest: Tensor, places: Tensor, classes: int, bins: Bins
) -> Tensor:
    """Return the class 1..C of each squared deviation at some places, as bytes: clients x places.

    "column" cuts [0, largest square of the coordinate] into C equal bins, "layer" [0, largest
    square of the tensor], "raw" [0, 1] as the paper prints it. What lies beyond is in class C.
    """
    found = torch.empty(len(rows), len(places), dtype=torch.uint8, device=rows.device)
    width = classes**-0.5
    top = largest.amax() if bins == "layer" and len(largest) else largest.new_ones(())
    for block in column_blocks(*found.shape):
        columns = places[block]
        deviation = take_columns(rows, columns).sub_(mean[columns])
        deviation.div_((largest[columns] if bins == "column" else top) * width).square_()
        found[:, block] = deviation.sub_(BOUNDARY).ceil_().clamp_(1, classes)
    return found


def _root_mean_square(mean: Tensor, spread: Tensor) -> Tensor:
    """Return the root mean square of all clients' values, from their means and deviations."""
    both = torch.stack([_norm(mean), _norm(spread)])
    size = max(1, mean.numel())
    return _norm(both).div(size**0.5).to(mean.dtype)


def _norm(values: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(values, dtype=torch.float64)
    return length


def _quantile(values: Tensor, share: float) -> Tensor:
    """Return the value that this share of the others does not exceed."""
    place = int(share * (values.numel() - 1))
    return values.kthvalue(place + 1).values
