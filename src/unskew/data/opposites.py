"""A synthetic federation with known density ratios: two domains in opposite proportions.

Features are binary. In the first domain few of them are one and the label depends strongly on the
features; in the second many are one and the dependence is weak. Both clients have samples of both
domains, one mostly of the first, the other mostly of the second, so their densities have the same
support and opposite proportions. A linear model cannot fit both domains: the best compromise
depends on how often each domain occurs, which is what sample weights correct.
"""

from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from unskew.data.federation import Federation
from unskew.utils.rng import generator

Floats = NDArray[np.float64]

_ONES = (0.3, 0.7)
"""The probability of a one in each domain."""
_STRONG, _WEAK = 6.0, 0.5
"""The scale of the logistic coefficients in each domain."""


@dataclass(frozen=True, eq=False)
class Opposites:
    """The federation, and the exact log density ratio of any sample at a client."""

    federation: Federation
    share: float

    def log_ratio(self, client: int, x: NDArray[np.float32]) -> Floats:
        """Return ``log p(x)/q_k(x)``, where p is the even mixture of both domains."""
        ones, features = x.sum(1, dtype=np.float64), x.shape[1]
        first, second = (ones * log(p) + (features - ones) * log(1 - p) for p in _ONES)
        share = self.share if client == 0 else 1 - self.share
        with np.errstate(divide="ignore"):  # a share of 1 leaves no samples of the other domain
            q = np.logaddexp(first + np.log(share), second + np.log(1 - share))
        ratio: Floats = np.logaddexp(first, second) - log(2) - q
        return ratio

    @property
    def pooled(self) -> Federation:
        """A federation with the same samples in a single client, as an upper bound on accuracy."""
        train, common = self.federation.train, self.federation.common
        return Federation.from_arrays(
            train.x,
            train.y,
            np.zeros(train.samples, np.int64),
            common=(common.x, common.y),
            holdout=0,
            classes=2,
        )


def opposites(
    *, samples: int = 2000, features: int = 10, share: float = 0.9, tests: int = 4000, seed: int = 0
) -> Opposites:
    """Draw two clients of equal size; ``share`` of the first one is in the first domain."""
    random = generator(seed, "opposites")
    coefficients = np.stack(
        [random.normal(size=features) * _STRONG, random.normal(size=features) * _WEAK]
    )

    def draw(count: int, first: float) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        domain = (random.random(count) >= first).astype(np.int64)
        x = (random.random((count, features)) < np.array(_ONES)[domain, None]).astype(np.float32)
        probability = 1 / (1 + np.exp(-((x - 0.5) * coefficients[domain]).sum(1)))
        return x, (random.random(count) < probability).astype(np.int64)

    (x0, y0), (x1, y1) = draw(samples, share), draw(samples, 1 - share)
    federation = Federation.from_arrays(
        np.concatenate([x0, x1]),
        np.concatenate([y0, y1]),
        np.repeat([0, 1], samples),
        common=draw(tests, 0.5),
        holdout=0,
        classes=2,
        seed=seed,
    )
    return Opposites(federation, share)
