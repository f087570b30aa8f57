"""A bounded campaign; ``make fuzz`` runs a longer one."""

import pytest
from campaign import run_campaign

CASES, PARTS = 2000, 4


@pytest.mark.long
@pytest.mark.extras("pyarrow")
@pytest.mark.parametrize("part", range(PARTS))
def test_no_input_ends_in_a_traceback(tmp_path, monkeypatch, part):
    monkeypatch.setenv("TERM", "dumb")
    cases = range(part * CASES // PARTS, (part + 1) * CASES // PARTS)
    assert list(map(str, run_campaign(cases, tmp_path))) == []
