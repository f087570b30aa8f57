"""A regression through the command line: judged, tuned and decided by an error, and shown."""

import numpy as np
import pytest

from unskew.data.catalogue import CATALOGUE

NOTE = "10 quantile bins of the target stand for classes"


@pytest.fixture(scope="module")
def stays(tmp_path_factory):
    """A table of stays at four hospitals of equal sizes."""
    rng = np.random.default_rng(0)
    lines = ["age,ward,hospital,days"]
    for i in range(160):
        age, heart = rng.normal(50 + 4 * (i % 4), 10), rng.random() < 0.5
        days = 20 + 0.3 * (age - 50) + 5 * heart + rng.normal()
        lines.append(f"{age:.0f},{'heart' if heart else 'eyes'},{'nesw'[i % 4]},{days:.2f}")
    path = tmp_path_factory.mktemp("stays") / "stays.csv"
    path.write_text("\n".join(lines))
    return path


def compare(stays, *options):
    columns = ("--label-column", "days", "--client-column", "hospital", "--holdout", "0.25")
    fixed = ("--model", "linear", "--rounds", "3", "--metric", "rmse", "--jobs", "1")
    return ("compare", "--data", stays, *columns, *fixed, *options)


def test_tables_and_pages_are_those_of_a_regression(terminal, stays, tmp_path):
    out = tmp_path / "out"
    shown = terminal.output(*compare(stays, "--methods", "fedavg,mean", "--seeds", 2, "--out", out))
    assert "+0 (identical)" in shown
    page = (out / "report.html").read_text()
    assert NOTE in page
    assert "Not measured" not in page


def test_tuning_chooses_the_smallest_error(terminal, stays):
    tuning = ("--tune", "--tune-lr", "0.0001,0.1", "--tune-budget", 8, "--tune-rounds", 2)
    (row,) = terminal.json(*compare(stays, "--methods", "fedavg", "--seeds", 1, *tuning))
    trained = [each for each in row["tuning"]["results"] if each["rounds"] == 2]
    assert len(trained) == 2
    assert row["tuning"]["chosen"] == min(trained, key=lambda each: each["values"][0])


def test_deciding_waits_until_an_error_is_significantly_smaller(terminal, stays):
    waves = ("--lr", "0.05", "--seeds", 2, "--decide", "--budget", "10h")
    _, shown, _ = terminal.run(*compare(stays, "--methods", "fedavg,central", *waves))
    assert "central is significantly better than fedavg: -" in shown
    assert "All methods are decided" in shown


def test_data_is_shown_and_checked(terminal, stays, tmp_path):
    columns = (stays, "--label-column", "days", "--client-column", "hospital")
    shown = terminal.output("data", "show", *columns, "--out", tmp_path / "figure.svg")
    assert f"note: {NOTE}" in shown
    assert "quantile bin of the target" in (tmp_path / "figure.svg").read_text()
    assert terminal.json("data", "show", *columns)["task"] == "regression"
    assert "class" not in terminal.output("data", "check", *columns, "--holdout", "0.2")


@pytest.mark.parametrize(
    ("days", "found"),
    [
        (lambda i: (20 + i % 7) * (1000 if i % 4 == 0 else 1), "client 'n'\n  give all clients"),
        (lambda i: i % 30, "nothing found"),
    ],
)
def test_targets_of_whole_numbers_are_checked_and_converted(terminal, tmp_path, days, found):
    rows = [f"{i * i % 31},{'nesw'[i % 4]},{days(i)}" for i in range(80)]
    (tmp_path / "days.csv").write_text("\n".join(["age,hospital,days", *rows]))
    columns = ("--label-column", "days", "--client-column", "hospital", "--holdout", "0.2")
    options = (*columns, "--task", "regression")
    assert found in terminal.output("data", "check", tmp_path / "days.csv", *options)
    out = terminal.output("data", "convert", tmp_path / "days.csv", tmp_path / "saved", *options)
    assert "shape=(1,), regression)" in out


def test_a_source_without_classes_is_a_regression(terminal, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "unskew").mkdir()
    rng, roles = np.random.default_rng(0), CATALOGUE["schools"].table
    lines = [",".join([roles.label, roles.client, *roles.features])]
    lines += [
        f"{rng.integers(320, 626)},{i % 4},{'regular' if i % 3 else 'small.class'},"
        f"{i % 9},{'girl' if i % 2 else 'boy'},{'no' if i % 5 else 'yes'},white"
        for i in range(120)
    ]
    (tmp_path / "unskew" / "schools.csv").write_text("\n".join(lines))
    options = ("--methods", "fedavg", "--seeds", 1, "--rounds", 2)
    (row,) = terminal.json("compare", "--data", "schools", *options)
    assert set(row["others"]) == {"mae", "r2"}
    shown = terminal.output("data", "show", "schools")
    assert "regression" in shown
    assert f"note: {NOTE}" in shown
