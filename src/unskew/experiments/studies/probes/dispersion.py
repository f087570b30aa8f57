"""How client models scatter while they train (FedSA, Fig. 1)."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unskew.experiments.studies.case_data import open_case_data
from unskew.experiments.studies.probes.keeping import trace
from unskew.experiments.studies.probing import Finding
from unskew.experiments.studies.study import Case
from unskew.report.palette import color

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DIMENSIONS = 30
"""t-SNE starts from so many principal components."""


def scatter(stack: Tensor) -> float:
    """Return the root mean squared distance of models from their mean, over the mean's norm."""
    models = stack.double()
    center = models.mean(0)
    norm = float(center.norm())
    spread = float((models - center).square().sum(1).mean().sqrt())
    return spread / norm if norm else math.nan


def measure_dispersion(case: Case, seed: int) -> Finding:
    """Measure the scatter after the first, the middle and the last round, and map the models."""
    last = case.train.rounds
    rounds = tuple(dict.fromkeys((1, max(1, last // 2), last)))
    federation = open_case_data(case.data, seed)
    found = trace(case, federation, seed, rounds)
    stacks = [found.stacks[r][:, : found.layout.trainable] for r in rounds]
    names = ("first round", "middle round", "last round")
    values = {
        name: {"dispersion": scatter(stack)}
        for name, stack in zip(
            names, (stacks[0], stacks[len(stacks) // 2], stacks[-1]), strict=True
        )
    }
    places = embed(np.concatenate([stack.numpy() for stack in stacks]))
    labels = np.repeat(rounds, len(federation)).tolist()
    return Finding(values, {"x": places[:, 0].tolist(), "y": places[:, 1].tolist(), "of": labels})


def embed(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Map rows to the plane by t-SNE, from their first principal components."""
    from sklearn.decomposition import PCA  # noqa: PLC0415 (slow to import)
    from sklearn.manifold import TSNE  # noqa: PLC0415

    rows = rows.astype(np.float64)
    parts = PCA(min(_DIMENSIONS, *rows.shape), random_state=0).fit_transform(rows - rows.mean(0))
    perplexity = max(1.0, min(30.0, (len(rows) - 1) / 3))
    places: NDArray[np.float64] = TSNE(
        perplexity=perplexity, init="pca", random_state=0
    ).fit_transform(parts)
    return places.astype(np.float64)


def draw_dispersion(drawn: dict[str, dict[str, Any]]) -> "Figure":
    """Draw a map a case; colours are rounds."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (slow to import)

    figure = Figure(figsize=(3.4 * len(drawn), 3.2), layout="constrained")
    for axes, (case, points) in zip(
        figure.subplots(1, len(drawn), squeeze=False)[0], drawn.items(), strict=True
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
