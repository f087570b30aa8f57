"""The page of tuned methods on several federations keeps the values of every seed."""

import json
import shutil

from benchmarks.three_federations import write

import unskew as us
from toys import small_federation


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
