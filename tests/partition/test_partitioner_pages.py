"""The page on partitioners: each has a figure, and every command works as shown."""

import re

import pytest

import unskew as us
from pages import DOCS
from unskew.partition.registry import PARTITIONERS

PAGE = (DOCS / "partitioners.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^unskew data show digits --skew (\S+) --clients (\d+) --out (\S+)$", PAGE,
                      re.MULTILINE)  # fmt: skip


def test_every_partitioner_is_on_the_page():
    shown = {skew.partition(":")[0] for skew, _, _ in COMMANDS}
    assert shown | {"natural"} == set(PARTITIONERS)
    assert len(COMMANDS) == PAGE.count("unskew data show digits")


@pytest.mark.parametrize(("skew", "clients", "figure"), COMMANDS)
def test_commands_partition_as_shown(skew, clients, figure):
    federation = us.load("digits", skew=skew, clients=int(clients))
    assert len(federation) == int(clients)
    assert f"(partitioners/{figure})" in PAGE
    assert (DOCS / "partitioners" / figure).read_bytes().startswith(b"\x89PNG")
