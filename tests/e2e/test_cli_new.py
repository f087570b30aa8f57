"""``unskew new method`` writes methods that work, and tests that pass."""

import os
import runpy
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import torch

import unskew as us
from marks import long_after
from pages import ROOT
from toys import small_federation, vector_of
from unskew.methods import make_method

NEUTRAL = {"client": "mu=0", "server": "power=0", "personal": "layers=0", "setup": "groups=1"}
OPTIONS = {"model": "mlp:hidden=6", "rounds": 2, "batch_size": 8, "lr": 0.1}
NAMES = {"client": "GradNorm", "server": "FairAvg", "personal": "LastOnes", "setup": "zturns"}


@pytest.mark.parametrize("kind", NEUTRAL)
def test_a_method_in_any_folder(kind, terminal):
    output = terminal.output("new", "method", "GradNorm", "--kind", kind)
    assert "unskew compare --methods fedavg,gradnorm.py:GradNorm" in output
    assert sorted(path.name for path in Path().iterdir()) == ["gradnorm.py", "test_gradnorm.py"]
    federation = small_federation()
    neutral, plain, active = (
        us.train(federation, method, **OPTIONS)
        for method in (f"gradnorm.py:GradNorm:{NEUTRAL[kind]}", "fedavg", "gradnorm.py:GradNorm")
    )
    assert torch.equal(vector_of(neutral), vector_of(plain))
    assert not torch.equal(vector_of(active), vector_of(plain))


@pytest.mark.parametrize("kind", long_after(1, NEUTRAL))
def test_the_test_of_a_method_in_any_folder(kind, terminal):
    terminal.output("new", "method", "gradnorm", "--kind", kind)
    output = StringIO()
    with redirect_stdout(output):
        runpy.run_path("test_gradnorm.py", run_name="__main__")
    assert output.getvalue() == "both tests passed\n"


def test_it_composes_and_is_tuned(terminal):
    terminal.output("new", "method", "GradNorm")
    method = make_method("gradnorm.py:GradNorm:mu=0.5+ida")
    assert method.parts[0].grid["mu"] == (0.01, 0.1, 1.0)
    assert "Strength of the term" in terminal.output("methods", "gradnorm.py:GradNorm")


def test_nothing_is_overwritten(terminal):
    Path("test_gradnorm.py").write_text("mine", encoding="utf-8")
    assert "test_gradnorm.py: it already exists" in terminal.error("new", "method", "GradNorm")
    assert not Path("gradnorm.py").exists()
    assert Path("test_gradnorm.py").read_text(encoding="utf-8") == "mine"


def test_the_package_is_changed_only_if_asked(terminal, tmp_path):
    clone = ("pyproject.toml", "src/unskew/methods/_registry.py")
    for file in clone:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    terminal.output("new", "method", "GradNorm")
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")}
    assert written == {*clone, "gradnorm.py", "test_gradnorm.py"}
    for file in clone:
        assert (tmp_path / file).read_bytes() == (ROOT / file).read_bytes()


def test_the_package_is_in_a_clone(terminal):
    assert terminal.error("new", "method", "GradNorm", "--package") == (
        "error: --package: this folder is not the root of a clone of unskew\n"
    )
    assert not list(Path().iterdir())


@pytest.mark.parametrize("name", ["Grad-Norm", "1st", "x", "a" * 26])
def test_a_bad_name(name, terminal):
    assert "name must be 2 to 25 letters and digits" in terminal.error("new", "method", name)


def test_a_name_that_is_taken(terminal):
    assert "there is a method 'fedprox' already" in terminal.error("new", "method", "FedProx")


@pytest.mark.long
def test_the_tests_of_a_clone_pass_with_new_methods(terminal, tmp_path):
    for folder in ("src", "tests", "docs"):
        ignored = shutil.ignore_patterns("__pycache__", "results")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    for file in ("pyproject.toml", "mkdocs.yml"):
        shutil.copy(ROOT / file, tmp_path)
    for kind, name in NAMES.items():
        terminal.output("new", "method", name, "--kind", kind, "--package")
        again = terminal.error("new", "method", name, "--package")
        assert f"src/unskew/methods/{name.lower()}.py" in again
    tests = [
        *(
            "tests/methods",
            "tests/e2e/test_option_docs.py",
            "tests/flower_deploy/test_deploy_docs.py",
        ),
        *("tests/experiments/tuning/test_space.py", "tests/flower/test_flower_parity.py"),
        "tests/test_docs.py::test_every_method_is_in_the_index",
        "tests/test_docs.py::test_a_method_page_has_its_parts",
    ]
    new = [name.lower() for name in NAMES.values()]
    chosen = " or ".join([*new, "table_lists", "in_the_index"])
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
    run_pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    run_pytest += ["-k", f"({chosen}) and not test_pairs", "--color=no"]
    done = subprocess.run(run_pytest, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    lint = [[sys.executable, "-m", "ruff", *each] for each in (["check"], ["format", "--check"])]
    for command in lint:
        subprocess.run([*command, "src", "tests"], check=True, capture_output=True)
    mypy = [sys.executable, "-m", "mypy", *(f"src/unskew/methods/{name}.py" for name in new)]
    subprocess.run(mypy, check=True, capture_output=True)
