"""The spread of client models during training (FedSA, Fig. 1)."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unskew.experiments.studies.case_data import open_case_data
from unskew.experiments.studies.probes.base import Drawings, ProbeResult
from unskew.experiments.studies.probes.client_models import train_client_models
from unskew.experiments.studies.study import Case
from unskew.utils.palette import color

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DIMENSIONS = 30
"""The number of principal components that t-SNE starts from."""


def relative_spread(stack: Tensor) -> float:
    """Return the root mean squared distance of models from their mean, over the mean's norm."""
    rows = stack.double()
    center = rows.mean(0)
    norm = float(center.norm())
    spread = float((rows - center).square().sum(1).mean().sqrt())
    return spread / norm if norm else math.nan


def measure_dispersion(case: Case, seed: int) -> ProbeResult:
    """Measure the spread after the first, the middle and the last round, and embed the models."""
    last = case.train.rounds
    rounds = tuple(dict.fromkeys((1, max(1, last // 2), last)))
    federation = open_case_data(case.data, seed)
    models = train_client_models(case, federation, seed, rounds)
    stacks = [models.stacks[r][:, : models.layout.trainable] for r in rounds]
    names = ("first round", "middle round", "last round")
    values = {
        name: {"dispersion": relative_spread(stack)}
        for name, stack in zip(
            names, (stacks[0], stacks[len(stacks) // 2], stacks[-1]), strict=True
        )
    }
    points = embed(np.concatenate([stack.numpy() for stack in stacks]))
    labels = np.repeat(rounds, len(federation)).tolist()
    return ProbeResult(values, drawing_of(points, labels))


def embed(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Embed rows in the plane by t-SNE of their first principal components."""
    from sklearn.decomposition import PCA  # noqa: PLC0415 (slow to import)
    from sklearn.manifold import TSNE  # noqa: PLC0415

    rows = rows.astype(np.float64)
    components = PCA(min(_DIMENSIONS, *rows.shape), random_state=0).fit_transform(
        rows - rows.mean(0)
    )
    perplexity = max(1.0, min(30.0, (len(rows) - 1) / 3))
    points: NDArray[np.float64] = TSNE(
        perplexity=perplexity, init="pca", random_state=0
    ).fit_transform(components)
    return points.astype(np.float64)


def drawing_of(points: NDArray[np.float64], labels: list[Any]) -> dict[str, Any]:
    """Return the values that :func:`plot_dispersion` draws: coordinates and a label per point."""
    return {"x": points[:, 0].tolist(), "y": points[:, 1].tolist(), "of": labels}


def plot_dispersion(drawings: Drawings) -> "Figure":
    """Draw one map per case; colours show the round."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (slow to import)

    figure = Figure(figsize=(3.4 * len(drawings), 3.2), layout="constrained")
    for axes, (case, points) in zip(
        figure.subplots(1, len(drawings), squeeze=False)[0], drawings.items(), strict=True
    ):
        of = np.array(points["of"])
        for place, label in enumerate(dict.fromkeys(points["of"])):
            chosen = of == label
            axes.scatter(
                np.array(points["x"])[chosen], np.array(points["y"])[chosen], s=14,
                color=color(place), label=f"round {label}" if isinstance(label, int) else label,
            )  # fmt: skip
        axes.set_title(case, fontsize=9)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.legend(frameon=False, fontsize=7)
    return figure
