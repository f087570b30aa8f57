"""Which coordinates of a tensor differ much between clients, and how far each client is off.

The first half of FedSA: the coefficient of variation of each coordinate, the high-dispersion
region, and the micro-classes (MIC) of the clients in it. Where squares of deviations would
overflow or vanish, all are divided by one power of two first, which changes no digit.
"""

from typing import Literal

import torch
from torch import Tensor

from unskew.aggregation.blocks import column_blocks, in_threads, on_blocks, take_columns
from unskew.aggregation.distances import lengths, power_of_two

CvScale = Literal["minmax", "rank", "clip99"]
Bins = Literal["column", "layer", "raw"]

ROUNDING = 4 * torch.finfo(torch.float32).eps
"""A coefficient of variation below this is rounding: the clients agree."""

NEAR_ZERO = 1e-8
"""Means below this share of the tensor's root mean square do not raise dispersion further."""

FITTING = (1e-3, 1e15)
"""A tensor whose largest number lies between these has no square that counts and does not fit."""

BOUNDARY = 1e-5
"""Deviations that exceed a class boundary by less than this, in classes, are on the boundary."""


def spreads(rows: Tensor, mean: Tensor, scale: Tensor | None = None) -> Tensor:
    """Return the root mean square of each coordinate's deviations from the mean, over the scale."""
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

    Where some squares of deviations did not fit into float32, spreads are computed again.
    """
    if mean.numel() == 0:
        return mean.clone()
    size = mean.abs()
    low, high = FITTING
    if not low <= float(torch.maximum(spread.max(), size.max())) <= high:
        scale = power_of_two(_largest(rows, mean))
        spread = spreads(rows, mean, scale).mul_(scale)
    floor = NEAR_ZERO * _root_mean_square(mean, spread)
    variation = torch.div(spread, size.add_(floor), out=size)
    # All zeros give 0/0, which is no dispersion either.
    return variation.masked_fill_((variation > ROUNDING).logical_not_(), 0.0)


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
    low, top = variation.aminmax()
    if scale == "clip99":
        top = _quantile(variation, 0.99)
    if not bool(top > low):
        return nothing
    return (variation > low + threshold * (top - low)).nonzero().squeeze(1)


def micro_classes(rows: Tensor, mean: Tensor, places: Tensor, classes: int, bins: Bins) -> Tensor:
    """Return the class 1..C of each squared deviation at some places, as bytes: clients x places.

    "column" cuts [0, largest square of the coordinate] into C equal bins, "layer" [0, largest
    square of the tensor], "raw" [0, 1] as the paper prints it. What lies beyond is in class C.
    """
    found = torch.empty(len(rows), len(places), dtype=torch.uint8, device=rows.device)
    tiny = torch.finfo(rows.dtype).tiny
    top = _largest(rows, mean) if bins == "layer" and len(places) else mean.new_ones(())

    def work(block: slice) -> None:
        columns = places[block]
        deviation = take_columns(rows, columns).sub_(mean[columns]).abs_()
        largest = deviation.amax(0).clamp_(min=tiny) if bins == "column" else top
        deviation.div_(largest * classes**-0.5).square_()
        found[:, block] = deviation.sub_(BOUNDARY).ceil_().clamp_(1, classes)

    in_threads(work, column_blocks(*found.shape), found)
    return found


def _largest(rows: Tensor, mean: Tensor) -> Tensor:
    """Return the largest deviation in a tensor."""

    def work(block: Tensor, scratch: Tensor, columns: slice) -> Tensor:
        return torch.sub(block, mean[columns], out=scratch).abs_().max()

    return torch.stack(on_blocks(rows, work)).max()


def _root_mean_square(mean: Tensor, spread: Tensor) -> Tensor:
    """Return the root mean square of all clients' values, from their means and deviations."""
    both = torch.stack([lengths(mean[None]), lengths(spread[None])])
    return both.square().sum().div(mean.numel()).sqrt().to(mean.dtype)


def _quantile(values: Tensor, share: float) -> Tensor:
    """Return the value that this share of the others does not exceed."""
    place = int(share * (values.numel() - 1))
    return values.kthvalue(place + 1).values
