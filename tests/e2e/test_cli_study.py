"""``unskew study`` on the built-in digits."""

import json
import re
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def isolated(tmp_path, monkeypatch):
    """Hide the user's runs and data."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("UNSKEW_DATA", raising=False)


GRID = """
title = "A grid that takes seconds"
paper = "ida"
reproduces = ["Table 0"]
measures = ["global", "worst"]
seeds = 3
model = "logistic"
data = { name = "digits", skew = "n-classes:n=3,balanced=false,cap=40", clients = 5 }
train = { rounds = 2, evaluate_every = 1 }
[methods]
FedAvg = "fedavg"
IDA = "ida"
[[cases]]
name = "before"
paper.global = { FedAvg = 50.0 }
[[cases]]
name = "after"
follows = "before"
[[cases]]
name = "elsewhere"
missing = "nobody has it"
[[claims]]
text = "IDA is better than nothing"
measure = "global"
method = "IDA"
than_value = 0.0
scales = ["cpu"]
[scales.cpu]
changes = "nothing at all"
[scales.smoke]
changes = "nothing at all"
cases = ["before"]
data = { samples = 300 }
"""


@pytest.fixture
def grid(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
    return path


def test_list_names_every_study(terminal):
    rows = terminal.json("study", "list")
    assert {"ida-table1", "feddisk-mnist", "latent-niid"} <= {row["name"] for row in rows}
    assert "Table 1" in terminal.output("study", "list")


def test_show_lists_what_each_scale_changes(terminal):
    text = terminal.output("study", "show", "ida-table1")
    for scale in ("scale paper", "scale cpu", "scale smoke", "vgg11"):
        assert scale in text
    printed = terminal.json("study", "show", "ida-table1", "--scale", "cpu")
    assert "40 rounds, not 5000" in printed["cpu"]["changes"]


def test_a_study_is_run_judged_and_saved(terminal, grid, tmp_path):
    text = terminal.output("study", "run", grid, "--scale", "cpu", "--out", "out/grid")
    assert "scale cpu, run on digits; for differences from the paper's setting see " in text
    assert "held: IDA is better than nothing" in text
    result = json.loads((tmp_path / "out/grid/result.json").read_text())
    before, after, elsewhere = result["cases"]
    assert before["rows"][0]["paper"] == {"global": 50.0}
    assert len(before["rows"][0]["measured"]["global"]["values"]) == 3
    assert after["rows"][1]["measured"]["worst"]["mean"] is not None
    assert elsewhere["rows"][0]["measured"]["global"]["mean"] is None
    assert result["claims"][0]["verdict"] == "held"
    page = (tmp_path / "out/grid/result.md").read_text()
    assert "nobody has it" in page
    assert "50.00" in page
    assert "`unskew study run grid.toml --scale cpu --seeds 3`" in page
    assert (tmp_path / "out/grid/figures/overview.png").is_file()
    assert (tmp_path / "out/grid/report-before.html").is_file()
    index = terminal.output("study", "index", "out")
    assert "1 study: " in index
    listed = (tmp_path / "out/README.md").read_text()
    assert "IDA is better than nothing" in listed
    assert "Written by `unskew study index out` from the result.json files here. " in listed
    assert "Studies without a result: feddisk-femnist" in listed
    terminal.output("study", "index", "out")
    (tmp_path / "out/README.md").write_text("mine")
    assert "is not an index of studies" in terminal.error("study", "index", "out")
    assert (tmp_path / "out/README.md").read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["result.json", "result.md", "report-before.html", "figures/a.png"]
)
def test_a_study_does_not_write_into_a_foreign_folder(terminal, grid, tmp_path, name):
    path = tmp_path / "out/grid" / name
    path.parent.mkdir(parents=True)
    path.write_text('{"mine": 1}')
    before = sorted(tmp_path.rglob("*"))
    error = terminal.error("study", "run", grid, "--scale", "smoke", "--out", "out/grid")
    assert "but no results of a study; choose an empty or a new folder" in error
    assert sorted(tmp_path.rglob("*")) == before
    assert path.read_text() == '{"mine": 1}'


@pytest.mark.long
def test_a_case_that_follows_doubles_the_measured_clients(terminal, grid, tmp_path):
    terminal.output("study", "run", grid, "--scale", "cpu", "--seeds", "1", "--out", "out/grid")
    printed = [json.loads(path.read_text()) for path in tmp_path.glob("out/runs/*/*/*/run.json")]
    skews = {metadata["data"]["skew"] for metadata in printed}
    assert any(re.fullmatch(r".*,double=\d/\d/\d", skew) for skew in skews)


@pytest.mark.long
def test_finished_runs_are_read_and_not_repeated(terminal, grid, tmp_path):
    arguments = ("study", "run", grid, "--scale", "smoke", "--seeds", "1", "--out", "out/grid")
    first = terminal.output(*arguments)
    logs = sorted(tmp_path.glob("out/runs/*/*/*/metrics.jsonl"))
    times = [log.read_text() for log in logs]  # with the seconds each round took
    assert len(logs) == 2
    assert terminal.output(*arguments) == first
    assert [log.read_text() for log in logs] == times
    assert "there is a run already" in terminal.error(*arguments, "--no-resume")


@pytest.mark.long
def test_probes_measure_and_draw(terminal, tmp_path):
    result = terminal.json("study", "run", "latent-codes", "--scale", "smoke", "--out", "out/codes")
    rows = {row["method"]: row["measured"]["w1"] for row in result["cases"][0]["rows"]}
    assert set(rows) == {"even clients", "uneven clients"}
    assert all(row["mean"] > 0 for row in rows.values())
    assert (tmp_path / "out/codes/figures/codes.png").is_file()


@pytest.mark.long
def test_two_phases_count_their_rounds(terminal):
    """FedDisk exchanges densities for three rounds before the task."""
    result = terminal.json("study", "run", "feddisk-mnist", "--scale", "smoke", "--seeds", "1")
    rows = {row["method"]: row["measured"] for row in result["cases"][0]["rows"]}
    assert rows["FedDisk"]["rounds-before"]["mean"] == 3
    assert rows["FedAvg"]["rounds-before"]["mean"] == 0
    size = 64 * 16 + (4 * 16 + 1) + (16 * 10 + 10)  # BatchNorm has a counter too
    rounds = rows["FedAvg"]["rounds"]["mean"]
    assert rows["FedAvg"]["cost"]["mean"] == pytest.approx(2 * size * rounds, rel=1e-5)


def test_missing_data_is_reported_before_training(terminal):
    message = terminal.error("study", "run", "fedfusion-table1", "--scale", "cpu")
    assert "needs fashion, mnist" in message
    assert "unskew data fetch" in message


def test_an_unavailable_device_is_an_error(terminal, grid, tmp_path):
    run = ("study", "run", grid, "--scale", "smoke", "--out", tmp_path / "out", "--device")
    assert "device must be 'auto', 'cpu', 'cuda'" in terminal.error(*run, "gpu")
    if not torch.backends.mps.is_available():
        assert "device: 'mps' is not available here" in terminal.error(*run, "mps")


def test_the_error_for_an_unknown_study_suggests_the_nearest(terminal):
    assert "did you mean 'ida-table2'" in terminal.error("study", "show", "ida-table")


def test_fewer_than_one_job_is_rejected(terminal, grid):
    code, _, errors = terminal.run("study", "run", grid, "--jobs", 0)
    assert code == 2
    assert "--jobs" in errors


@pytest.mark.parametrize(
    ("content", "field"),
    [("{}", "study is missing"), ('{"study": 3}', "study must be a valid string"), ("[]", "list")],
)
def test_a_result_of_another_kind_is_one_line(terminal, content, field):
    Path("out/one").mkdir(parents=True)
    Path("out/one/result.json").write_text(content)
    error = terminal.error("study", "index", "out")
    assert error.startswith("error: out/one/result.json: is ")
    assert field in error
