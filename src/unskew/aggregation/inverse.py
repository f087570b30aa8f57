"""IDA and INTRAC: weigh clients by inverse distance, and by inverse training accuracy.

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
from unskew.aggregation.weighting import ClientWeighting, Reasons, by_samples, on_simplex, uniform
from unskew.errors import UnskewError

Center = Literal["mean", "fedavg", "median"]

_ROOM = 8.0
"""The largest float32 divided by this may be added and subtracted."""


def inverse_distance(
    norm: Literal[1, 2] = 1,
    center: Center = "mean",
    eps: float = 1e-3,
    cap: float | None = None,
    absolute: bool = False,
) -> ClientWeighting:
    """Weigh clients by the inverse of their distance to the centre of all: IDA.

    ``eps`` is a share of the mean distance and is added to every distance, so that scaling or
    shifting all models changes nothing; with ``absolute`` it is a distance itself, as in the
    paper. ``cap`` limits a weight to so many times the even share 1/n, for the client that
    happens to lie at the centre. ``center`` is the plain mean, the mean by samples, or the
    coordinate-wise median.
    """
    checks.one_of("norm", norm, (1, 2))
    checks.one_of("center", center, ("mean", "fedavg", "median"))
    checks.between("eps", eps, 0.0)
    if cap is not None:
        checks.between("cap", cap, 1.0)

    def derive(uploads: Uploads) -> tuple[Tensor, Reasons]:
        distance = _distances(center, uploads, norm).cpu()
        raw = _inverse(distance + (eps if absolute else eps * distance.mean()))
        if cap is not None:
            raw = bounded(on_simplex(raw), 0.0, min(1.0, cap / len(uploads)))
        return raw, {"distances": distance}

    return ClientWeighting("inverse_distance", derive)


def inverse_accuracy(
    chance: float | Literal["paper"] | None = None, classes: int | None = None
) -> ClientWeighting:
    """Weigh clients by the inverse of their training accuracy: INTRAC.

    Accuracies below ``chance`` count as chance. By default that is one in ``classes``, which is
    taken from the round's label counts if not given; "paper" is one in the number of all clients.
    """
    if isinstance(chance, str):
        checks.one_of("chance", chance, ("paper",))
    elif chance is not None:
        checks.positive("chance", chance, 1.0)
    if classes is not None:
        checks.between("classes", classes, 1)

    def derive(uploads: Uploads) -> tuple[Tensor, Reasons]:
        if uploads.train_accuracy is None:
            raise UnskewError("train_accuracy is missing: inverse_accuracy needs one a client")
        accuracy = uploads.train_accuracy
        floor = _chance(chance, classes, uploads)
        return 1 / accuracy.clamp(min=floor), {"accuracies": accuracy}

    return ClientWeighting("inverse_accuracy", derive)


def _distances(center: Center, uploads: Uploads, norm: int) -> Tensor:
    weights = (by_samples() if center == "fedavg" else uniform())(uploads).to(uploads.stack)

    def measured(rows: Tensor) -> Tensor:
        if len(rows) == 2 and center != "fedavg":
            # Half of the way from one to the other: no rounding of the centre can prefer one.
            apart = distances(rows, from_center(lambda block, _: block[0]), norm)
            return apart[1].div(2).repeat(2)
        if center == "median":
            return distances(rows, from_center(median_of_columns), norm)
        return distances_to_mean(rows, weights, norm)

    found = measured(uploads.parameters)
    if bool(found.isfinite().all()):
        return found
    return measured(uploads.parameters / _ROOM) * _ROOM


def _inverse(distance: Tensor) -> Tensor:
    """Return the inverses up to a factor; at distance zero, the limit: these share everything."""
    zero = distance == 0
    return zero.double() if bool(zero.any()) else distance.min() / distance


def _chance(
    chance: float | Literal["paper"] | None, classes: int | None, uploads: Uploads
) -> float:
    if chance == "paper":
        return 1 / uploads.everybody
    if chance is not None:
        return float(chance)
    if classes is not None:
        return 1 / classes
    if uploads.label_counts is not None:
        return 1 / uploads.label_counts.shape[1]
    raise UnskewError(
        "classes is not known: give inverse_accuracy classes or chance, or send label_counts"
    )
