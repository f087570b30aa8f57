"""What notebooks show of runs, comparisons, verdicts and federations."""

import re
import xml.etree.ElementTree as ET

import pytest

import unskew as us
from reports import FEDERATION, RUNS, made_run, trained_runs
from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.utils.tables import Table


def shown(value):
    """Return the HTML of a value, which must be well-formed."""
    html = value._repr_html_()
    ET.fromstring(html)
    return html


def words(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_a_comparison_shows_verdict_table_and_curves():
    runs = trained_runs()
    html = shown(runs)
    assert str(runs.verdict()) in words(html).replace("&#x27;", "'")
    assert runs.table().rows[0][1] in html
    assert "against fedavg" in html
    assert html.count("<path") == len(runs.methods)
    assert html.count("<polygon") == len(runs.methods)  # the band over two seeds


def test_the_leader_is_bold():
    html = shown(Runs([made_run("worse", accuracies=(0.3,)), made_run("best", accuracies=(0.6,))]))
    assert re.search(r"font-weight:bold;[^<]*>best<", html)
    assert not re.search(r"font-weight:bold;[^<]*>worse<", html)


def test_a_run_shows_its_last_metrics_cost_and_curves():
    html = words(shown(made_run(accuracies=(0.3, 0.5))))
    assert "fedavg on digits, seed 0" in html
    assert "mlp, 4 clients, 2 rounds" in html
    assert "50.00 %" in html
    assert "30.00 %" not in html  # only the last round
    assert "personal models" not in html  # they are those of the local level


def test_without_metrics_there_is_a_sentence():
    empty = Run("fedavg", "mlp", "digits", 0, 4)
    assert "No round is finished yet." in shown(empty)
    assert "No round is finished yet." in shown(Runs([empty]))
    assert "No round is finished yet." in shown(Runs([]))
    assert repr(Runs([])) == "Runs(none; 0 seeds)"


def test_unevaluated_runs_have_no_curves():
    run = made_run(accuracies=(None, None), local=False)
    assert "<svg" not in shown(run)
    assert "<svg" not in shown(Runs([run]))


def test_names_are_escaped():
    name = "<img src=x onerror=alert(1)>&"
    run = made_run(name, data="<script>")
    others = [us.Federation.from_arrays([[1.0], [2.0]], [0, 1], name=name), Table([name], [[name]])]
    for value in (run, Runs([run, made_run("b")]), Runs([run, made_run()]).verdict(), *others):
        assert "<img" not in shown(value)
        assert "<script" not in shown(value)


def test_a_verdict_shows_every_difference():
    verdict = Runs(
        [made_run("a", seed, accuracies=(0.5 + 0.01 * seed,)) for seed in range(3)]
        + [made_run("b", seed, accuracies=(0.4,)) for seed in range(3)]
    ).verdict()
    html = words(shown(verdict))
    assert "-11.00" in html
    assert "-13.48 to -8.52" in html
    assert "significantly worse" in html
    assert repr(verdict) == f"Verdict({str(verdict)!r})"


def test_a_verdict_on_losses_is_positive_where_others_are_worse():
    runs = Runs([made_run(m, 0, accuracies=(v,), metric="loss") for m, v in (("a", 1), ("b", 3))])
    for run in runs:
        for row in run.metrics:
            row["local"] = row["personal"] = {"loss": 1.0}
    assert "+2" in words(shown(runs.verdict()))
    assert shown(runs)


def test_a_federation_shows_its_distribution():
    html = shown(FEDERATION)
    assert html.count("<rect") == len(FEDERATION) * FEDERATION.classes
    federation = us.load("digits", skew="dirichlet:alpha=0.1", clients=70, seed=0)
    assert "the first 60 of 70 clients" in shown(federation)
    assert "dirichlet:alpha=0.1" in shown(federation.report)
    assert repr(federation.report).startswith("PartitionReport('dirichlet:alpha=0.1', clients=70")


def test_a_diagnosis_explains_its_measures():
    diagnosis = us.diagnose(FEDERATION)
    assert "Number of clients without samples." in shown(diagnosis)
    assert "label_skew=0." in repr(diagnosis)


@pytest.mark.parametrize("values", [(0.5, 0.5), (0.0, 0.0), (float("nan"), 0.4), (1e-9, 1e9)])
def test_any_values_can_be_drawn(values):
    assert "<path" in shown(made_run(accuracies=values))


def test_plain_reprs_name_what_they_are():
    assert repr(RUNS) == "Runs(fedavg, mean; 2 seeds; fedavg leads)"
    assert repr(RUNS[0]) == "Run('fedavg' on 'digits', seed=0, rounds=2, global accuracy=0.5000)"
    local = made_run(accuracies=(None,))
    assert repr(local) == "Run('fedavg' on 'digits', seed=0, rounds=1, local accuracy=0.4000)"
    unevaluated = made_run(accuracies=(None,), local=False)
    assert repr(unevaluated) == "Run('fedavg' on 'digits', seed=0, rounds=1)"
