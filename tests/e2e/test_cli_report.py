"""``unskew report`` of real runs: the figures that only certain methods have."""

import json

import pytest

from unskew.errors import UnskewWarning

QUICK = "density_rounds=1,ratio_rounds=2,global_samples=64"


def figures(page: str) -> dict[str, dict]:
    """The figures of a page by name."""
    data = json.JSONDecoder().raw_decode(page.partition('id="report-data">')[2])[0]
    return {figure["name"]: figure for figure in data["charts"]}


@pytest.mark.filterwarnings(f"ignore::{UnskewWarning.__module__}.{UnskewWarning.__name__}")
def test_a_comparison_with_feddisk_shows_the_sample_weights(terminal, tmp_path):
    out = tmp_path / "out"
    code, _, errors = terminal.run(
        "compare", "--skew", "dirichlet:alpha=0.3", "--clients", 4, "--seeds", 2, "--rounds", 1,
        "--model", "logistic", "--methods", f"fedavg,feddisk:{QUICK}", "--out", out,
    )  # fmt: skip
    assert code == 0
    assert "preparatory stages" in errors
    found = figures((out / "report.html").read_text())
    (series,) = found["sample-weights"]["data"]["series"]
    assert series["method"].startswith("feddisk")
    assert sum(series["shares"]) == pytest.approx(1, abs=1e-3)
    (one,) = found["sample-weights-clients"]["data"]["maps"]
    assert one["rows"] == ["0", "1", "2", "3"]
    written = sorted(out.glob("*/seed*/sample_weights.json"))
    assert [path.parent.name for path in written] == ["seed0", "seed1"]
    assert all(path.parts[-3].startswith("feddisk") for path in written)


def test_a_method_without_sample_weights_has_no_such_figure(terminal, data, tmp_path):
    out = tmp_path / "out"
    terminal.output("compare", "--data", data, "--model", "logistic", "--methods", "fedavg",
                    "--rounds", 1, "--seeds", 1, "--out", out)  # fmt: skip
    found = figures((out / "report.html").read_text())
    assert "aggregation-weights" in found
    assert not [name for name in found if name.startswith("sample-weights")]


@pytest.mark.long
def test_tsne_maps_the_clients_if_requested(terminal, tmp_path):
    out, page = tmp_path / "out", tmp_path / "page.html"
    terminal.output(
        "compare", "--skew", "dirichlet:alpha=0.3", "--clients", 6, "--seeds", 1, "--rounds", 1,
        "--model", "logistic", "--methods", "fedavg", "--set", "steps=1", "--out", out,
    )  # fmt: skip
    assert "embedding" not in figures((out / "report.html").read_text())
    terminal.output("report", out, "-o", page, "--tsne", "--figures", tmp_path / "figures")
    points = figures(page.read_text())["embedding"]["data"]["points"]
    assert len(points) == 6
    assert len({(x, y) for x, y, *_ in points}) == 6
    assert (tmp_path / "figures" / "embedding.svg").is_file()


def test_tsne_of_fewer_than_five_clients_is_rejected(terminal, data, tmp_path):
    out = tmp_path / "out"
    terminal.output("compare", "--data", data, "--model", "logistic", "--methods", "fedavg",
                    "--rounds", 1, "--seeds", 1, "--out", out)  # fmt: skip
    message = terminal.error("report", out, "-o", tmp_path / "page.html", "--tsne")
    assert "tsne: needs 5 clients or more (these runs have 4)" in message
    assert not (tmp_path / "page.html").exists()


def test_runs_with_different_settings_are_reported_with_a_warning(terminal, tmp_path):
    quick = ["--seeds", 1, "--rounds", 1, "--model", "logistic", "--out", tmp_path / "out"]
    terminal.output("compare", "--clients", 4, "--methods", "fedavg,central", *quick)
    _, _, errors = terminal.run("report", tmp_path / "out", "-o", tmp_path / "page.html")
    assert errors == ""
    terminal.output("compare", "--clients", 3, "--methods", "mean", *quick)
    code, _, errors = terminal.run("report", tmp_path / "out", "-o", tmp_path / "page.html")
    assert code == 0
    assert "these runs differ in clients (3, 4): do not rank them by their metrics" in errors


def test_runs_in_different_precisions_are_reported_with_a_remark(terminal, tmp_path):
    quick = ["--clients", 3, "--seeds", 1, "--rounds", 1, "--model", "logistic"]
    quick += ["--out", tmp_path / "out"]
    terminal.output("compare", "--methods", "fedavg", *quick)
    alone = terminal.output("compare", "--methods", "mean", "--precision", "bf16", *quick)
    assert "Precision" not in alone
    _, output, errors = terminal.run("report", tmp_path / "out", "-o", tmp_path / "page.html")
    assert "these runs differ in precision (bf16, float32)" in errors
    for text in (" ".join(output.split()), (tmp_path / "page.html").read_text()):
        assert "not compared on equal terms: bf16 for mean, float32 for fedavg." in text


def test_operating_system_errors_are_one_line(terminal, tmp_path, monkeypatch):
    def disk_full(*_, **__):
        raise OSError(28, "No space left on device", "some/file")

    monkeypatch.setattr("unskew.data.load.federate", disk_full)
    message = terminal.error("data", "show", "digits")
    assert message == "error: some/file: No space left on device; files already written were kept\n"


def test_a_network_larger_than_memory_is_a_one_line_error(terminal):
    options = ("--clients", 2, "--seeds", 1, "--rounds", 1, "--methods", "fedavg")
    code, _, errors = terminal.run("compare", *options, "--model", f"mlp:hidden={10**15}")
    assert code == 2
    assert "error: " in errors
    assert "Traceback" not in errors
