"""The page of tuned methods on several federations keeps the values of every seed."""

import json
import shutil

from benchmarks.three_federations import record_of, recorded_runs, write

import unskew as us
from toys import small_federation
from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.utils.jsonable import to_jsonable


def test_the_page_has_a_section_per_federation_and_the_values_of_every_seed(tmp_path):
    runs = {
        name: us.compare(
            small_federation(sizes), "fedavg,mean", seeds=2, rounds=1, batch_size=8,
            model="logistic", out=tmp_path / "runs" / name, command=f"unskew compare {name}",
        )
        for name, sizes in [("label-skew", (30, 20)), ("natural", (25, 10))]
    }  # fmt: skip
    page = tmp_path / "three.md"
    write(tmp_path / "runs", page)
    text = page.read_text()
    assert "## Label skew" in text
    assert "## Natural clients" in text
    assert "## Feature skew" not in text  # it is not finished
    assert "unskew compare natural" in text
    assert "gain" in text
    for name, found in runs.items():
        stored = json.loads((tmp_path / "three" / f"{name}.json").read_text())
        for run in found:
            seeds = stored["methods"][run.method]["seeds"]
            assert seeds[str(run.seed)]["global"] == run.final_value("global")


def test_federations_without_runs_keep_their_section_and_are_judged_from_their_values(tmp_path):
    for name, sizes, decide in [
        ("label-skew", (30, 20), {"max_seeds": 4}),
        ("natural", (25, 10, 12), False),
    ]:
        us.compare(
            small_federation(sizes), "fedavg,mean,scaffold", seeds=2, rounds=1, batch_size=8,
            model="logistic", out=tmp_path / "runs" / name, decide=decide,
        )  # fmt: skip
    page = tmp_path / "three.md"
    write(tmp_path / "runs", page)
    before = page.read_text()
    shutil.rmtree(tmp_path / "runs" / "label-skew")
    write(tmp_path / "runs", page)
    assert page.read_text() == before
    assert before.count("## Label skew") == 1


def test_personal_models_have_a_section_and_no_part_in_the_summary(tmp_path):
    for name, sizes, methods, level in [
        ("label-skew", (30, 20), "fedavg,mean", None),
        ("natural", (25, 10, 12), "fedavg,mean", None),
        ("personal", (30, 20), "fedavg,ditto", "personal"),
    ]:
        us.compare(
            small_federation(sizes), methods, seeds=2, rounds=1, batch_size=8, level=level,
            model="logistic", out=tmp_path / "runs" / name,
        )  # fmt: skip
    page = tmp_path / "three.md"
    write(tmp_path / "runs", page)
    before = page.read_text()
    assert "personal accuracy" in before.split("## Personal models")[1]
    assert "ditto" not in before.split("## Label skew")[0].split("## All federations")[1]
    shutil.rmtree(tmp_path / "runs")
    (tmp_path / "runs").mkdir()
    write(tmp_path / "runs", page)
    assert page.read_text() == before


def failing(losses, accuracy):
    rows = [{"stage": "task", "round": i + 1, "train_loss": each} for i, each in enumerate(losses)]
    rows[-1] |= {"global": {"accuracy": accuracy, "loss": 1.0}}
    return rows


def test_failures_are_marked_when_a_federation_is_judged_from_its_values():
    data = {"skew": "iid", "majority": {"global": 0.1}}
    cases = {
        "fedavg": failing([2.0, 1.0], 0.7),
        "scaffold": failing([2.0, 0.1, *[30.0] * 5], 0.5),
        "fedlc": failing([2.0, 1.0], 0.1),
        "fedprox": [{"stage": "task", "round": 1, "kept_model": "x", "global": {"accuracy": 0.2}}],
    }
    runs = Runs(
        Run(method, "mlp", "digits", seed, 4, metrics=rows, metadata={"data": data})
        for method, rows in cases.items()
        for seed in range(2)
    )
    known = recorded_runs(json.loads(json.dumps(to_jsonable(record_of(runs)))))
    for method in cases:
        assert known.failures(method) == runs.failures(method)
    assert known.failures("scaffold") == {0: "diverged", 1: "diverged"}
    assert known.failures("fedlc") == {0: "collapsed", 1: "collapsed"}
    assert known.failures("fedavg") == {}
    assert str(known.verdict()) == str(runs.verdict())
