"""The deployment guide says what methods really send."""

import re
import warnings
from pathlib import Path

import pytest

from unskew.flower.traffic_preview import sends
from unskew.methods import METHODS

GUIDE = Path(__file__).parents[2] / "docs" / "deploy.md"
SHORT = {"feddisk": "feddisk:density_rounds=2,ratio_rounds=2"}
"""Methods whose own number of rounds is too large for a test; they send the same."""
BEGIN, END = "<!-- sends: begin -->\n", "<!-- sends: end -->\n"


@pytest.fixture(scope="module")
def told():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: sends(SHORT.get(name, name)) for name in sorted(METHODS)}


def table(told) -> str:
    rows = [{**sent.row, "method": f"`{name}`"} for name, sent in told.items()]
    lines = [" | ".join(rows[0]), "|".join("---" for _ in rows[0])]
    lines += [" | ".join(row.values()) for row in rows]
    return "".join(f"| {line} |\n" if "---" not in line else f"|{line}|\n" for line in lines)


def test_the_table_is_what_methods_send(told):
    _, _, rest = GUIDE.read_text(encoding="utf-8").partition(BEGIN)
    written, _, _ = rest.partition(END)
    assert written == table(told)


def test_everything_that_is_sent_up_is_explained(told):
    explained = set(re.findall(r"`([^`]+)`", GUIDE.read_text(encoding="utf-8").partition(END)[2]))
    sent = set().union(*(each.up for each in told.values()))
    assert sent
    assert sent <= explained


def test_what_is_known_of_some_methods(told):
    assert told["fedavg"].row["up besides the model"] == "-"
    assert told["ida"].individual
    assert told["feddisco"].up == {"label_counts"}
    assert told["scaffold"].up == told["scaffold"].down == {"control"}
    assert "sample_weights" in told["feddisk"].kept
    assert "sample_weights" not in told["feddisk"].up
    assert told["fedper"].stays == {"head"}
    assert told["central"].needs_samples
