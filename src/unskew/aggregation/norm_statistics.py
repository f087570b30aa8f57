"""Describe clients by their models' normalisation layers, or by the moments of their tensors."""

import math

import torch
from torch import Tensor

from unskew.aggregation.uploads import Uploads
from unskew.errors import UnskewError
from unskew.models.layout import Entry, TensorKind
from unskew.utils.rng import torch_generator

_ROUNDING = 1e-6
"""Relative differences between clients up to this are rounding errors."""


def norm_statistics(uploads: Uploads) -> Tensor:
    """Return one row per client: running mean and deviation, shift and scale of each norm layer.

    GroupNorm and LayerNorm have no running statistics and contribute only shift and scale. A
    network without normalisation layers is described by the mean and the standard deviation of
    each parameter tensor.
    """
    norms = [entry for entry in uploads.layout if _is_norm_tensor(entry) and entry.size]
    others = [entry for entry in uploads.layout.parameters if entry.size]
    columns = [_as_uploaded(uploads.stack, entry) for entry in norms] or [
        _moments(uploads.stack, entry) for entry in others
    ]
    if not columns:
        raise UnskewError("layout: the model has no parameters, so its clients cannot be described")
    return torch.cat(columns, 1)


def standardise(statistics: Tensor) -> Tensor:
    """Scale each column to mean 0 and deviation 1 over clients; constant columns become 0."""
    statistics = statistics.to(torch.float64)
    lowest, highest = statistics.aminmax(dim=0)
    size = torch.maximum(lowest.abs(), highest.abs())
    differs = highest - lowest > _ROUNDING * size
    above = (statistics - lowest) / torch.where(differs, highest - lowest, 1)
    centered = above - above.mean(0)
    deviation = centered.square().mean(0).sqrt()
    return torch.where(differs, centered / torch.where(differs, deviation, 1), 0)


def project(statistics: Tensor, width: int, seed: int) -> Tensor:
    """Project rows to ``width`` random signed sums, which approximately preserve distances.

    Rows that are short enough are unchanged. The signs depend only on the seed and the length, so
    they are the same in every round.
    """
    length = statistics.shape[1]
    if length <= width:
        return statistics
    noise = torch_generator(seed, "fusion projection", length)
    signs = torch.randint(0, 2, (length, width), generator=noise, dtype=torch.int8)
    return torch.mm(statistics, (2 * signs - 1).to(statistics.dtype)).div(math.sqrt(length))


def _is_norm_tensor(entry: Entry) -> bool:
    is_norm = entry.norm or entry.kind in (TensorKind.NORM_STATISTIC, TensorKind.NORM_AFFINE)
    return is_norm and entry.kind is not TensorKind.COUNTER


def _as_uploaded(stack: Tensor, entry: Entry) -> Tensor:
    values = stack[:, entry.slice].to(torch.float64)
    return values.clamp(min=0).sqrt() if entry.name.endswith("running_var") else values


def _moments(stack: Tensor, entry: Entry) -> Tensor:
    values = stack[:, entry.slice].to(torch.float64)
    deviations, means = torch.std_mean(values, dim=1, correction=0)
    return torch.stack((means, deviations), 1)
