"""The campaign notices cases that take too long, and files that they must not create."""

import tempfile
import time
from pathlib import Path

import campaign
import pytest


def write_in(place):
    def make(rng, stock, targets):
        folder = {"case": Path(), "home": Path.home(), "tmp": Path(tempfile.gettempdir())}
        (folder.get(place, stock) / "stray").write_text("x")

    return make


def touch_stock(rng, stock, targets):
    (stock / "file").write_text("y")


def ask(rng, stock, targets):
    Path("input").write_text("x")
    targets.add("out")
    Path("out").mkdir()
    (Path("out") / "anything").write_text("x")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (write_in("case"), ["'stray' was created"]),
        (write_in("home"), ["home/stray was created, changed or removed"]),
        (write_in("tmp"), ["tmp/stray was created, changed or removed"]),
        (write_in("stock"), ["stock/stray was created, changed or removed"]),
        (touch_stock, ["stock/file was created, changed or removed"]),
        (ask, []),
    ],
    ids=["case", "home", "tmp", "stock", "changed", "asked for"],
)
def test_stray_files_are_findings(tmp_path, monkeypatch, make, expected):
    def prepare(folder):
        folder.mkdir()
        (folder / "file").write_text("x")

    monkeypatch.setattr(campaign, "KINDS", {"kind": (make, ("input",))})
    monkeypatch.setattr(campaign, "prepare", prepare)
    before = Path.cwd(), Path.home()
    assert [each.problem for each in campaign.run_campaign([0], tmp_path)] == expected
    assert (Path.cwd(), Path.home()) == before


@pytest.mark.parametrize("limit", ["SECONDS", "WAITING_SECONDS"])
def test_a_case_that_computes_or_waits_for_too_long_is_a_finding(monkeypatch, limit):
    def slow():
        while limit == "SECONDS":
            pass
        time.sleep(60)

    monkeypatch.setattr(campaign, limit, 1)
    assert "took too long" in campaign._problem(slow)
