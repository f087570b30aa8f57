"""Remarks that explain a result, derived from diagnostics."""

import pytest

import unskew as us
from reports import made_run
from toys import small_federation
from unskew.runs.remarks import remarks_on
from unskew.runs.runs import Runs

NEARLY_THE_MEAN = "0.2 % of the coordinates are high-dispersion: this is nearly the mean"


def rounds(*shares, name="high_dispersion"):
    return [{"diagnostics": {name: share, "clusters": [[0, 1]]}} for share in shares]


def test_few_high_dispersion_coordinates_are_explained():
    assert remarks_on(rounds(0.001, 0.003)) == [NEARLY_THE_MEAN]
    assert remarks_on(rounds(0.001, 0.003, name="rule.high_dispersion")) == [NEARLY_THE_MEAN]


@pytest.mark.parametrize("rows", [[], [{}], rounds(0.01), rounds(0.0, 0.5), rounds([0.0, 0.0])])
def test_nothing_is_said_without_a_reason(rows):
    assert remarks_on(rows) == []


def test_idle_rounds_and_rejected_clients_are_counted():
    idle = {"kept_model": "no usable uploads", "rejected": {"3": "not finite"}}
    assert remarks_on([{}, {"rejected": {"3": "not finite"}}, idle]) == [
        "1 of 3 rounds left the model as it was",
        "1 of 3 rounds rejected a client's upload",
    ]


def test_tables_carry_the_remarks_of_all_seeds_below_their_rows():
    runs = [made_run(method, seed) for method in ("mean", "fedsa") for seed in (0, 1)]
    for run in runs[2:]:
        for row in run.metrics:
            row["diagnostics"] = {"high_dispersion": 0.002}
    both = Runs(runs)
    assert both.remarks == {"fedsa": [NEARLY_THE_MEAN]}
    notes = both.table().notes
    assert notes[1:] == [f"fedsa: {NEARLY_THE_MEAN}"]
    assert notes == both.table_with_verdict().notes
    assert runs[2].remarks == runs[2].table().notes == [NEARLY_THE_MEAN]
    assert str(both).endswith(f"\nfedsa: {NEARLY_THE_MEAN}")
    assert both.table().to_markdown().endswith(f"\n\nfedsa: {NEARLY_THE_MEAN}")
    assert both.table().to_latex().endswith(f"\n% fedsa: {NEARLY_THE_MEAN}\n")
    assert NEARLY_THE_MEAN not in both.table().to_csv()


def test_preparatory_stages_are_not_counted():
    run = made_run()
    run.metrics[0] |= {"stage": "density", "kept_model": "no usable uploads"}
    assert run.remarks == []


def test_fedsa_records_the_share_of_its_whole_model():
    run = us.train(small_federation(), "fedsa", model="logistic", rounds=2)
    weight, bias = run.metrics[-1]["diagnostics"]["high_share"]
    expected = (15 * weight + 3 * bias) / 18  # a layer from 5 features to 3 classes
    assert run.metrics[-1]["diagnostics"]["high_dispersion"] == pytest.approx(expected)
    alike = us.train(small_federation(), "fedsa:cv_threshold=1", model="logistic", rounds=2)
    assert alike.remarks[0] == NEARLY_THE_MEAN.replace("0.2", "0")
