"""Results of a commit are those of the commit before, unless a golden file says otherwise.

``python tests/golden/record.py NAMES`` writes the files again where a change is wanted.
"""

import json
from pathlib import Path

import pytest
from golden_cases import CASES, unlike

VALUES = Path(__file__).parent / "values"


@pytest.mark.parametrize("name", CASES)
def test_nothing_has_changed_by_accident(name):
    if name == "flower_round":
        pytest.importorskip("flwr")
    golden = json.loads((VALUES / f"{name}.json").read_text())
    now = json.loads(json.dumps(CASES[name]()))
    assert unlike(golden, now, name) == []


def test_a_change_would_be_noticed():
    golden = {"loss": 0.5, "sizes": [3, 4], "name": "ida"}
    assert unlike(golden, {**golden, "loss": 0.50001}) == []
    assert unlike(golden, {**golden, "loss": 0.501}) == ["/loss: 0.5 0.501"]
    assert unlike(golden, {**golden, "sizes": [4, 3]}) == ["/sizes/0: 3 4", "/sizes/1: 4 3"]
    assert unlike(golden, {"loss": 0.5, "sizes": [3, 4]}) == [": has no name"]
