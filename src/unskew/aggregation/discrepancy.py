"""FedDisco: weight clients by their samples minus a discrepancy of their data.

Ye, Xu, Wang, Xu, Chen and Wang (2023), "FedDisco: federated learning with discrepancy-aware
collaboration". The discrepancy may be any number per client, such as the divergence of its labels
or the distance of its latent codes from a normal distribution.
"""

import warnings
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from unskew.aggregation import checks
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics, on_simplex
from unskew.errors import UnskewError

OnDegenerate = Literal["fedavg", "raise"]

_ROUNDING = 1e-12
"""Divergences below this are rounding errors: they are set to 0, since rescaling amplifies them."""

Values = Callable[[Uploads], Tensor]
"""Returns one number per client of the round."""


def discrepancy(
    values: Tensor | Values,
    alpha: float = 0.5,
    b: float = 0.1,
    rescale: bool = True,
    on_degenerate: OnDegenerate = "fedavg",
) -> ClientWeighting:
    """Weight clients by max(0, p_k - alpha d_k + b), with p_k their share of the samples.

    ``values`` are the discrepancies d: a tensor with the value of client k at index k, or a
    function of the uploads such as :func:`label_divergence`. With ``rescale`` they are divided by
    their sum over the round's clients; then at least one weight is positive if alpha < 1 + n b.
    If all weights are zero, the weights are p_k and a warning is issued; with
    ``on_degenerate="raise"`` an error is raised instead.
    """
    checks.between("alpha", alpha, 0.0)
    checks.between("b", b, 0.0)
    checks.one_of("on_degenerate", on_degenerate, ("fedavg", "raise"))

    def derive(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        given = values(uploads) if callable(values) else _of_clients(values, uploads)
        found = _checked(given, uploads)
        total = found.sum()
        used = found / total if rescale and float(total) > 0 else found
        # Multiplied by the sample count, so that alpha = b = 0 equals by_samples() to the last bit.
        raw = (uploads.samples - (alpha * used - b) * uploads.samples.sum()).clamp(min=0)
        diagnostics = {"discrepancies": found, "rescaled": used}
        if bool((raw > 0).any()):
            return raw, diagnostics
        message = "discrepancy: all weights are zero; lower alpha, raise b or set rescale=True"
        if on_degenerate == "raise":
            raise UnskewError(message)
        warnings.warn(f"{message} (this round is weighted by samples)", stacklevel=2)
        return uploads.samples, diagnostics

    return ClientWeighting("discrepancy", derive)


def label_divergence(
    measure: Literal["kl", "l1", "l2", "cosine"] = "kl", target: Tensor | None = None
) -> Values:
    """Measure how far each client's label distribution is from a target, uniform by default."""
    checks.one_of("measure", measure, tuple(DIVERGENCES))

    def values(uploads: Uploads) -> Tensor:
        if uploads.label_counts is None:
            raise UnskewError("label_counts are missing: label_divergence needs one row per client")
        # Counts are integers, whose quotients are float32 by default: too coarse for _ROUNDING.
        counts = uploads.label_counts.to(torch.float64)
        sizes = counts.sum(1, keepdim=True)
        if not bool((sizes > 0).all()):
            empty = uploads.clients[int(sizes.argmin())]
            raise UnskewError(f"label_counts of client {empty} must hold at least one sample")
        found = DIVERGENCES[measure](counts / sizes, _target(target, counts.shape[1]))
        return torch.where(found < _ROUNDING, 0.0, found)

    return values


def _kl(labels: Tensor, target: Tensor) -> Tensor:
    terms = torch.where(labels > 0, labels * (labels / target).log(), 0.0)
    return terms.sum(1).clamp(min=0)


def _l1(labels: Tensor, target: Tensor) -> Tensor:
    return (labels - target).abs().sum(1)


def _l2(labels: Tensor, target: Tensor) -> Tensor:
    return (labels - target).square().sum(1).sqrt()


def _cosine(labels: Tensor, target: Tensor) -> Tensor:
    lengths = labels.square().sum(1).sqrt() * target.square().sum().sqrt()
    return (1 - labels @ target / lengths).clamp(min=0)


DIVERGENCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "kl": _kl,
    "l1": _l1,
    "l2": _l2,
    "cosine": _cosine,
}


def _target(target: Tensor | None, classes: int) -> Tensor:
    if target is None:
        return torch.full((classes,), 1 / classes, dtype=torch.float64)
    if target.shape != (classes,) or not bool((target >= 0).all()) or not float(target.sum()) > 0:
        raise UnskewError(f"target must be {classes} non-negative shares, one per class")
    return on_simplex(target)


def _of_clients(values: Tensor, uploads: Uploads) -> Tensor:
    if values.ndim != 1 or max(uploads.clients) >= len(values):
        raise UnskewError(
            f"values must hold one number per client, up to client {max(uploads.clients)} "
            f"(got shape {tuple(values.shape)})"
        )
    return values[list(uploads.clients)]


def _checked(values: Tensor, uploads: Uploads) -> Tensor:
    if values.shape != (len(uploads),) or not bool((values >= 0).all() & values.isfinite().all()):
        raise UnskewError(
            f"values must be {len(uploads)} finite non-negative discrepancies "
            f"(got {values.tolist()})"
        )
    return values.to(torch.float64)
