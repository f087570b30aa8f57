"""Summaries of several comparisons: names, gains, ranks, answers, tables, charts and pages."""

import csv
import io
import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

import unskew as us
from reports import CHROMIUM, FEDERATION, made_run
from unskew.errors import UnskewError
from unskew.report.comparisons.charts import summary_charts
from unskew.report.comparisons.page import export_summary
from unskew.runs.runs import Runs

SKEWS = ("dirichlet:alpha=0.1", "n-classes:n=2", "noise", "quantity")
GAINS = {"good": 0.06, "same": 0.0, "bad": -0.1}


def comparison(
    skew="iid", methods=("fedavg", *GAINS), seeds=4, seed=0, metric="accuracy", **metadata
):
    """Runs with noise of one point around 0.6 plus a method's gain; losses gain by being lower."""
    rng = np.random.default_rng(seed)
    sign = 1 if metric == "accuracy" else -1
    runs = []
    for s in range(seeds):
        shared = rng.normal(0.6, 0.03)
        for method in methods:
            value = shared + sign * GAINS.get(method, 0) + (rng.normal(0, 0.01) if GAINS else 0)
            run = made_run(method, s, accuracies=(value,), metric=metric)
            if metric == "loss":
                run.metrics[0]["global"] = {"loss": value}
                run.metrics[0]["local"] = {"loss": value, "max": value}
                run.metrics[0]["personal"] = run.metrics[0]["local"]
            run.metadata = {"data": {"name": "digits", "skew": skew}, **metadata}
            runs.append(run)
    return Runs(runs)


FOUR = [comparison(skew, seed=i) for i, skew in enumerate(SKEWS)]


def test_the_gain_is_near_the_truth_and_the_best_is_first():
    summary = us.summarize(FOUR)
    assert list(summary.gains) == ["good", "same", "bad"]
    assert summary.gains["good"].low < 6 < summary.gains["good"].high
    assert summary.gains["good"].p_helps > 0.95
    assert summary.gains["bad"].p_helps < 0.05
    assert summary.gains["same"].p_exceeds_margin < summary.gains["same"].p_helps
    assert [each.name for each in summary.federations] == [f"digits, {skew}" for skew in SKEWS]


def test_effects_are_paired_differences_in_points():
    summary = us.summarize(FOUR)
    runs = FOUR[1]
    pairs = zip(runs.of("good"), runs.of("fedavg"), strict=True)
    expected = 100 * np.mean([a.accuracy - b.accuracy for a, b in pairs])
    assert summary.effects("good")["digits, n-classes:n=2"].mean == pytest.approx(expected)


def test_methods_are_ranked_with_four_federations():
    summary = us.summarize(FOUR)
    first, *_, last = summary.ranks.means
    assert (first, last) == ("good", "bad")
    assert "good has the best mean rank, significantly better than bad" in str(summary)
    assert summary.table().columns[-1] == "mean rank"


def test_ranks_that_may_be_equal_are_not_called_better():
    """Friedman's test must reject before two mean ranks are compared."""
    alike = [comparison(skew, ("fedavg", "same"), seed=i) for i, skew in enumerate(SKEWS)]
    summary = us.summarize(alike)
    assert summary.ranks.p > 0.05
    assert "best mean rank, but significantly better than none" in str(summary)
    chance = replace(summary, ranks=replace(summary.ranks, critical_difference=0.0))
    assert "best mean rank, but significantly better than none" in str(chance)


def test_with_three_federations_a_sentence_says_what_ranks_need():
    summary = us.summarize(FOUR[:3])
    assert summary.ranks is None
    assert "Mean ranks of 4 methods need 4 federations" in str(summary)
    assert "there are 3." in str(summary)
    assert [chart.name for chart in summary_charts(summary)] == ["gains"]


def test_one_federation_has_answers_and_no_gain():
    summary = us.summarize(FOUR[0])
    assert summary.gains == {}
    assert "A gain over federations needs two or more comparisons; there is one" in str(summary)
    assert "(better)" in str(summary.answers())
    with pytest.raises(UnskewError, match="nothing to plot"):
        summary.plot()


