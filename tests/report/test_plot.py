"""Charts and pages from Python: ``runs.plot``, ``runs.report`` and ``us.compare(out=...)``."""

import pytest

import unskew as us
from reports import FEDERATION, RUNS, made_run, trained_runs
from unskew.errors import UnskewError
from unskew.runs.run import Run
from unskew.runs.runs import Runs

PNG = b"\x89PNG"


def test_plot_draws_the_curves_of_the_judged_metric():
    figure = RUNS.plot()
    (axes,) = figure.axes
    assert axes.get_ylabel() == "accuracy on the common test"
    assert [line.get_label() for line in axes.get_lines()] == ["fedavg", "mean"]
    assert all(tick == int(tick) for tick in axes.get_xticks())  # rounds are whole numbers
    assert figure._repr_png_().startswith(PNG)


def test_any_chart_of_the_page_can_be_plotted():
    assert trained_runs().plot("worst-accuracy").axes[0].get_ylabel().endswith("worst client")
    assert trained_runs().plot("aggregation-weights")._repr_png_().startswith(PNG)


def test_an_unknown_chart_is_an_error_with_a_suggestion():
    with pytest.raises(UnskewError, match="chart: 'worst' is not known; did you mean 'worst-acc"):
        RUNS.plot("worst")


def test_unevaluated_runs_show_what_was_measured():
    runs = Runs([made_run(accuracies=(None, None), local=False)])
    assert runs.plot().axes[0].get_ylabel() == "training loss"


def test_without_rounds_there_is_nothing_to_plot():
    with pytest.raises(UnskewError, match="nothing to plot"):
        Runs([Run("fedavg", "mlp", "digits", 0, 4)]).plot()


def test_report_writes_the_page(tmp_path):
    page = RUNS.report(tmp_path / "folder" / "page.html", target=0.4)
    assert page == tmp_path / "folder" / "page.html"
    assert "rounds to 40 %" in page.read_text()


def test_compare_writes_page_and_tables(tmp_path):
    runs = us.compare(
        FEDERATION, "fedavg,mean", seeds=1, model="logistic", rounds=2, out=tmp_path, target=0.3
    )
    assert "rounds to 30 %" in (tmp_path / "report.html").read_text()
    expected = runs.table_with_verdict(0.3).to_markdown() + "\n"
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == expected
    assert {"table.csv", "table.tex", "comparison.json"} <= {f.name for f in tmp_path.iterdir()}


def test_a_comparison_on_one_federation_says_that_the_split_is_fixed(tmp_path):
    options = {"model": "logistic", "rounds": 1, "seeds": 2}
    runs = us.compare(FEDERATION, "fedavg", out=tmp_path, **options)
    assert any("same clients and test samples" in note for note in runs.table().notes)
    assert "same clients and test samples" in (tmp_path / "report.html").read_text()
    again = us.compare(lambda seed: FEDERATION, "fedavg", **options)
    assert not any("same clients" in note for note in again.table().notes)


def test_without_a_common_test_the_page_leads_with_the_local_level(tmp_path):
    runs = Runs([made_run("fedavg", seed, accuracies=(None, None)) for seed in range(2)])
    page = runs.report(tmp_path / "page.html").read_text()
    assert "local accuracy" in page
    assert "Local accuracy: the global model, mean over the clients' local tests" in page
    assert "on the common test set" not in page


def test_an_invalid_target_is_found_before_training():
    with pytest.raises(UnskewError, match="target must be an accuracy"):
        us.compare(FEDERATION, "fedavg", target=90)
