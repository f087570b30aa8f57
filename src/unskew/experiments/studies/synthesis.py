"""Labelled samples from a VAE, and the accuracy of a classifier trained on them.

The VAE is not conditioned on labels. For each class, clients send the count, sum and outer products
of their samples' mean codes. The server adds these up over clients to a normal distribution of
codes per class. Codes drawn from it and decoded are samples of that class.

The classification accuracy score (Ravuri and Vinyals 2019) is the accuracy on real test samples of
a classifier that was trained on synthetic ones alone.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unskew.data.federation import Federation
from unskew.densities.vae_codes import has_codes
from unskew.engine.placement import to_tensor
from unskew.errors import UnskewError
from unskew.experiments.training import train
from unskew.models.functional import FunctionalModel
from unskew.models.vae import VAE
from unskew.utils.rng import torch_generator

_RIDGE = 1e-6
"""Added to variances, so that a class with a single sample has a distribution too."""


@dataclass(frozen=True, eq=False)
class ClassCodes:
    """Sums over samples, by class: of ones, codes, and products of codes."""

    counts: Tensor
    sums: Tensor
    products: Tensor

    def __add__(self, other: "ClassCodes") -> "ClassCodes":
        return ClassCodes(
            self.counts + other.counts, self.sums + other.sums, self.products + other.products
        )


@torch.no_grad()
def class_codes(vae: VAE, x: Tensor, y: Tensor, classes: int) -> ClassCodes:
    """Return the sums over the mean codes of one client's samples."""
    mean = vae.encode(FunctionalModel(vae).inputs(x))[0].double()
    one_hot = torch.nn.functional.one_hot(y.long(), classes).double()
    return ClassCodes(
        one_hot.sum(0), one_hot.T @ mean, torch.einsum("nc,ni,nj->cij", one_hot, mean, mean)
    )


@torch.no_grad()
def synthesise(vae: VAE, codes: ClassCodes, samples: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw ``samples`` labelled samples with the class frequencies; features are in [0, 1]."""
    generator = torch_generator(seed, "synthesis")
    y = torch.multinomial(codes.counts, samples, replacement=True, generator=generator)
    known = codes.counts.clamp(min=1)
    mean = codes.sums / known[:, None]
    spread = codes.products / known[:, None, None] - mean[:, :, None] * mean[:, None, :]
    root = torch.linalg.cholesky(spread + _RIDGE * torch.eye(mean.shape[1], dtype=mean.dtype))
    noise = torch.randn(samples, mean.shape[1], generator=generator, dtype=mean.dtype)
    drawn = mean[y] + torch.einsum("nij,nj->ni", root[y], noise)
    decoded = vae.decode(drawn.float())
    return (decoded * vae.sd + vae.mean).clamp(0, 1), y


def classification_score(
    federation: Federation,
    vae: torch.nn.Module | None,
    *,
    samples: int = 10_000,
    model: str | None = None,
    seed: int = 0,
    **settings: Any,
) -> float:
    """Return the accuracy on the common test of a classifier trained on synthetic samples.

    ``vae`` is a trained one, such as ``run.model``; ``settings`` are those of :func:`unskew.train`.
    """
    if not isinstance(vae, VAE) or not has_codes(vae):
        raise UnskewError("vae must be a trained VAE, such as the model of a run with model='vae'")
    total: ClassCodes | None = None
    for k in range(len(federation)):
        x, y = federation.train.client(k)
        found = class_codes(vae, to_tensor(x), to_tensor(y), federation.classes)
        total = found if total is None else total + found
    assert total is not None
    features, labels = synthesise(vae, total, samples, seed)
    common = federation.common
    synthetic = Federation.from_arrays(
        features.reshape(samples, *federation.shape).numpy(),
        labels.numpy(),
        np.zeros(samples, np.int64),
        common=(_unit(common.x), common.y),
        holdout=0,
        classes=federation.classes,
        name=f"synthetic {federation.name}",
    )
    return train(synthetic, model=model, seed=seed, progress=False, **settings).accuracy


def _unit(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return bytes scaled to [0, 1], like the synthetic features."""
    return x.astype(np.float32) / 255 if x.dtype == np.uint8 else x
