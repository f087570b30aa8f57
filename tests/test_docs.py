"""The pages list every setting and method, and their links lead to existing files."""

import re
from pathlib import Path

import pytest

from unskew.data.config import DataConfig
from unskew.engine.settings import Settings
from unskew.methods import METHODS

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "benchmarks" / "README.md"])


def first_cells(page: Path) -> set[str]:
    """Return the names in code font in the first column of a page's tables."""
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_project_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in link and not link.startswith("mailto:"):
            assert (page.parent / link).exists(), link
