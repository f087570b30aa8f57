"""The commands and examples of README.md and the documentation work."""

from pathlib import Path

import pytest

import unskew
from pages import DOCS, ROOT, blocks, run_page

RUN = ("README.md", "docs/index.md", "docs/skew.md", "docs/tuning.md", "docs/tutorial.md",
       "docs/verdicts.md", "docs/your-data.md", "docs/your-method.md", "docs/your-network.md",
       "docs/command-line.md", "docs/methods/fedfusion.md")  # fmt: skip
"""Pages that are run from top to bottom."""

ELSEWHERE = {
    "docs/aggregation.md": "tests/aggregation/test_rules_page.py",
    "docs/privacy.md": "tests/privacy/test_privacy_page.py",
    "docs/flower.md": "tests/flower/test_flower_parity.py",
}
"""Pages whose examples, or what they show, have their own tests."""


@pytest.fixture
def read(terminal):
    return lambda page: run_page(ROOT / page, terminal)


@pytest.mark.parametrize("page", [page for page in RUN if page not in ("README.md",
                         "docs/tutorial.md", "docs/command-line.md")])  # fmt: skip
def test_examples_work(page, read):
    read(page)


def test_the_readme_works(read):
    names = read("README.md")
    assert names["run"].method == "fedprox:mu=0.1"
    custom = unskew.train(names["fed"], names["FedProx"](mu=0.1), rounds=1)
    assert custom.method == "fedprox:mu=0.1"
    assert Path("runs/first/run.json").is_file()
    assert Path("runs/compared/report.html").is_file()


def test_the_tutorial_works(read):
    names = read("docs/tutorial.md")
    assert names["best"].method == "fedavgm"
    for name in ("distribution.png", "report.html", "figures/table.tex", "digits.pt"):
        assert Path(name).is_file()
    assert len(list(Path("runs/first").glob("*/seed*/run.json"))) == 4 * 8


def test_the_commands_work(read):
    read("docs/command-line.md")
    assert Path("distribution.png").is_file()
    assert Path("figures", "table.tex").is_file()
    assert len(list(Path("runs/three").glob("*/seed*/run.json"))) == 9


def test_no_example_is_without_a_test():
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    executable = {page for page in pages if {"python", "sh"} & {name for name, _ in blocks(page)}}
    tested = {ROOT / page for page in (*RUN, *ELSEWHERE)}
    assert executable == tested


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def test_the_method_in_the_readme_is_the_source_code():
    source = Path(unskew.__file__).parent / "methods" / "fedprox.py"
    assert ("python", source.read_text(encoding="utf-8")) in blocks(ROOT / "README.md")
