"""Aggregation rules that select clients close to many others: Krum, Multi-Krum and Bulyan.

Blanchard, El Mhamdi, Guerraoui and Stainer (2017), "Machine learning with adversaries: Byzantine
tolerant gradient descent"; El Mhamdi, Guerraoui and Rouault (2018), "The hidden vulnerability of
distributed learning in Byzantium". ``f`` is the number of bad clients a rule tolerates; with
f = 0 any number of clients is accepted.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.aggregation import checks
from unskew.aggregation.combine import all_finite, by_coordinate, weighted_sum
from unskew.aggregation.distances import pairwise_squared_distances
from unskew.aggregation.rule import Rule, weighted_mean
from unskew.aggregation.selection import sorted_columns
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics

Distances = NDArray[np.float64]

_RESOLUTION = 2.0**36
"""Mantissas of scores are rounded to multiples of 1 over this."""


def krum(f: int) -> Rule:
    """Return the model of the client with the lowest score.

    A client's score is the sum of its n - f - 2 smallest squared distances to the others; ties go
    to the smallest client id. Requires n >= 2f + 3.
    """
    return _closest("krum", f, 1)


def multi_krum(f: int, m: int | None = None) -> Rule:
    """Average the ``m`` clients with the lowest Krum scores; by default the best n - f."""
    if m is not None:
        checks.between("m", m, 1)
    return _closest("multi_krum", f, m)


def bulyan(f: int) -> Rule:
    """Select n - 2f clients by repeated Krum, then average the middle values per coordinate.

    These are the n - 4f values of the selected clients closest to their median. Requires
    n >= 4f + 3. Floating buffers are treated like parameters.
    """
    checks.between("f", f, 0)

    def apply(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        clients = len(uploads)
        checks.enough_clients("bulyan", f, clients, 4 * f + 3 if f else 1)
        selected = _select_iteratively(
            pairwise_squared_distances(uploads.parameters).cpu().numpy(), f
        )
        rows = torch.tensor(selected)

        def rule(block: Tensor, scratch: Tensor) -> Tensor:
            ordered = sorted_columns(block[rows], scratch[: len(rows)])
            return _closest_to_median(ordered, clients - 4 * f)

        diagnostics = {"selected": torch.tensor(uploads.clients)[rows]}
        return by_coordinate(uploads.stack, uploads.layout, rule), diagnostics

    return Rule("bulyan", apply)


def _closest(name: str, f: int, m: int | None) -> Rule:
    checks.between("f", f, 0)

    def derive(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        clients = len(uploads)
        checks.enough_clients(name, f, clients, 2 * f + 3 if f else 1)
        count = clients - f if m is None else m
        checks.between("m", count, 1, clients - f)
        ordered = np.sort(pairwise_squared_distances(uploads.parameters).cpu().numpy(), axis=1)
        scores = torch.from_numpy(_scores(ordered, f))
        selected = scores.argsort(stable=True)[:count].sort().values
        raw = torch.zeros(clients, dtype=torch.float64)
        raw[selected] = 1.0
        return raw, {"scores": scores, "selected": torch.tensor(uploads.clients)[selected]}

    averaged = weighted_mean(ClientWeighting(name, derive))

    def apply(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        vector, found = averaged.apply(uploads)
        if not all_finite(vector):
            # Zero times infinity is NaN, so only the selected models are averaged.
            selected = found["weights"] > 0
            rows = uploads.stack[selected.to(uploads.stack.device)]
            vector = weighted_sum(rows, found["weights"][selected], uploads.layout)
        return vector, found

    return Rule(name, apply)


def _scores(ordered: Distances, f: int) -> Distances:
    """Sum each row's smallest distances; the first of a sorted row is the distance to itself.

    Scores are rounded, because distances of identical clients differ in the last digits, which
    must not decide between them.
    """
    neighbours = max(1, len(ordered) - f - 2)
    mantissas, exponents = np.frexp(ordered[:, 1 : 1 + neighbours].sum(1))
    scores: Distances = np.ldexp(np.round(mantissas * _RESOLUTION) / _RESOLUTION, exponents)
    return scores


def _select_iteratively(squared: Distances, f: int) -> list[int]:
    """Select n - 2f clients, each by Krum from the remaining ones."""
    order = squared.argsort(axis=1, kind="stable")
    ordered = np.take_along_axis(squared, order, axis=1)
    remaining, selected = np.arange(len(squared)), []
    for _ in range(len(squared) - 2 * f):
        best = int(_scores(ordered, f).argmin())
        selected.append(int(remaining[best]))
        rows = np.arange(len(remaining)) != best
        stays = order[rows] != remaining[best]
        remaining = remaining[rows]
        ordered = ordered[rows][stays].reshape(len(remaining), len(remaining))
        order = order[rows][stays].reshape(len(remaining), len(remaining))
    return sorted(selected)


def _closest_to_median(ordered: Tensor, count: int) -> Tensor:
    """Average the values of each ordered column that are closest to its median.

    They are adjacent, so it is enough to find the start of their window: it moves up by one for
    each low value that is farther away than the high value that would replace it. Of two values
    at the same distance, the lower one is used.
    """
    upper = len(ordered) // 2
    median = ordered[upper] if len(ordered) % 2 else (ordered[upper - 1] + ordered[upper]) / 2
    farther = median - ordered[: len(ordered) - count] > ordered[count:] - median
    indices = farther.sum(0) + torch.arange(count)[:, None]
    return ordered.gather(0, indices).mean(0)
