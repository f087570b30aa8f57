"""The first half of FedSA: dispersion of a tensor's coordinates over clients, and micro-classes.

It computes the coefficient of variation of each coordinate, the high-dispersion region, and the
micro-classes (MIC) of the clients in it. Where squared deviations would overflow or underflow, all
of them are first divided by one power of two, which is exact.
"""

from typing import Literal

import torch
from torch import Tensor

from unskew.aggregation.blocks import column_blocks, in_threads, on_blocks, take_columns
from unskew.aggregation.distances import power_of_two, row_norms

CvScale = Literal["minmax", "rank", "clip99"]
Bins = Literal["column", "layer", "raw"]

ROUNDING = 4 * torch.finfo(torch.float32).eps
"""A coefficient of variation below this is a rounding error: the clients agree."""

NEAR_ZERO = 1e-8
"""Added to each mean, relative to the tensor's root mean square, to avoid division by zero."""

SAFE_RANGE = (1e-3, 1e15)
"""If a tensor's largest number is in this range, float32 can represent all relevant squares."""

BOUNDARY = 1e-5
"""Deviations that exceed a class boundary by less than this many classes are on the boundary."""


def spreads(rows: Tensor, mean: Tensor, scale: Tensor | None = None) -> Tensor:
    """Return each coordinate's root mean square deviation from the mean, divided by the scale."""
    spread = rows.new_empty(rows.shape[1])
    even = rows.new_full((len(rows),), 1 / len(rows))

    def work(block: Tensor, scratch: Tensor, columns: slice) -> None:
        deviation = torch.sub(block, mean[columns], out=scratch)
        if scale is not None:
            deviation /= scale
        torch.mv(deviation.square_().T, even, out=spread[columns]).sqrt_()

    on_blocks(rows, work)
    return spread


def variations(rows: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    """Return the coefficients of variation of a tensor's coordinates, given their spreads.

    The spreads are recomputed if float32 may not represent some of the squared deviations.
    """
    if mean.numel() == 0:
        return mean.clone()
    size = mean.abs()
    low, high = SAFE_RANGE
    if not low <= float(torch.maximum(spread.max(), size.max())) <= high:
        scale = power_of_two(_largest(rows, mean))
        spread = spreads(rows, mean, scale).mul_(scale)
    floor = NEAR_ZERO * _root_mean_square(mean, spread)
    variation = torch.div(spread, size.add_(floor), out=size)
    # Columns of zeros give 0/0 = NaN, which is also set to no dispersion.
    return variation.masked_fill_((variation > ROUNDING).logical_not_(), 0.0)


def high_columns(variation: Tensor, scale: CvScale, threshold: float) -> Tensor:
    """Return the indices of the coordinates whose scaled variation exceeds the threshold.

    "minmax" scales the tensor's variations to [0, 1]; "clip99" uses the 99th percentile as the
    maximum, so that a few means near zero do not dominate the scale; "rank" uses the share of
    coordinates with a smaller variation.
    """
    no_columns = torch.empty(0, dtype=torch.int64, device=variation.device)
    if threshold >= 1 or variation.numel() == 0:
        return no_columns
    if scale == "rank":
        return (variation > _quantile(variation, threshold)).nonzero().squeeze(1)
    low, top = variation.aminmax()
    if scale == "clip99":
        top = _quantile(variation, 0.99)
    if not bool(top > low):
        return no_columns
    return (variation > low + threshold * (top - low)).nonzero().squeeze(1)


def micro_classes(rows: Tensor, mean: Tensor, indices: Tensor, classes: int, bins: Bins) -> Tensor:
    """Return the class 1..C of each squared deviation as uint8, clients x indices.

    "column" divides [0, largest square of the coordinate] into C equal bins, "layer" [0, largest
    square of the tensor], "raw" [0, 1] as printed in the paper. Larger values are in class C.
    """
    found = torch.empty(len(rows), len(indices), dtype=torch.uint8, device=rows.device)
    tiny = torch.finfo(rows.dtype).tiny
    top = _largest(rows, mean) if bins == "layer" and len(indices) else mean.new_ones(())

    def work(block: slice) -> None:
        columns = indices[block]
        deviation = take_columns(rows, columns).sub_(mean[columns]).abs_()
        largest = deviation.amax(0).clamp_(min=tiny) if bins == "column" else top
        deviation.div_(largest * classes**-0.5).square_()
        found[:, block] = deviation.sub_(BOUNDARY).ceil_().clamp_(1, classes)

    in_threads(work, column_blocks(*found.shape), found)
    return found


def _largest(rows: Tensor, mean: Tensor) -> Tensor:
    """Return the largest absolute deviation in a tensor."""

    def work(block: Tensor, scratch: Tensor, columns: slice) -> Tensor:
        return torch.sub(block, mean[columns], out=scratch).abs_().max()

    return torch.stack(on_blocks(rows, work)).max()


def _root_mean_square(mean: Tensor, spread: Tensor) -> Tensor:
    """Return the root mean square of all clients' values, from their means and deviations."""
    both = torch.stack([row_norms(mean[None]), row_norms(spread[None])])
    return both.square().sum().div(mean.numel()).sqrt().to(mean.dtype)


def _quantile(values: Tensor, share: float) -> Tensor:
    """Return the value at or below which this share of all values lies."""
    rank = int(share * (values.numel() - 1))
    return values.kthvalue(rank + 1).values
