"""The deployment guide lists what methods send."""

import re
import warnings
from pathlib import Path

import pytest

from unskew.flower.loopback.environment import environment
from unskew.flower.traffic_preview import preview_traffic
from unskew.methods import METHODS

GUIDE = Path(__file__).parents[2] / "docs" / "deploy.md"
SHORT = {"feddisk": "feddisk:density_rounds=2,ratio_rounds=2"}
"""Methods whose default number of rounds is too large for a test; they send the same."""
BEGIN, END = "<!-- sends: begin -->\n", "<!-- sends: end -->\n"


@pytest.fixture(scope="module")
def previews():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: preview_traffic(SHORT.get(name, name)) for name in sorted(METHODS)}


def table(previews) -> str:
    rows = [{**each.row, "method": f"`{name}`"} for name, each in previews.items()]
    lines = [" | ".join(rows[0]), "|".join("---" for _ in rows[0])]
    lines += [" | ".join(row.values()) for row in rows]
    return "".join(f"| {line} |\n" if "---" not in line else f"|{line}|\n" for line in lines)


@pytest.mark.long
def test_the_table_lists_what_methods_send(previews):
    _, _, rest = GUIDE.read_text(encoding="utf-8").partition(BEGIN)
    written, _, _ = rest.partition(END)
    assert written == table(previews)


@pytest.mark.long
def test_everything_that_is_sent_up_is_explained(previews):
    explained = set(re.findall(r"`([^`]+)`", GUIDE.read_text(encoding="utf-8").partition(END)[2]))
    sent = set().union(*(each.up for each in previews.values()))
    assert sent
    assert sent <= explained


@pytest.mark.parametrize("page", ["flower.md", "deploy.md"])
def test_the_guides_say_how_to_switch_off_the_installation_of_dependencies(page):
    variable = next(name for name in environment() if "DEPENDENCY_INSTALLATION" in name)
    assert environment()[variable] == "1"  # as `unskew flower up` sets it
    assert f"{variable}=1" in (GUIDE.parent / page).read_text(encoding="utf-8")


@pytest.mark.long
def test_known_methods(previews):
    assert previews["fedavg"].row["sent up besides the model"] == "-"
    assert previews["ida"].needs_individual_updates
    assert previews["feddisco"].up == {"label_counts"}
    assert previews["scaffold"].up == previews["scaffold"].down == {"scaffold/control"}
    assert "feddisk/sample_weights" in previews["feddisk"].state
    assert "feddisk/sample_weights" not in previews["feddisk"].up
    assert previews["fedper"].local_parts == {"head"}
    assert previews["central"].needs_samples
