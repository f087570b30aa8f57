"""FedSA: average the coordinates clients agree on, and balance client clusters on the others.

Wang, Liao, Yuan and Zhang (2024), "The Key of Parameter Skew in Federated Learning",
arXiv:2408.11278 (FedPake in its second version).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import torch
from torch import Tensor

from unskew.aggregation import checks
from unskew.aggregation.blocks import column_blocks, in_threads, single_threaded, take_columns
from unskew.aggregation.clustering import greedy_clusters
from unskew.aggregation.combine import weighted_sum
from unskew.aggregation.dispersion import (
    Bins,
    CvScale,
    high_columns,
    micro_classes,
    spreads,
    variations,
)
from unskew.aggregation.macro import Clusters, agreements, macro_class_counts
from unskew.aggregation.rule import Rule
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics, uniform

Scope = Literal["tensor", "model"]
Weighting = Literal["normalised", "literal"]


def fedsa(
    cv_threshold: float = 0.2,
    similarity: float = 0.2,
    micro: int = 4,
    macro: int = 4,
    cv_scale: CvScale = "minmax",
    bins: Bins = "column",
    scope: Scope = "tensor",
    weighting: Weighting = "normalised",
    client_weighting: ClientWeighting | None = None,
) -> Rule:
    """Aggregate by parameter skew.

    Coordinates whose scaled coefficient of variation is at most ``cv_threshold`` take the mean.
    On the others, clients are assigned to ``micro`` classes by squared deviation and grouped into
    at most ``macro`` clusters by how often their classes agree. Once all clusters exist, a client
    that agrees with none of them on more than ``similarity`` of the coordinates is excluded.
    At each coordinate, a cluster's mean is weighted by how common its class there is in the
    cluster. ``scope="model"`` clusters once for all tensors instead of once per tensor.
    ``weighting="literal"`` is the paper's Eq. 14, whose weights do not sum to one. Means are
    unweighted unless ``client_weighting`` is given; buffers take the same mean.

    Diagnostics: ``clusters`` (one row per tensor or one row for the model; -1 is unclustered),
    ``high_share`` of each tensor, ``high_dispersion``, the same share of all tensors together, and
    ``weight_sums``, the smallest and largest sum of cluster weights over a tensor's coordinates;
    with ``scope="model"`` also ``cluster``, the model's row.
    """
    checks.between("cv_threshold", cv_threshold, 0.0)
    checks.between("similarity", similarity, 0.0, 1.0)
    checks.between("micro", micro, 1, 255)
    checks.between("macro", macro, 1)
    checks.one_of("cv_scale", cv_scale, ("minmax", "rank", "clip99"))
    checks.one_of("bins", bins, ("column", "layer", "raw"))
    checks.one_of("scope", scope, ("tensor", "model"))
    checks.one_of("weighting", weighting, ("normalised", "literal"))
    divisor = macro * micro if weighting == "literal" else None
    prior = client_weighting or uniform()

    def region(rows: Tensor, mean: Tensor, spread: Tensor) -> _Region:
        indices = high_columns(variations(rows, mean, spread), cv_scale, cv_threshold)
        return _Region(rows, mean, indices, micro_classes(rows, mean, indices, micro, bins))

    def apply(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        weights = prior(uploads)
        vector = weighted_sum(uploads.stack, weights, uploads.layout)
        with single_threaded():
            return vector, balance(uploads, weights, vector)

    def balance(uploads: Uploads, weights: Tensor, vector: Tensor) -> Diagnostics:
        spread = spreads(uploads.parameters, vector)
        regions = (
            region(uploads.stack[:, entry.slice], vector[entry.slice], spread[entry.slice])
            for entry in uploads.layout.parameters
        )
        groups: Iterable[list[_Region]] = (
            [list(regions)] if scope == "model" else ([each] for each in regions)
        )
        unclustered = torch.full((len(uploads),), -1)
        labels, shares, sums, high = [], [], [], 0
        for group in groups:
            high += sum(len(each.indices) for each in group)
            shares += [each.share for each in group]
            if not any(len(each.indices) for each in group):
                labels.append(unclustered)
                sums += [(1.0, 1.0)] * len(group)
                continue
            labels.append(_clusters_of(group, micro, macro, similarity))
            sums += _balance(group, Clusters.of(labels[-1], weights), micro, divisor)
        return {
            **({"cluster": labels[0]} if scope == "model" else {}),
            "clusters": torch.stack(labels) if labels else unclustered[None],
            "high_share": torch.tensor(shares, dtype=torch.float64),
            "high_dispersion": torch.tensor(high / max(1, len(spread)), dtype=torch.float64),
            "weight_sums": torch.tensor(sums, dtype=torch.float64).view(-1, 2),
        }

    return Rule("fedsa", apply)


@dataclass(frozen=True, eq=False)
class _Region:
    """A tensor's rows, its part of the result, and its high-dispersion indices and classes."""

    rows: Tensor
    result: Tensor
    indices: Tensor
    micro: Tensor

    @property
    def share(self) -> float:
        return len(self.indices) / max(1, len(self.result))


def _clusters_of(regions: Sequence[_Region], micro: int, macro: int, similarity: float) -> Tensor:
    """Cluster the clients by all high-dispersion coordinates of the given tensors."""
    counts = reduce(Tensor.add_, (agreements(each.micro, micro) for each in regions)).cpu()
    indices = sum(len(each.indices) for each in regions)
    return torch.from_numpy(greedy_clusters(counts.numpy(), indices, macro, similarity))


def _balance(
    regions: Sequence[_Region], clusters: Clusters, classes: int, divisor: int | None
) -> list[tuple[float, float]]:
    """Write the balanced means of the clusters into the results.

    Returns for each tensor the smallest and the largest sum of weights over its coordinates.
    """
    macros = [clusters.macro_classes(each.micro, classes) for each in regions]
    common = macro_class_counts(torch.cat(macros, dim=1), classes)

    def balance(each: _Region, macro: Tensor) -> tuple[float, float]:
        sums = torch.ones(len(each.indices))

        def work(block: slice) -> None:
            indices = each.indices[block]
            weights = common.gather(1, macro[:, block].long() - 1)
            weights /= weights.sum(0) if divisor is None else divisor
            means = clusters.means @ take_columns(each.rows, indices)
            each.result[indices] = weights.mul(means).sum(0)
            sums[block] = weights.sum(0)

        in_threads(work, column_blocks(*each.micro.shape), each.micro)
        return (float(sums.min()), float(sums.max())) if len(sums) else (1.0, 1.0)

    return [balance(each, macro) for each, macro in zip(regions, macros, strict=True)]
