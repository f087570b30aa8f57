"""The values of the charts, and every kind of chart drawn and exported."""

import csv
import io
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unskew as us
from reports import RUNS, clustered_run, made_run, trained_runs
from toys import small_federation
from unskew.composition.values import SAMPLE_WEIGHTS
from unskew.errors import UnskewError
from unskew.report.charts import all_charts
from unskew.report.charts.aggregation_weights import scale_end
from unskew.report.charts.chart import thinned, tidy
from unskew.report.draw import draw_chart
from unskew.report.export import export_figures, export_table
from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.runs.sample_weights import weights_table
from unskew.utils.tables import Table


def charts_of(runs, **options):
    return {chart.name: chart for chart in all_charts(runs, **options)}


def test_lines_are_means_over_seeds_at_common_rounds():
    runs = Runs(
        [made_run(seed=0, accuracies=(0.2, 0.4, 0.9)), made_run(seed=1, accuracies=(0.4, 0.6))]
    )
    (series,) = charts_of(runs)["global-accuracy"].data["series"]
    assert (series["x"], series["mean"]) == ([1, 2], [0.3, 0.5])
    assert series["high"] == pytest.approx([0.3 + 0.02**0.5, 0.5 + 0.02**0.5], abs=1e-5)


def test_a_band_of_shares_stays_between_0_and_1():
    runs = Runs([made_run(seed=0, accuracies=(0.0, 0.9)), made_run(seed=1, accuracies=(0.2, 1.0))])
    (series,) = charts_of(runs)["global-accuracy"].data["series"]
    assert series["low"][0] == 0
    assert series["high"][1] == 1


def test_a_round_without_any_good_client_leaves_a_gap():
    run = made_run()
    run.metrics[0]["train_loss"] = None
    (series,) = charts_of(Runs([run]))["train-loss"].data["series"]
    assert series["mean"] == [None, pytest.approx(run.metrics[1]["train_loss"], 1e-4)]


def test_boxes():
    run = made_run()
    values = [0.0, 0.5, 0.5, 0.6, 0.6, 0.7, 0.7, 0.8]
    run.client_tables.append(
        {"kind": "local", "round": 2, "client": list(range(8)), "accuracy": values}
    )
    (box,) = charts_of(Runs([run]))["clients-local"].data["boxes"]
    assert (box["q1"], box["median"], box["q3"]) == (0.5, 0.6, 0.7)
    assert (box["low"], box["high"]) == (0.5, 0.8)  # 0.0 is more than 0.3 below the box
    assert box["outliers"] == [[0, 0, 0.0]]
    assert box["mean"] == 0.55


def test_cost_bars_exclude_seeds_that_never_reach_the_target():
    runs = Runs([made_run(seed=0, accuracies=(0.3, 0.6)), made_run(seed=1, accuracies=(0.3, 0.4))])
    rounds, sent = charts_of(runs, target=0.5)["cost-to-target"].data["panels"]
    (bar,) = rounds["bars"]
    assert (bar["mean"], bar["values"], bar["seeds"]) == (2, [2], 2)
    assert sent["bars"][0]["mean"] == 16e-6


def test_the_data_distribution_is_the_federations(federation):
    runs = trained_runs()
    chart = charts_of(runs)["data-distribution"]
    assert chart.data["counts"] == runs[0].metadata["data"]["label_counts"]
    rows = list(csv.reader(io.StringIO(chart.table.to_csv())))
    assert rows[0] == ["client", "0", "1", "2"]
    assert [list(map(int, row[1:])) for row in rows[1:]] == chart.data["counts"]


def test_many_clients_become_a_map():
    runs = trained_runs()
    run = Run("fedavg", "mlp", "digits", 0, 400, metrics=runs[0].metrics)
    counts = np.tile([[9, 1], [0, 10]], (200, 1)).tolist()
    run.metadata = {
        "data": {"label_counts": counts, "class_names": ["a", "b"], "client_names": None}
    }
    chart = charts_of(Runs([run]))["data-distribution"]
    assert chart.kind == "maps"
    shares = np.array(chart.data["maps"][0]["values"])
    assert shares.shape == (2, 300)
    assert shares.sum(axis=0) == pytest.approx(1)


