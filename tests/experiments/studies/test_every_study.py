"""Every study of the package at the scale smoke, as CI runs them."""

import json
import math

import pytest

from unskew.experiments.studies.library import open_study, study_names
from unskew.experiments.studies.running import run_study


@pytest.mark.long
@pytest.mark.parametrize("name", study_names())
def test_a_study_runs_on_the_bundled_digits(name, tmp_path, monkeypatch):
    monkeypatch.delenv("UNSKEW_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    study = open_study(name, "smoke")
    run_study(study, tmp_path / "out")
    result = json.loads((tmp_path / "out/result.json").read_text())
    rows = [row for case in result["cases"] for row in case["rows"]]
    first = study.file.measures[0]
    values = [row["measured"][first]["mean"] for row in rows if first in row["measured"]]
    assert values
    assert all(value is not None and math.isfinite(value) for value in values)
    assert (tmp_path / "out/result.md").is_file()
    assert list((tmp_path / "out/figures").glob("*.png"))
