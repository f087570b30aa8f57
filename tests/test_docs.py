"""The pages list every setting and method, and their links have existing targets."""

import importlib.util
import re
from pathlib import Path

import pytest

from unskew.data.config import DataConfig
from unskew.engine.settings import Settings
from unskew.methods import METHODS, make_method

ROOT = Path(__file__).parent.parent
METHOD_PAGES = ROOT / "docs" / "methods"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "benchmarks" / "README.md"])


def hooks_of_the_site():
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOOKS = hooks_of_the_site()


def first_cells(page: Path) -> set[str]:
    """Return the names in code style in the first column of a page's tables."""
    rows = [line for line in page.read_text().splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def test_every_setting_is_explained():
    known = set(Settings.model_fields) | set(DataConfig.model_fields)
    assert first_cells(ROOT / "docs" / "settings.md") == known


PARTS = ("Idea", "When to use it", "Equations", "Options", "What differs from the paper")


def test_every_method_is_in_the_index():
    index = (METHOD_PAGES / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \[`(.+?)`\]", index, re.MULTILINE)) == sorted(METHODS)
    pages = {path.stem for path in METHOD_PAGES.glob("*.md")} - {"README"}
    assert pages == set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_page_has_its_parts(name):
    text = (METHOD_PAGES / f"{name}.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert [heading for heading in headings if heading in PARTS] == list(PARTS)
    assert HOOKS.MARKER.findall(text) == [name]
    index = (METHOD_PAGES / "README.md").read_text(encoding="utf-8")
    assert f"[`{name}`]({name}.md)" in index
    assert f"methods/{name}.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


POOLED = {"central", "data-sharing"}
"""Methods that need all samples in one place, so they have no nodes."""


@pytest.mark.long  # a new method has its row last
def test_the_attack_table_has_every_method_that_runs_on_nodes():
    page = (ROOT / "docs" / "bad-nodes.md").read_text(encoding="utf-8")
    table = page.split("<!-- attacks: begin -->")[1].split("<!-- attacks: end -->")[0]
    assert set(re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)) == set(METHODS) - POOLED


def test_what_a_bad_node_can_do_is_named_for_all_methods_that_receive_further_values():
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([^`]+)`", page)) | FEDSAM_FAMILY
    for name in set(METHODS) - POOLED:
        received = {each for stage in make_method(name).stages() for each in stage.method.receives}
        assert received == {"train_loss"} or name in named, name


FEDSAM_FAMILY = {"fedsam", "mofedsam", "fedlesam", "fedspeed", "fedsmoo"}


@pytest.mark.long
def test_tables_of_options_are_generated():
    table = HOOKS.options_table(HOOKS.rows_of_methods()["fedprox"])
    assert "| `mu` | `0.01` | Strength of the proximal term. 0 is FedAvg. | 0.001, " in table
    assert "Sent to clients: model." in table


def test_what_a_page_leaves_to_do_is_found():
    template = ROOT / "src/unskew/cli/method_templates/page.md.txt"
    found = HOOKS.to_do(template.read_text(encoding="utf-8"))
    assert [text.split()[1] for text in found] == ["authors,", "what", "the", "the", "a"]
    assert not HOOKS.to_do((METHOD_PAGES / "fedavg.md").read_text(encoding="utf-8"))


def test_links_out_of_the_docs_become_links_of_the_site():
    link = HOOKS.with_site_links
    assert link("[a](b.md#c), [d](https://e)", "docs/x.md", "x.md") == "[a](b.md#c), [d](https://e)"
    assert link("[a](../benchmarks/README.md#b)", "docs/x.md", "x.md") == "[a](benchmarks.md#b)"
    assert link("[a](../../README.md)", "docs/m/x.md", "m/x.md") == "[a](../index.md)"
    assert link("[`a.py`](../src/a.py)", "docs/x.md", "x.md") == "`a.py`"
    assert link("[a](../docs/m/x.md)", "benchmarks/README.md", "benchmarks.md") == "[a](m/x.md)"


def without_code_blocks(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def slugs(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ +(.+?) *$", without_code_blocks(page.read_text()), re.MULTILINE)
    texts = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    names = [re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in texts]
    repeats = [names[:i].count(name) for i, name in enumerate(names)]
    return {f"{name}-{n}" if n else name for name, n in zip(names, repeats, strict=True)}


def test_slugs_follow_the_rules_of_github(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# Data: `[data]`\n## What's new, at 50 %?\n## A\n```\n# a comment\n```\n## A\n"
        "### The [link](x.md) and some_name\n"
    )
    assert slugs(page) == {"data-data", "whats-new-at-50-", "a", "a-1", "the-link-and-some_name"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_project_have_targets(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code_blocks(page.read_text())):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in slugs(target), link
