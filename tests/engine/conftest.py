import numpy as np
import pytest

from unskew.data.federation import Federation


def small_federation(
    sizes=(40, 25, 13, 7), *, features=5, classes=3, seed=0, holdout=0.2
) -> Federation:
    """Clients of unequal sizes whose labels follow a linear rule plus noise."""
    rng = np.random.default_rng(seed)
    samples = sum(sizes)
    x = rng.normal(size=(samples, features)).astype(np.float32)
    y = (x @ rng.normal(size=(features, classes)) + rng.normal(size=(samples, classes))).argmax(1)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    common = (x[:30] + 0.1, y[:30])
    return Federation.from_arrays(
        x, y, owner, common=common, holdout=holdout, classes=classes, seed=seed
    )


@pytest.fixture(scope="session")
def federation() -> Federation:
    return small_federation()
