"""``unskew summary`` of three small comparisons of the digits."""

import json

import pytest

SKEWS = {"classes": "n-classes:n=2", "dirichlet": "dirichlet:alpha=0.1", "noise": "noise"}


@pytest.fixture
def comparisons(terminal, tmp_path):
    """Three comparisons; the last lacks a method."""
    for name, skew in SKEWS.items():
        methods = "fedavg,mean,median" if name != "noise" else "fedavg,mean"
        terminal.output(
            "compare", "--skew", skew, "--clients", 4, "--samples", 200, "--rounds", 2, "--seeds",
            2, "--model", "logistic", "--methods", methods, "--out", tmp_path / "runs" / name,
        )  # fmt: skip
    return tmp_path / "runs"


def test_comparisons_are_summarised(terminal, comparisons, tmp_path):
    page, figures = tmp_path / "summary.html", tmp_path / "figures"
    output = terminal.output("summary", comparisons, "-o", page, "--figures", figures)
    assert "gain over fedavg in accuracy, percentage points" in output
    assert "median" in output
    assert "2 of 3" in output
    assert "Mean ranks of 2 methods need 4 federations" in output
    assert f"page: {page}" in output
    text = page.read_text()
    assert '<figure id="gains">' in text
    assert "digits, dirichlet:alpha=0.1" in text
    assert f"unskew summary {comparisons} -o {page}" in text
    assert (figures / "summary.tex").read_text().startswith("\\begin{tabular}")
    found = terminal.json("summary", *(comparisons / name for name in SKEWS), "--margin", "90")
    assert found["federations"] == [f"digits, {skew}" for skew in SKEWS.values()]
    assert found["margin"] == 90
    gain = found["gains"]["mean"]
    assert gain["low"] <= gain["mean"] <= gain["high"]
    assert gain["p_exceeds_margin"] < 0.01
    assert found["answers"]["median"]["digits, noise"] is None
    assert found["ranks"] is None
    one = terminal.output("summary", comparisons / "noise")
    assert "needs two or more comparisons; there is one" in one
    again = terminal.json("summary", comparisons, comparisons / "noise")
    assert len(again["federations"]) == 3  # a folder that is passed twice counts once


def test_bad_folders_are_one_line_errors(terminal, tmp_path):
    assert "there is no such folder" in terminal.error("summary", tmp_path / "none")
    assert "there is no comparison in it" in terminal.error("summary", tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "comparison.json").write_text(json.dumps({"methods": ["fedavg"]}))
    assert "there is no run in it" in terminal.error("summary", tmp_path)
