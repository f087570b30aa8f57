"""Fixtures of the command-line tests."""

from pathlib import Path

import pytest

from terminal import Terminal
from toys import small_federation


@pytest.fixture
def terminal(tmp_path, monkeypatch, capsys) -> Terminal:
    """A wide terminal in an empty folder."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.chdir(tmp_path)
    return Terminal(monkeypatch, capsys)


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    """The folder of a small saved federation."""
    return small_federation().save(tmp_path_factory.mktemp("data") / "small")
