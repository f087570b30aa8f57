"""IDA and INTRAC: weight clients by inverse distance and by inverse training accuracy.

Yeganeh, Farshad, Navab and Albarqouni (2020), "Inverse Distance Aggregation for Federated Learning
with Non-IID Data".
"""

from typing import Literal

from torch import Tensor

from unskew.aggregation import checks
from unskew.aggregation.bounds import bounded
from unskew.aggregation.distances import distances, distances_to_mean, from_center
from unskew.aggregation.selection import median_of_columns
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import (
    ClientWeighting,
    Diagnostics,
    by_samples,
    on_simplex,
    uniform,
)
from unskew.errors import UnskewError

Center = Literal["mean", "fedavg", "median"]

_HEADROOM = 8.0
"""Numbers divided by this can be added and subtracted without overflow."""


def inverse_distance(
    norm: Literal[1, 2] = 1,
    center: Center = "mean",
    eps: float = 1e-3,
    cap: float | None = None,
    absolute: bool = False,
) -> ClientWeighting:
    """Weight clients by the inverse of their distance to the centre of all clients: IDA.

    ``eps`` is added to every distance. It is relative to the mean distance, so that scaling or
    shifting all models does not change the weights; with ``absolute`` it is a distance itself, as
    in the paper. ``cap`` limits a weight to this multiple of the uniform weight 1/n, for a client
    that happens to be at the centre. ``center`` is the unweighted mean, the mean weighted by
    samples, or the coordinate-wise median.
    """
    checks.one_of("norm", norm, (1, 2))
    checks.one_of("center", center, ("mean", "fedavg", "median"))
    checks.between("eps", eps, 0.0)
    if cap is not None:
        checks.between("cap", cap, 1.0)

    def derive(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        distance = _distances(center, uploads, norm).cpu()
        raw = _inverse(distance + (eps if absolute else eps * distance.mean()))
        if cap is not None:
            raw = bounded(on_simplex(raw), 0.0, min(1.0, cap / len(uploads)))
        return raw, {"distances": distance}

    return ClientWeighting("inverse_distance", derive)


def inverse_accuracy(
    chance_level: float | Literal["paper"] | None = None, classes: int | None = None
) -> ClientWeighting:
    """Weight clients by the inverse of their training accuracy: INTRAC.

    Accuracies below ``chance_level`` are raised to it. The default is 1 / ``classes``,
    taken from the round's label counts if not given; "paper" is 1 / the number of all clients.
    """
    if isinstance(chance_level, str):
        checks.one_of("chance_level", chance_level, ("paper",))
    elif chance_level is not None:
        checks.positive("chance_level", chance_level, 1.0)
    if classes is not None:
        checks.between("classes", classes, 1)

    def derive(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        if uploads.train_accuracy is None:
            raise UnskewError(
                "train_accuracy is missing: inverse_accuracy needs one value per client"
            )
        accuracy = uploads.train_accuracy
        floor = _chance_level(chance_level, classes, uploads)
        return 1 / accuracy.clamp(min=floor), {"accuracies": accuracy}

    return ClientWeighting("inverse_accuracy", derive)


def _distances(center: Center, uploads: Uploads, norm: int) -> Tensor:
    weights = (by_samples() if center == "fedavg" else uniform())(uploads).to(uploads.stack)

    def measured(rows: Tensor) -> Tensor:
        if len(rows) == 2 and center != "fedavg":
            # Each is half their distance from the centre; rounding must not make the two differ.
            from_first = distances(rows, from_center(lambda block, _: block[0]), norm)
            return from_first[1].div(2).repeat(2)
        if center == "median":
            return distances(rows, from_center(median_of_columns), norm)
        return distances_to_mean(rows, weights, norm)

    found = measured(uploads.parameters)
    if bool(found.isfinite().all()):
        return found
    return measured(uploads.parameters / _HEADROOM) * _HEADROOM


def _inverse(distance: Tensor) -> Tensor:
    """Return the inverses up to a factor; clients at distance zero share all of the weight."""
    zero = distance == 0
    return zero.double() if bool(zero.any()) else distance.min() / distance


def _chance_level(
    chance_level: float | Literal["paper"] | None, classes: int | None, uploads: Uploads
) -> float:
    if chance_level == "paper":
        return 1 / uploads.num_clients_total
    if chance_level is not None:
        return float(chance_level)
    if classes is not None:
        return 1 / classes
    if uploads.label_counts is not None:
        return 1 / uploads.label_counts.shape[1]
    raise UnskewError(
        "classes is unknown: pass classes or chance_level to inverse_accuracy, or send label_counts"
    )