def test_aggregation_weights_are_those_of_the_run():
    runs = trained_runs()
    map_ = charts_of(runs)["aggregation-weights"].data["maps"][0]
    weights = runs[0].weights.T
    shown = np.array(map_["values"], dtype=float)
    assert np.array_equal(np.isnan(shown), np.isnan(weights))
    assert np.nan_to_num(shown) == pytest.approx(np.nan_to_num(weights), rel=1e-4)
    assert (map_["rows"], map_["columns"]) == ([str(k) for k in range(6)], ["1", "2"])


def test_methods_with_the_same_weights_share_a_map():
    federation = small_federation()
    options = {"rounds": 2, "batch_size": 8, "model": "mlp:hidden=6", "seeds": 1, "jobs": 1}
    runs = us.compare(federation, "fedavg,mean,ditto", progress=False, **options)
    chart = charts_of(runs)["aggregation-weights"]
    assert [map_["label"] for map_ in chart.data["maps"]] == ["fedavg, ditto", "mean"]
    assert [map_["methods"] for map_ in chart.data["maps"]] == [["fedavg", "ditto"], ["mean"]]
    assert {row[0] for row in chart.table.rows} == {"fedavg", "mean", "ditto"}


def test_maps_of_long_runs_are_averaged_down():
    run = made_run()
    for round_ in range(1, 1001):
        clients = list(range(200))
        run.client_tables.append(
            {
                "kind": "round",
                "stage": "task",
                "round": round_,
                "client": clients,
                "diagnostics": {},
            }
            | {"weight": [1 / 200] * 200}
        )
    run.clients = 200
    map_ = charts_of(Runs([run]))["aggregation-weights"].data["maps"][0]
    values = np.array(map_["values"], dtype=float)
    assert values.size <= 30_000
    assert values == pytest.approx(1 / 200)
    assert map_["columns"][-1].endswith("to 1000")
    assert map_["rows"][0].startswith("0")


def test_clusters_and_sample_weights_are_shown_for_methods_that_report_them():
    found = charts_of(Runs([clustered_run(), made_run("mean")]))
    (clusters,) = found["clusters"].data["maps"]
    assert clusters["values"] == [[0, 1], [None, None], [1, 8], [1, None]]
    assert "clusters" not in charts_of(RUNS)


def test_sample_weights():
    found = charts_of(Runs([clustered_run(), made_run("mean")]))
    overall, clients = found["sample-weights"], found["sample-weights-clients"]
    # Six samples: three of weight 0.5, two of 1, one of 2.5 (log10 -0.301, 0, 0.398).
    assert overall.data["edges"] == [-0.4, -0.3, -0.2, -0.1, 0, 0.1, 0.2, 0.3, 0.4]
    assert overall.data["bins"][0] == "0.4 to 0.5"
    assert overall.data["ticks"] == [[-0.30103, "0.5"], [0, "1"], [0.30103, "2"]]
    (series,) = overall.data["series"]
    assert series["shares"] == pytest.approx([1 / 2, 0, 0, 0, 1 / 3, 0, 0, 1 / 6], abs=1e-5)
    (map_,) = clients.data["maps"]
    assert map_["rows"] == ["0", "3"]
    assert map_["values"] == [[0.75, 0, 0, 0, 0, 0, 0, 0.25], [0, 0, 0, 0, 1, 0, 0, 0]]
    # (3 * 0.5 + 2.5)^2 / (4 * (3 * 0.25 + 6.25)) = 16 / 28, and 1 for equal weights
    assert [row[3] for row in clients.table.rows] == ["0.57142857", "1"]
    assert "ifca 79 % (at least 57 %)" in overall.note
    assert "sample-weights" not in charts_of(RUNS)


def test_many_clients_share_rows_of_the_map_of_sample_weights():
    run = made_run()
    run.sample_weights = weights_table(
        {
            k: {f"feddisk/{SAMPLE_WEIGHTS}": torch.tensor([1.0, 0.1, 10.0][: 1 + k % 3])}
            for k in range(900)
        }
    )
    (map_,) = charts_of(Runs([run]))["sample-weights-clients"].data["maps"]
    values = np.array(map_["values"])
    assert values.shape[0] == 300
    assert map_["rows"][0] == "0 to 2"
    assert values.sum(axis=1) == pytest.approx(1, abs=1e-4)