def test_a_method_that_some_federations_lack_is_estimated_from_the_others():
    rare = comparison("noise", ("fedavg", "good", "rare"), seed=2)
    summary = us.summarize([*FOUR[:2], rare, comparison("quantity", ("fedavg", "good"), seed=3)])
    rows = {row[0]: row for row in summary.table().rows}
    assert rows["good"][1] == "4 of 4"
    assert rows["same"][1] == "2 of 4"
    assert rows["rare"][1:3] == ["1 of 4", "-"]
    assert set(summary.gains) == {"good", "same", "bad"}
    assert set(summary.ranks.means) == {"fedavg", "good"}
    assert {row[0]: row[3] for row in summary.answers().rows}["same"] == "-"


def test_the_answers_are_those_of_the_verdicts():
    summary = us.summarize(FOUR)
    for place, runs in enumerate(FOUR, 1):
        verdict = runs.verdict()
        for row in summary.answers().rows:
            assert row[place] == verdict.against(row[0])


def test_losses_are_compared_in_per_cent_of_the_baseline():
    """A loss of 0.6 with a gain of 0.06 is ten per cent better; the sign is that of the gain."""
    losses = [comparison(skew, metric="loss", seed=i) for i, skew in enumerate(SKEWS)]
    summary = us.summarize(losses)
    assert summary.gains["good"].mean == pytest.approx(10, abs=2)
    assert "per cent of the loss of fedavg" in summary.table().title


def test_accuracies_and_losses_are_not_mixed():
    with pytest.raises(UnskewError, match=r"judged by accuracy .* by loss; .* of one metric"):
        us.summarize([FOUR[0], comparison(metric="loss")])


def test_the_baseline_is_in_every_comparison():
    with pytest.raises(UnskewError, match="no method in common"):
        us.summarize([comparison(methods=("good",)), comparison(methods=("bad",))])
    assert us.summarize([comparison(methods=("good", "bad"))] * 2).baseline == "good"
    assert us.summarize(FOUR, baseline="bad").gains["good"].mean == pytest.approx(16, abs=1)
    with pytest.raises(UnskewError, match="'rare' is not in every comparison"):
        us.summarize(FOUR, baseline="rare")
    with pytest.raises(UnskewError, match="pass two or more"):
        us.summarize([])


def test_the_margin_is_that_of_the_comparisons():
    two = [Runs(runs, margin=2.0) for runs in FOUR[:2]]
    assert us.summarize(two).margin == 2
    assert us.summarize([*two, FOUR[2]]).margin == 1
    assert us.summarize(two, margin=30).gains["good"].p_exceeds_margin < 0.1
    with pytest.raises(UnskewError, match="margin must be 0 or more"):
        us.summarize(two, margin=-1)


def test_equal_names_get_what_distinguishes_them():
    other = comparison("noise", seed=5)
    for run in other:
        run.clients = 8
    third = comparison("noise", seed=6)
    for run in third:
        run.clients = 8
    names = [each.name for each in us.summarize([FOUR[2], other, third]).federations]
    assert names == [
        "digits, noise, 4 clients", "digits, noise, 8 clients", "digits, noise, 8 clients (2)",
    ]  # fmt: skip
    for run in third:
        run.network = "lenet5"
    names = [each.name for each in us.summarize([FOUR[0], third]).federations]
    assert names == ["digits, dirichlet:alpha=0.1, mlp", "digits, noise, lenet5"]


def test_repeated_federations_are_pointed_out():
    identity = {"data": "abc", "settings": {"seed": 0}}
    first = comparison("noise", identity=identity, configuration={"epochs": 1, "lr": 0.1})
    second = comparison("noise", identity=identity, configuration={"epochs": 1, "lr": 0.2})
    (remark,) = us.summarize([first, second]).remarks
    assert "digits, noise and digits, noise (2) are the same federation" in remark
    other = comparison("noise", identity=identity, configuration={"epochs": 2})
    assert us.summarize([first, other]).remarks == ()


def test_repeated_federations_are_pointed_out_in_memory_too():
    options = {"seeds": 2, "model": "logistic", "rounds": 1, "batch_size": 8}
    both = [us.compare(FEDERATION, f"fedavg,{name}", **options) for name in ("mean", "median")]
    (remark,) = us.summarize(both).remarks
    assert "are the same federation" in remark


def test_tuned_methods_have_the_name_they_were_requested_by():
    tuned = []
    for place, mu in enumerate(("0.1", "0.01")):
        runs = comparison(SKEWS[place], ("fedavg", f"fedprox:mu={mu}"), seed=place)
        for run in runs.of(f"fedprox:mu={mu}"):
            run.metadata = {**run.metadata, "tuning": {"requested": "fedprox"}}
        tuned.append(runs)
    assert list(us.summarize(tuned).gains) == ["fedprox"]


