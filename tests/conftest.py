"""Fixtures that all tests share; this file also makes ``toys`` importable."""

import signal

import pytest
from hypothesis import settings

from toys import small_federation
from unskew.engine.threads import threads

# A busy machine or a slow first import must not fail a property test.
settings.register_profile("unskew", deadline=None)
settings.load_profile("unskew")

# Programs that tests start must receive Ctrl-C, even if the shell ignores it for background jobs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch):
    """Skip waiting for the disk, which protects only against power cuts."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture(autouse=True)
def one_thread():
    """Tests compute too little for several threads, which would only wait for each other."""
    with threads(1):
        yield


@pytest.fixture(scope="session")
def federation():
    return small_federation()
