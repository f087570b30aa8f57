"""Results are not reused after a change of what a custom method uses."""

import subprocess
import sys

import pytest

METHOD = """
from helpers import centred
from unskew.methods import Aspect, ServerSide


class Mine(ServerSide):
    replaces = frozenset({Aspect.SERVER_STEP})

    def step(self, server, vector, uploads):
        return type(server)(server.vector + centred(vector - server.vector), server.state)
"""
LATE = "SHIFT = 0.0\n"
HELPERS = "MEAN = 0.0\n\n\ndef centred(values):\n    return values - MEAN\n"
METRIC = "W = 1\n\n\ndef cost(y, scores):\n    return W * float(y.mean())\n"
UNSKEW = ("-c", "from unskew.cli import main; main()")


@pytest.fixture
def python(tmp_path):
    """Run Python in a new process, in which every file is imported again."""
    write(tmp_path, METHOD, "mine.py")
    write(tmp_path, HELPERS, "helpers.py")
    write(tmp_path, LATE, "late.py")
    write(tmp_path, METRIC, "metric.py")

    def run(*arguments):
        command = [sys.executable, *map(str, arguments)]
        done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    return run


def write(folder, text, name):
    (folder / name).write_text(text, encoding="utf-8")


def changed(*names):
    return f"because code that it used has changed: {', '.join(names)}; undo the change"


def test_a_change_of_what_a_method_or_metric_uses_is_named(python, tmp_path):
    size = ("--rounds", 1, "--seeds", 2, "--samples", 200, "--clients", 3)
    methods = ("--methods", "fedavg,mine.py:Mine", "--metrics", "metric.py:cost")
    compare = (*UNSKEW, "compare", *size, *methods, "--out", "runs")
    first = python(*compare)
    assert first[0] == 0, first[2]
    assert python(*compare) == first
    write(tmp_path, HELPERS.replace("0.0", "1.0"), "helpers.py")
    code, output, error = python(*compare)
    assert (code, output) == (2, "")
    assert changed("helpers.py") in error
    assert "mine.py-Mine" in error
    write(tmp_path, HELPERS, "helpers.py")
    write(tmp_path, METRIC.replace("1", "2"), "metric.py")
    assert changed("metric.py") in python(*compare)[2]


SCRIPT = """
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context

import helpers
import unskew as us
from unskew.methods import Aspect, ServerSide

RATE, OTHER = 1.0, 1
names = {"a": 1.0}


@lru_cache
def factor(power):
    return names["a"] * 2**power


def shifted(values):
    def inner():
        from late import SHIFT
        return values + SHIFT
    return inner()


def scaled(values):
    return shifted(helpers.centred(values)) * RATE * factor(0)


class Mine(ServerSide):
    replaces = frozenset({Aspect.SERVER_STEP})

    def step(self, server, vector, uploads):
        return type(server)(server.vector + scaled(vector - server.vector), server.state)


if __name__ == "__main__":
    digits = us.load("digits", clients=3, samples=200)
    workers = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    options = {"on": workers} if "workers" in sys.argv else {}
    us.compare(digits, ["fedavg", Mine()], rounds=1, seeds=1, out="runs", progress=False, **options)
"""


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("RATE, OTHER = 1.0", "RATE, OTHER = 0.5", "RATE"),
        ("2**power", "3**power", "factor"),
        ('"a": 1.0', '"a": 2.0', "names"),
        ("values)) * RATE", "values)) / RATE", "scaled"),
        ("server.vector + scaled", "server.vector - scaled", "Mine"),
        ("MEAN = 0.0", "MEAN = 0.5", "helpers.py"),
        ("SHIFT = 0.0", "SHIFT = 0.5", "late.py"),
    ],
)
def test_a_script_names_what_has_changed(python, tmp_path, old, new, named):
    write(tmp_path, SCRIPT, "script.py")
    code, _, error = python("script.py")
    assert code == 0, error
    write(
        tmp_path, SCRIPT.replace("OTHER = 1.0, 1", "OTHER = 1.0, 2").replace(old, new), "script.py"
    )
    write(tmp_path, HELPERS.replace(old, new), "helpers.py")
    write(tmp_path, LATE.replace(old, new), "late.py")
    code, _, error = python("script.py")
    assert code == 1
    assert changed(named) in error


@pytest.mark.long
def test_code_of_a_script_has_the_same_hash_on_a_worker(python, tmp_path):
    write(tmp_path, SCRIPT, "script.py")
    for arguments in (("workers",), ("workers",), ()):
        code, _, error = python("script.py", *arguments)
        assert code == 0, error
    assert '"factor": ' in (tmp_path / "runs/mine/seed0/run.json").read_text(encoding="utf-8")