def test_untrained_and_unfinished_runs_are_named():
    runs = comparison("noise", configuration={"rounds": 3, "lr": 0.1, "optimizer": "sgd"})
    for run in runs.of("bad"):
        run.metrics[0]["kept_model"] = "diverged"
    summary = us.summarize([FOUR[0], FOUR[1], runs])
    assert summary.to_dict()["answers"]["bad"]["digits, noise"] == "not trained"
    assert {row[0]: row[3] for row in summary.answers().rows}["bad"] == "not trained"
    assert {row[0]: row[1] for row in summary.table().rows}["bad"] == "2 of 3"
    assert "digits, noise: 16 runs of 16 unfinished." in summary.remarks


def test_everything_is_exported(tmp_path):
    summary = us.summarize(FOUR)
    files = {path.name: path for path in export_summary(tmp_path, summary)}
    assert set(files) == {
        *("gains.png", "gains.svg", "gains.csv", "ranks.png", "ranks.svg", "ranks.csv"),
        *("summary.csv", "summary.tex", "summary.md", "answers.csv", "answers.tex", "answers.md"),
    }
    rows = list(csv.DictReader(io.StringIO(files["gains.csv"].read_text())))
    assert float(rows[0]["gain"]) == pytest.approx(summary.gains["good"].mean)
    assert float(rows[0]["digits, noise"]) == pytest.approx(
        summary.effects("good")["digits, noise"].mean
    )
    rows = list(csv.DictReader(io.StringIO(files["summary.csv"].read_text())))
    assert rows[0]["method"] == "good"
    assert float(rows[0]["mean"]) == summary.gains["good"].mean
    assert float(rows[0]["mean_rank"]) == summary.ranks.means["good"]
    rows = list(csv.DictReader(io.StringIO(files["answers.csv"].read_text())))
    pair = summary.federations[0].verdict.pairs[0]
    assert (rows[0]["federation"], rows[0]["method"]) == (summary.federations[0].name, pair.method)
    assert (float(rows[0]["difference"]), rows[0]["answer"]) == (pair.difference, pair.answer)
    ET.parse(files["ranks.svg"])
    again = {path.name: path for path in export_summary(tmp_path / "again", summary)}
    for name in ("gains.svg", "ranks.svg"):
        assert len(files[name].read_bytes()) == len(again[name].read_bytes())


def test_notebooks_show_both_tables():
    html = us.summarize(FOUR)._repr_html_()
    ET.fromstring(html)
    assert "P(helps)" in html
    assert "digits, noise" in html
    assert "mean rank" in html
    json.dumps(us.summarize(FOUR).to_dict(), allow_nan=False)
    assert us.summarize(FOUR).plot("ranks").axes[0].get_xlabel() == "mean rank"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A page with ranks."""
    return us.summarize(FOUR).report(tmp_path_factory.mktemp("page") / "summary.html")


@pytest.mark.extras("playwright")
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
@pytest.mark.parametrize("width", [1200, 360])
def test_the_page_draws_both_charts_in_a_browser(opened, width):
    page = opened(width=width)
    assert page.locator("#gains circle.estimate").count() == len(GAINS)
    assert page.locator("#gains circle.federation").count() == len(GAINS) * len(SKEWS)
    assert page.locator("#ranks circle.rank").count() == len(GAINS) + 1
    assert page.locator("#ranks line.group").count() == len(us.summarize(FOUR).ranks.groups)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for chart, text in (("gains", "P(helps)"), ("ranks", "mean rank")):
        area = page.locator(f"#{chart} .hover").first
        area.scroll_into_view_if_needed()
        area.hover(force=True)
        assert text in page.locator("#tip").inner_text()
        assert "NaN" not in page.locator(f"#{chart}").inner_html()
    cut = page.evaluate(
        """() => [...document.querySelectorAll("figure svg text")].filter((text) => {
            const box = text.getBoundingClientRect();
            const frame = text.ownerSVGElement.getBoundingClientRect();
            return box.left < frame.left - 1 || box.right > frame.right + 1
                || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
        }).map((text) => text.textContent)"""
    )
    assert cut == []
    page.locator("#legend button", has_text="same").click()
    assert page.locator("#ranks circle.rank").count() == len(GAINS)
