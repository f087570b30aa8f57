"""The page on skews: every recipe has a picture, and every command does what it says."""

import re

import pytest

import unskew as us
from pages import DOCS
from unskew.partition.registry import PARTITIONERS

PAGE = (DOCS / "partitioners.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^unskew data show digits --skew (\S+) --clients (\d+) --out (\S+)$", PAGE,
                      re.MULTILINE)  # fmt: skip


def test_every_recipe_is_on_the_page():
    shown = {skew.partition(":")[0] for skew, _, _ in COMMANDS}
    assert shown | {"natural"} == set(PARTITIONERS)
    assert len(COMMANDS) == PAGE.count("unskew data show digits")


@pytest.mark.parametrize(("skew", "clients", "picture"), COMMANDS)
def test_commands_deal_as_shown(skew, clients, picture):
    federation = us.load("digits", skew=skew, clients=int(clients))
    assert len(federation) == int(clients)
    assert f"(partitioners/{picture})" in PAGE
    assert (DOCS / "partitioners" / picture).read_bytes().startswith(b"\x89PNG")
