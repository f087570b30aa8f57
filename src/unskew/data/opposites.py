"""A federation whose density ratios are known: two domains, held in opposite shares.

Features are binary. In the first domain few of them are one and the label follows a steep rule, in
the second many are one and the rule is faint. Both clients have samples of both domains, one mostly
of the first, the other mostly of the second, so they cover the same support with opposite
densities. A linear model cannot follow both rules: which compromise is best depends on how often
each domain occurs, and that is what sample weights put right.
"""

from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from unskew.data.federation import Federation
from unskew.utils.rng import generator

Floats = NDArray[np.float64]

_ONES = (0.3, 0.7)
"""The chance of a one in each domain."""
_STEEP, _FAINT = 6.0, 0.5


@dataclass(frozen=True, eq=False)
class Opposites:
    """The federation, and the exact log density ratio of any sample of a client."""

    federation: Federation
    share: float

    def log_ratio(self, client: int, x: NDArray[np.float32]) -> Floats:
        """Return ``log p(x)/q_k(x)``, p being the even mixture of both domains."""
        ones, features = x.sum(1, dtype=np.float64), x.shape[1]
        first, second = (ones * log(p) + (features - ones) * log(1 - p) for p in _ONES)
        own = self.share if client == 0 else 1 - self.share
        q = np.logaddexp(first + log(own), second + log(1 - own))
        ratio: Floats = np.logaddexp(first, second) - log(2) - q
        return ratio

    @property
    def pooled(self) -> Federation:
        """All samples in the hands of one client: what the best model could learn from."""
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
    """Draw two clients of so many samples; the first has ``share`` of them in the first domain."""
    random = generator(seed, "opposites")
    rules = np.stack([random.normal(size=features) * _STEEP, random.normal(size=features) * _FAINT])

    def draw(count: int, first: float) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        domain = (random.random(count) >= first).astype(np.int64)
        x = (random.random((count, features)) < np.array(_ONES)[domain, None]).astype(np.float32)
        chance = 1 / (1 + np.exp(-((x - 0.5) * rules[domain]).sum(1)))
        return x, (random.random(count) < chance).astype(np.int64)

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
