"""The notebook of the documentation runs, and is stored with its outputs."""

import json
import re
from pathlib import Path

import pytest

from notebooks import executed

NOTEBOOK = Path(__file__).parents[2] / "docs" / "first-comparison.ipynb"


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def kinds(cell):
    return [(output["output_type"], sorted(output.get("data", {}))) for output in cell["outputs"]]


def test_the_notebook_is_stored_with_outputs_and_without_paths():
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert all(cell["outputs"] for cell in code_cells(json.loads(text)))
    assert not re.search(r"/(home|root|tmp|work|Users|usr)/|site-packages|Traceback", text)


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", NOTEBOOK.read_text("utf-8")))
def test_links_are_valid(link):
    assert (NOTEBOOK.parent / link).exists()


@pytest.mark.long
@pytest.mark.extras("nbclient", "ipykernel", "pandas")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
def test_the_notebook_runs(tmp_path):
    stored = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    found = executed(NOTEBOOK, tmp_path)
    assert list(map(kinds, code_cells(found))) == list(map(kinds, code_cells(stored)))
    (compared,) = [cell for cell in code_cells(found) if "us.compare" in cell["source"]]
    progress, result = compared["outputs"]  # one output of progress, not one per round
    assert re.search(r"runs: (\d+)/\1 in ", progress["data"]["text/html"])
    assert "Of 2 rivals of fedavg" in result["data"]["text/html"]
    assert (tmp_path / "report.html").is_file()
