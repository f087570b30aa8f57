"""The pages list every setting and method, and their links have existing targets."""

import re
from pathlib import Path

import pytest

from unskew.data.config import DataConfig
from unskew.engine.settings import Settings
from unskew.methods import METHODS

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "benchmarks" / "README.md"])


def first_cells(page: Path) -> set[str]:
    """Return the names in code style in the first column of a page's tables."""
    rows = [line for line in page.read_text().splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def test_every_setting_is_explained():
    known = set(Settings.model_fields) | set(DataConfig.model_fields)
    assert first_cells(ROOT / "docs" / "settings.md") == known


def test_every_method_has_a_page():
    index = ROOT / "docs" / "methods" / "README.md"
    assert first_cells(index) == set(METHODS)
    pages = {path.name for path in index.parent.glob("*.md")} - {index.name}
    assert pages == set(re.findall(r"\]\(([\w-]+\.md)\)", index.read_text()))


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
