"""What all tests share; that this file is here also lets them import ``toys``."""

import pytest
from hypothesis import settings

from toys import small_federation

# A busy machine or a first import must not fail a property.
settings.register_profile("unskew", deadline=None)
settings.load_profile("unskew")


@pytest.fixture(autouse=True)
def no_power_cuts(monkeypatch):
    """Waiting for the disk guards against power cuts alone, and those no test can make."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture(scope="session")
def federation():
    return small_federation()
