"""Following runs as they are written, and passing their metrics to trackers."""

import json
import sys
import types

import pytest

import unskew as us
from unskew.errors import UnskewError
from unskew.report.watch import Watch, spark
from unskew.runs.lock import FolderLock
from unskew.runs.tail import Tail
from unskew.runs.trackers import open_tracker, scalars

OPTIONS = {"model": "logistic", "rounds": 3, "batch_size": 8}


@pytest.fixture(scope="module")
def folder(federation, tmp_path_factory):
    return us.train(federation, out=tmp_path_factory.mktemp("watched") / "run", **OPTIONS).folder


@pytest.fixture
def growing(folder, tmp_path):
    """A run whose metrics have not been written yet, and its lines."""
    (tmp_path / "run.json").write_text((folder / "run.json").read_text())
    lock = FolderLock(tmp_path)  # a process that is writing the run
    yield tmp_path, (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    lock.release()


def test_the_tail_reads_complete_lines(growing):
    path, lines = growing
    tail = Tail(path)
    assert tail.read() == []
    (path / "metrics.jsonl").write_text(lines[0] + lines[1][:9])
    assert [row["round"] for row in tail.read()] == [1]
    assert not tail.is_done
    (path / "metrics.jsonl").write_text("".join(lines))
    assert [row["round"] for row in tail.read()] == [2, 3]
    assert tail.read() == []
    assert tail.is_done


def test_a_truncated_run_is_read_from_the_start(growing):
    path, lines = growing
    tail = Tail(path)
    (path / "metrics.jsonl").write_text("".join(lines))
    tail.read()
    (path / "metrics.jsonl").write_text(lines[0])
    assert [row["round"] for row in tail.read()] == [1]
    assert len(tail.rows) == 1


def test_the_table_follows_the_run(growing):
    path, lines = growing
    with Watch([path]) as watch:
        assert watch.update().rows == [["fedavg, seed 0", "0/3", *["-"] * 6]]
        assert not watch.is_done
        (path / "metrics.jsonl").write_text("".join(lines[:2]))
        (row,) = watch.update().rows
        assert row[1] == "2/3"
        assert row[2] == "0:00"
        accuracy = json.loads(lines[1])["global"]["accuracy"]
        assert row[4] == f"accuracy {100 * accuracy:.2f} %"
        assert len(row[6]) == 2
        (path / "metrics.jsonl").write_text("".join(lines))
        assert watch.update().rows[0][2] == "done"
        assert watch.is_done


def test_a_run_whose_process_has_ended_is_stopped(growing, folder, tmp_path):
    path, lines = growing
    row = json.loads(lines[0]) | {"seconds": 0.01}
    (path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    dead = tmp_path / "dead"
    dead.mkdir()
    (dead / "run.json").write_text((folder / "run.json").read_text())
    (dead / "run.lock").write_text("")  # the file of a killed process, which is not locked
    with Watch([path]) as watch:
        assert [row[2] for row in watch.update().rows] == ["0:00", "stopped"]
        assert not watch.is_done
    (dead / "metrics.jsonl").write_text(lines[0])
    with Watch([dead]) as watch:
        assert watch.update().rows[0][1:3] == ["1/3", "stopped"]
        assert watch.is_done


def test_rounds_and_time_left_are_those_of_the_stage(growing):
    path, lines = growing
    metadata = json.loads((path / "run.json").read_text())
    metadata["stages"] = [["density", 40], ["task", 3]]
    (path / "run.json").write_text(json.dumps(metadata))
    rows = [json.loads(lines[0]) | {"stage": "density", "round": i, "seconds": 2} for i in (1, 2)]
    with Watch([path]) as watch:
        assert watch.update().rows[0][1:3] == ["0/40 (density)", "-"]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (path / "metrics.jsonl").write_text(text)
        assert watch.update().rows[0][1:3] == ["2/40 (density)", "1:16+"]
        task = json.loads(lines[0]) | {"seconds": 5}
        (path / "metrics.jsonl").write_text(text + json.dumps(task) + "\n")
        assert watch.update().rows[0][1:3] == ["1/3", "0:10"]


def test_new_runs_are_found(folder, tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.symlink_to(folder)
    with Watch([tmp_path / "a"]) as watch:
        assert len(watch.update().rows) == 1
    with Watch([tmp_path, first]) as watch:
        second.mkdir()
        (second / "run.json").write_text((folder / "run.json").read_text())
        assert len(watch.update().rows) == 2


def test_trackers_receive_every_round_once(growing):
    path, lines = growing
    seen = []

    class RecordingTracker:
        def __init__(self, tail):
            seen.append(tail.run.method)

        def log(self, step, row):
            seen.append((step, row["round"]))

        def close(self):
            seen.append("closed")

    with Watch([path], RecordingTracker) as watch:
        for count in (1, 1, 3):
            (path / "metrics.jsonl").write_text("".join(lines[:count]))
            watch.update()
    assert seen == ["fedavg", (1, 1), (2, 2), (3, 3), "closed"]


def test_sparks():
    assert spark([0, 0.5, 1]) == "▁▅█"
    assert spark([2, 2]) == "▁▁"
    assert spark([float("nan"), 1.0]) == " ▁"
    assert spark([]) == ""
    assert len(spark(range(1000))) == 24


def test_scalars_have_names_by_level():
    row = {
        "stage": "task",
        "round": 3,
        "train_loss": 0.5,
        "global": {"accuracy": 0.9, "loss": None},
    }
    assert scalars(row) == {"train_loss": 0.5, "global/accuracy": 0.9}


def test_a_tracker_that_is_not_installed_is_named(folder, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(
        UnskewError, match=r"wandb is not installed; pip install 'unskew\[trackers\]'"
    ):
        open_tracker(f"wandb:{tmp_path}", Tail(folder).run)
    with pytest.raises(UnskewError, match="did you mean 'mlflow'"):
        open_tracker("mlflo", Tail(folder).run)


def test_wandb_is_offline(folder, monkeypatch, tmp_path):
    options_given, logged = {}, []
    run = types.SimpleNamespace(log=lambda row, step: logged.append((step, row)), finish=list)
    fake = types.ModuleType("wandb")
    fake.init = lambda **options: options_given.update(options) or run
    fake.Settings = dict
    monkeypatch.setitem(sys.modules, "wandb", fake)
    tracker = open_tracker(f"wandb:{tmp_path / 'w'}", Tail(folder).run)
    tracker.log(1, {"train_loss": 0.5})
    tracker.close()
    assert options_given["mode"] == "offline"
    assert options_given["config"]["method"] == "fedavg"
    assert logged == [(1, {"train_loss": 0.5})]


@pytest.mark.extras("tensorboard")
def test_tensorboard_has_the_metrics(folder, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Watch([folder], lambda tail: open_tracker(f"tensorboard:{tmp_path}", tail.run)) as watch:
        watch.update()
    events = EventAccumulator(str(tmp_path / "fedavg seed 0"))
    events.Reload()
    rows = Tail(folder).read()
    read = [(event.step, event.value) for event in events.Scalars("global/accuracy")]
    expected = [(row["round"], pytest.approx(row["global"]["accuracy"])) for row in rows]
    assert read == expected


@pytest.mark.extras("mlflow", "sqlalchemy")
@pytest.mark.filterwarnings("ignore")  # mlflow's warnings about its dependencies
def test_mlflow_has_the_metrics(folder, tmp_path):
    from mlflow import tracking

    with Watch([folder], lambda tail: open_tracker(f"mlflow:{tmp_path}", tail.run)) as watch:
        watch.update()
    client = tracking.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("custom")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.params["method"] == "fedavg"
    assert len(client.get_metric_history(run.info.run_id, "global/accuracy")) == 3
