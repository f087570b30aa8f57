"""The commands and examples of README.md and the documentation work."""

from pathlib import Path

import pytest
import torch

import unskew as us
from pages import DOCS, ROOT, blocks, run_page
from toys import vector_of

RUN = ("README.md", "docs/index.md", "docs/composition.md", "docs/skew.md", "docs/tuning.md",
       "docs/tutorial.md", "docs/verdicts.md", "docs/your-data.md", "docs/your-method.md",
       "docs/your-network.md", "docs/command-line.md", "docs/methods/fedfusion.md",
       "docs/add-a-method.md", "docs/check.md", "docs/metrics.md", "docs/summary.md",
       "docs/tables.md", "docs/text.md", "docs/settings.md")  # fmt: skip
"""Pages that are run from top to bottom."""

ELSEWHERE = {
    "docs/cluster.md": "tests/experiments/cluster/test_loopback.py",
    "docs/aggregation.md": "tests/aggregation/test_rules_page.py",
    "docs/privacy.md": "tests/privacy/test_privacy_page.py",
    "docs/flower.md": "tests/flower/test_flower_parity.py",
    "docs/tutorial-hospitals.md": "tests/e2e/test_hospitals.py",
}
"""Pages whose examples, or what they show, have their own tests."""


@pytest.fixture
def read(terminal):
    return lambda page: run_page(ROOT / page, terminal)


OWN_TEST = ("README.md", "docs/tutorial.md", "docs/command-line.md", "docs/summary.md")
LONG = ("docs/methods/fedfusion.md", "docs/tuning.md", "docs/verdicts.md")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.long] if page in LONG else [])
        for page in RUN
        if page not in OWN_TEST
    ],
)
def test_examples_work(page, read):
    read(page)


@pytest.mark.long
def test_the_readme_works(read):
    names = read("README.md")
    assert names["run"].method == "fedprox:mu=0.1"
    custom = us.train(names["fed"], names["method"], rounds=1)
    assert custom.method == "proximal:mu=0.1+ida"
    assert Path("runs/compared/report.html").is_file()


@pytest.mark.long
def test_the_tutorial_works(read):
    names = read("docs/tutorial.md")
    assert names["best"].method == "fedavgm"
    for name in ("distribution.png", "report.html", "figures/table.tex", "digits.pt"):
        assert Path(name).is_file()
    assert len(list(Path("runs/tutorial").glob("*/seed*/run.json"))) == 4 * 8


@pytest.mark.long
def test_the_commands_work(read):
    read("docs/command-line.md")
    assert Path("distribution.png").is_file()
    assert Path("figures", "table.tex").is_file()
    assert len(list(Path("runs/three").glob("*/seed*/run.json"))) == 15


@pytest.mark.long
def test_the_summary_works(read):
    names = read("docs/summary.md")
    assert len(names["summary"].federations) == 4
    assert Path("figures", "ranks.svg").is_file()
    assert Path("summary.html").is_file()


def test_no_example_is_without_a_test():
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    executable = {page for page in pages if {"python", "sh"} & {name for name, _ in blocks(page)}}
    tested = {ROOT / page for page in (*RUN, *ELSEWHERE)}
    assert executable == tested


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def test_the_method_in_the_readme_is_fedprox(federation):
    (snippet,) = [text for _, text in blocks(ROOT / "README.md") if "class Proximal" in text]
    assert len(snippet.splitlines()) <= 25
    names = {"__name__": "readme"}
    exec(snippet, names)
    options = {"model": "mlp:hidden=8", "rounds": 2, "lr": 0.1}
    mine = us.train(federation, names["method"], **options)
    built_in = us.train(federation, "fedprox:mu=0.1+ida", **options)
    assert torch.equal(vector_of(mine), vector_of(built_in))