def test_one_map_of_large_weights_does_not_extend_the_scale():
    assert scale_end([0.2, 0.2, 0.2, 0.9]) == pytest.approx(0.3)
    assert scale_end([0.2, 0.25]) == 0.25


def test_personal_models_have_separate_charts():
    run = made_run("ditto")
    for row in run.metrics:
        row["personal"] = {"accuracy": 0.9, "min": 0.5}
    assert "personal-accuracy" in charts_of(Runs([run]))
    assert "personal-accuracy" not in charts_of(RUNS)


@given(st.integers(1, 5000), st.integers(2, 300))
def test_thinning_keeps_the_ends(length, max_points):
    indices = thinned(length, max_points)
    assert len(indices) <= max_points
    assert (indices[0], indices[-1]) == (0, length - 1)
    assert indices == sorted(set(indices))


def test_numbers_are_rounded():
    assert tidy(0.123456789) == 0.12346
    assert tidy(float("nan")) is None
    assert tidy(None) is None


@pytest.mark.long
def test_every_chart_is_exported(tmp_path):
    runs = Runs([*trained_runs(), clustered_run()])
    files = export_figures(tmp_path / "figures", runs, embedding=True)
    names = {chart.name for chart in all_charts(runs, embedding=True)}
    assert {"clusters", "sample-weights", "embedding"} < names
    assert {path.name for path in files} == {
        f"{name}.{suffix}" for name in names for suffix in ("png", "svg", "csv")
    }
    for path in files:
        content = path.read_bytes()
        if path.suffix == ".svg":
            assert ET.fromstring(content).tag.endswith("svg")
        elif path.suffix == ".png":
            assert content.startswith(b"\x89PNG")
        else:
            widths = {len(row) for row in csv.reader(io.StringIO(content.decode()))}
            assert len(widths) == 1


def test_a_method_has_the_same_color_in_every_chart():
    found = charts_of(RUNS)
    curves = draw_chart(found["global-accuracy"], RUNS.methods).axes[0]
    bars = draw_chart(found["cost-to-target"], RUNS.methods).axes[0]
    for line, bar in zip(curves.get_lines(), bars.patches, strict=True):
        red, green, blue, _ = bar.get_facecolor()
        assert line.get_color() == "#{:02X}{:02X}{:02X}".format(
            *(round(255 * part) for part in (red, green, blue))
        )


def test_the_page_and_exported_figures_have_the_same_colors():
    from importlib.resources import files

    from unskew.utils.palette import COLORS

    style = (files("unskew.report") / "assets" / "style.css").read_text().lower()
    light = style[: style.index("@media")]
    for i, color in enumerate(COLORS):
        assert f"--m{i}: {color.lower()}" in light


def test_the_table_is_exported(tmp_path):
    export_table(tmp_path, RUNS, target=0.5)
    text = (tmp_path / "table.csv").read_text(encoding="utf-8")
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(text))}
    assert list(rows) == ["fedavg", "mean"]
    summaries = {each.method: each for each in RUNS.summaries(0.5)}
    for method, row in rows.items():
        assert float(row["accuracy"]) == summaries[method].accuracy
        assert float(row["accuracy_sd"]) == summaries[method].accuracy_sd
        assert float(row["target"]) == 0.5
    pair = RUNS.verdict().answers.pair("mean")
    assert float(rows["mean"]["difference"]) == pair.difference
    assert rows["mean"]["answer"] == pair.answer
    assert rows["fedavg"]["difference"] == ""
    assert rows["mean"]["baseline"] == "fedavg"
    latex = (tmp_path / "table.tex").read_text(encoding="utf-8")
    assert latex.startswith("\\begin{tabular}{lrrrrrr}\n\\toprule\nmethod & accuracy")
    assert "rounds to 50 \\%" in latex
    assert (tmp_path / "table.md").read_text(encoding="utf-8").startswith("| method | accuracy |")


def test_latex_is_escaped():
    text = Table(["a_b", "c"], [["50 % ± 1", "{x}\\~^&#$"]]).to_latex()
    assert "a\\_b & c \\\\" in text
    assert "50 \\% $\\pm$ 1 & " in text
    assert "\\{x\\}\\textbackslash{}\\textasciitilde{}\\textasciicircum{}\\&\\#\\$ \\\\" in text


def test_a_folder_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnskewError, match="cannot be created"):
        export_table(tmp_path / "file" / "figures", RUNS)
