"""Hospitals with raw tables: made-up ones, and ``heart``, which is fetched from PyPI."""

import csv
import json
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from hospitals import write_csv, write_hospitals
from pages import DOCS, run_page
from terminal import PROGRAM
from unskew import Federation
from unskew.runs.read import read_run

WORDS = {"procedure": ("PTCA", "CABG"), "sex": ("female", "male"), "admit": ("elective", "urgent")}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A fresh cache folder, into which ``heart`` is fetched."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("XDG_CACHE_HOME", str(folder))
        subprocess.run([*PROGRAM, "data", "fetch", "heart"], check=True, timeout=300)
    return folder


def made_up_table(request, folder):
    return write_hospitals(folder), "outcome"


def heart_table(request, folder):
    """Write ``heart`` with texts as categories and a tenth of three hospitals' cells blank."""
    with (request.getfixturevalue("cache") / "unskew" / "heart.csv").open() as file:
        rows = list(csv.DictReader(file))
    rng = np.random.default_rng(0)
    with_gaps = sorted({row["hospital"] for row in rows})[:3]
    for row in rows:
        del row[""]
        row |= {name: words[int(row[name])] for name, words in WORDS.items()}
        if row["hospital"] in with_gaps:
            row |= {n: "" for n in ("los", "sex", "age75", "admit") if rng.random() < 0.1}
    assert sum(row["los"] == "" for row in rows) > 20
    return write_csv(folder / "hearts.csv", rows), "procedure"


@pytest.fixture(params=[made_up_table, pytest.param(heart_table, marks=pytest.mark.long)])
def table(request, tmp_path):
    return request.param(request, tmp_path)


def held_out(path):
    """Return the raw rows that are the clients' test sets."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    numbers, hospitals = np.arange(len(rows)), [row["hospital"] for row in rows]
    split = Federation.from_arrays(numbers, np.zeros(len(rows), int), hospitals, holdout=0.2)
    return [rows[int(number)] for number in split.test.x.ravel()]


def test_the_auc_of_a_raw_table_in_one_command(table, terminal):
    path, label = table
    roles = ["--label-column", label, "--client-column", "hospital", "--holdout", 0.2]
    command = ["compare", "--data", path, *roles, "--metric", "auc", "--methods", "fedavg"]
    command += ["--rounds", 3, "--seeds", 1, "--out", "runs", "--json"]
    code, output, errors = terminal.run(*command)
    assert (code, errors) == (0, "page: runs/report.html\n")
    (row,) = json.loads(output)
    run = read_run("runs/fedavg/seed0")
    rows = held_out(path)
    scores = run.predictor.predict_proba(rows)[:, 1]
    pooled = roc_auc_score([row[label] == run.predictor.class_names[1] for row in rows], scores)
    assert run.metrics[-1]["local"]["pooled_auc"] == pytest.approx(pooled, abs=1e-9)
    assert pooled > 0.7
    by_round = [each["local"]["auc"] for each in run.metrics]
    assert (row["metric"], row["level"]) == ("auc", "local")
    assert row["accuracy"] == pytest.approx(np.mean(by_round))
    assert run.table().columns[2:] == ["local auc", "worst client", "personal", "accuracy"]


def prepared(table, prepare):
    path, label = table
    return Federation.from_table(
        path, label=label, client="hospital", holdout=0.2, prepare=prepare
    )  # fmt: skip


def test_means_and_categories_are_those_of_all_samples(table):
    federated, pooled = (prepared(table, each) for each in ("federated", "pooled"))
    steps = [each.preprocessing.transform.columns for each in (federated, pooled)]
    for ours, theirs in zip(*steps, strict=True):
        assert ours.center == pytest.approx(theirs.center, rel=1e-9, abs=1e-9)
        assert ours.scale == pytest.approx(theirs.scale, rel=1e-9)
        assert (ours.kind, ours.levels, ours.gap) == (theirs.kind, theirs.levels, theirs.gap)
    assert {step.kind for step in steps[0]} >= {"number", "category"}
    assert any(step.gap for step in steps[0])


def test_medians_and_quartiles_are_within_the_stated_error(table):
    points = 10
    federated = prepared(table, f"federated:scale=robust,points={points}")
    raw = prepared(table, f"pooled:scale=robust,points={points}")
    names = raw.preprocessing.transform.feature_names
    numbers = [step for step in federated.preprocessing.transform.columns if step.kind == "number"]
    assert numbers
    for step in numbers:
        (unit,) = (s for s in raw.preprocessing.transform.columns if s.name == step.name)
        present = np.ones(raw.train.samples, bool)
        if unit.gap:
            present = raw.train.x[:, names.index(f"{step.name} is missing")] == 0
        x = raw.train.x.astype(float)[:, names.index(step.name)] * unit.scale + unit.center
        values, each = np.sort(x[present]), np.split(present, raw.train.offsets[1:-1])
        error = sum(-(-int(own.sum()) // points) // 2 for own in each)
        assert error > 0

        def bounds(share, values=values, error=error):
            low = math.ceil(share * len(values) - error) - 1
            high = min(math.floor(share * len(values) + error), len(values) - 1)
            return values[max(low, 0)], values[high]

        (low1, high1), (low2, high2), (low3, high3) = map(bounds, (0.25, 0.5, 0.75))
        tiny = 1e-5 * max(1, abs(values).max())  # features are float32
        assert low2 - tiny <= step.center <= high2 + tiny
        assert low3 - high1 - tiny <= step.scale <= high3 - low1 + tiny


@pytest.mark.long
def test_the_tutorial_of_the_hospitals_works(cache, terminal, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    names = run_page(DOCS / "tutorial-hospitals.md", terminal)
    assert names["run"].clients == 17
    assert len(list(Path("runs/hospitals").glob("*/seed*/run.json"))) >= 5 * 5
    assert (names["skew"].clients, Path("hospitals.png").is_file()) == (17, True)
