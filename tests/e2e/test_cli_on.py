"""``--on`` of the commands that execute runs, and ``on`` in a TOML file."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from unskew.experiments import comparison, training

CONFIG = """
method = "fedavg"
model = "logistic"
out = "run"
on = "threads:2"
data = { name = "digits", clients = 3, samples = 60 }
train = { rounds = 2 }
"""
COMPARE = ("compare", "--data", "digits", "--clients", "3", "--samples", "60", "--model",
           "logistic", "--rounds", "2", "--seeds", "1", "--methods", "fedavg,mean")  # fmt: skip


@pytest.fixture
def asked(monkeypatch):
    """Let threads be a cluster, and return what the commands asked for."""
    asked = []

    def find_place(on, jobs, settings):
        asked.append((on, jobs, *(each.workers for each in settings)))
        return None if on is None else lambda _: ThreadPoolExecutor(1)

    for module in (comparison, training):
        monkeypatch.setattr(module, "find_place", find_place)
    return asked


def test_compare_prints_the_same_table(terminal, asked):
    here = terminal.output(*COMPARE, "--out", "here")
    away = terminal.output(*COMPARE, "--out", "away", "--on", "threads", "--jobs", "4")
    assert asked == [(None, None, None), ("threads", 4, None)]
    assert away.replace("away", "here") == here
    assert not Path("away", ".unskew-cluster").exists()


def test_a_configuration_names_a_cluster(terminal, asked):
    Path("run.toml").write_text(CONFIG)
    terminal.output("run", "run.toml")
    terminal.output(
        "run", "run.toml", "--on", "other", "--out", "second", "--set", "train.workers=2"
    )
    assert asked == [("threads:2", None, None), ("other", None, 2)]


def test_a_study_takes_on(terminal):
    error = terminal.error("study", "run", "ida-table1", "--scale", "smoke", "--on", "rai")
    assert "on: 'rai' is not known; did you mean 'ray'?" in error
