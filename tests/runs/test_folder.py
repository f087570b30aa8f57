"""The content of a run's folder."""

import json
import multiprocessing
import time

import pytest
import torch
from safetensors.torch import load_file

import unskew as us
from unskew.composition.values import Server
from unskew.errors import FolderError, UnskewError
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten
from unskew.runs.checkpoint import Checkpoints, Position
from unskew.runs.folder import RunFolder, read_lines
from unskew.runs.lock import FolderLock
from unskew.runs.states import ClientStates

OPTIONS = {"model": "logistic", "rounds": 3, "cohort": 2, "seed": 4}


@pytest.fixture(scope="module")
def run(federation, tmp_path_factory):
    return us.train(federation, out=tmp_path_factory.mktemp("runs") / "one", **OPTIONS)


def test_run_json_records_the_settings(run, federation):
    metadata = json.loads((run.folder / "run.json").read_text())
    assert metadata["identity"]["method"] == "fedavg"
    assert metadata["identity"]["network"] == "logistic"
    assert metadata["identity"]["data"] == federation.fingerprint
    assert metadata["identity"]["settings"]["seed"] == 4
    assert metadata["configuration"]["rounds"] == 3
    assert metadata["versions"]["torch"] == torch.__version__
    assert metadata["versions"]["unskew"] == us.__version__
    assert "clients=4" in metadata["federation"]


def test_metrics_have_one_line_per_round(run):
    rows = read_lines(run.folder / "metrics.jsonl")
    assert rows == run.metrics
    assert [row["round"] for row in rows] == [1, 2, 3]
    assert set(rows[0]) == {
        "stage", "round", "clients", "train_loss", "traffic",
        "global", "local", "personal", "seconds",
    }  # fmt: skip


def test_clients_have_one_table_per_round_and_evaluation(run):
    tables = read_lines(run.folder / "clients.jsonl")
    assert tables == run.client_tables
    assert [table["kind"] for table in tables] == ["round", "local", "personal"] * 3
    for table in tables:
        columns = [value for value in table.values() if isinstance(value, list)]
        assert len({len(column) for column in columns}) == 1
    assert sum(tables[0]["weight"]) == pytest.approx(1)


def test_nothing_is_pickled(run):
    files = [path for path in run.folder.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json", ".jsonl", ".safetensors"}
    assert not list(run.folder.rglob(".*"))


def test_the_last_checkpoint_holds_the_final_model(run):
    (newest,) = (run.folder / "checkpoints").glob("stage0-round000003")
    saved = load_file(newest / "server.safetensors")
    assert torch.equal(saved["now:vector"], flatten(run.model, FunctionalModel(run.model).layout))
    manifest = json.loads((run.folder / "checkpoints" / "manifest.json").read_text())
    assert set(manifest) == {newest.name}


def test_two_checkpoints_are_kept(federation, tmp_path):
    us.train(federation, out=tmp_path / "run", checkpoint_seconds=0, **OPTIONS)
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["manifest.json", "stage0-round000002", "stage0-round000003"]


def test_an_incomplete_last_line_is_ignored(tmp_path):
    path = tmp_path / "lines.jsonl"
    assert read_lines(path) == []
    path.write_text('{"a": 1}\n{"a": 2}\n{"a": 3')
    assert read_lines(path) == [{"a": 1}, {"a": 2}]
    path.write_text('{"a": 1}\n{"a": 2}')
    assert read_lines(path) == [{"a": 1}]


def test_a_line_may_hold_any_character(tmp_path):
    path = tmp_path / "lines.jsonl"
    value = {"name": "line\u2028separator\x85and\x0bmore"}
    path.write_text(json.dumps(value, ensure_ascii=False) + "\n", encoding="utf-8")
    assert read_lines(path) == [value]


def test_without_a_folder_nothing_is_written(federation, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert us.train(federation, **OPTIONS).folder is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_created_is_named(federation, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnskewError, match="out: cannot create the folder"):
        us.train(federation, out=tmp_path / "file" / "run", **OPTIONS)


def test_a_run_file_that_is_not_json_is_named(federation, tmp_path):
    us.train(federation, out=tmp_path, **OPTIONS)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(UnskewError, match=r"run\.json: is not JSON"):
        us.train(federation, out=tmp_path, resume=True, **OPTIONS)


@pytest.mark.parametrize("damage", ["{", '{"stage0-round000001": 3}', "[]"])
def test_a_damaged_manifest_is_named(federation, tmp_path, damage):
    us.train(federation, out=tmp_path, **OPTIONS)
    (tmp_path / "checkpoints" / "manifest.json").write_text(damage)
    with pytest.raises(UnskewError, match="checkpoints"):
        us.train(federation, out=tmp_path, resume=True, **OPTIONS)


def test_a_checkpoint_is_restored_exactly(tmp_path):
    transposed = torch.arange(6.0).view(2, 3).T  # not contiguous, as safetensors requires
    position = Position(
        stage=1,
        round=7,
        server=Server(torch.arange(3.0), {"control": transposed, "steps": torch.tensor(5)}),
        states=ClientStates().updated(
            {0: {"kept": torch.ones(2)}, 12: {"a/b": transposed, "none": torch.empty(0)}}
        ),
        earlier={
            "first": Server(torch.zeros(2), {"m": torch.ones(1)}),
            "second": Server(transposed),
        },
    )
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.load() is None
    checkpoints.save(position, {"metrics.jsonl": 10})
    read, marks = checkpoints.load()
    assert marks == {"metrics.jsonl": 10}
    assert (read.stage, read.round) == (1, 7)
    assert torch.equal(read.server.state["control"], transposed)
    assert read.server.state["steps"] == 5
    assert set(read.states) == {0, 12}
    assert torch.equal(read.states[12]["a/b"], transposed)
    assert read.states[12]["none"].shape == (0,)
    assert list(read.earlier) == ["first", "second"]
    assert read.earlier["first"].state["m"] == 1
    assert torch.equal(read.earlier["second"].vector, transposed)


def test_no_checkpoint_is_saved_without_a_new_round(tmp_path):
    folder = RunFolder(tmp_path, 0)
    folder.open({}, {}, resume=False)
    folder.checkpoint()
    assert json.loads((tmp_path / "checkpoints" / "manifest.json").read_text()) == {}
    folder.write({"round": 1}, [], Position(round=1, server=Server(torch.zeros(1))))
    (saved,) = (tmp_path / "checkpoints").glob("stage*")
    before = saved.stat().st_mtime_ns
    folder.checkpoint()
    assert saved.stat().st_mtime_ns == before
    folder.close()


@pytest.mark.parametrize("log", ["metrics.jsonl", "clients.jsonl"])
@pytest.mark.parametrize("left", [0, 1])
def test_a_log_that_lost_lines_is_reported_as_damaged(federation, tmp_path, log, left):
    us.train(federation, out=tmp_path, **OPTIONS)
    lines = (tmp_path / log).read_bytes().splitlines(keepends=True)
    (tmp_path / log).write_bytes(b"".join(lines[:left]))
    with pytest.raises(UnskewError, match=f"{log}: is damaged, it was longer"):
        us.train(federation, out=tmp_path, resume=True, **OPTIONS)
    assert len((tmp_path / log).read_bytes().splitlines()) == left


def test_a_line_that_is_not_json_is_reported_as_damaged(federation, tmp_path):
    us.train(federation, out=tmp_path, **OPTIONS)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"x" + path.read_bytes()[1:])
    with pytest.raises(UnskewError, match=r"metrics\.jsonl: is damaged, a line of it is not JSON"):
        read_lines(path)
    with pytest.raises(UnskewError, match=r"metrics\.jsonl: is damaged, it was changed after"):
        us.train(federation, out=tmp_path, resume=True, **OPTIONS)


@pytest.mark.parametrize("log", ["metrics.jsonl", "clients.jsonl"])
def test_a_changed_digit_is_noticed(federation, tmp_path, log):
    us.train(federation, out=tmp_path, **OPTIONS)
    content = (tmp_path / log).read_bytes()
    place = content.index(b"1")
    (tmp_path / log).write_bytes(content[:place] + b"2" + content[place + 1 :])
    with pytest.raises(FolderError, match=f"{log}: is damaged, it was changed after"):
        us.train(federation, out=tmp_path, resume=True, **OPTIONS | {"rounds": 5})


def test_only_one_process_at_a_time_writes_a_run(federation, tmp_path):
    first = FolderLock(tmp_path)
    with pytest.raises(FolderError, match="another process is executing this run"):
        us.train(federation, out=tmp_path, **OPTIONS)
    first.release()
    first.release()
    us.train(federation, out=tmp_path, **OPTIONS)
    us.train(federation, out=tmp_path, resume=True, **OPTIONS | {"rounds": 4})


def test_a_forked_process_does_not_lock_the_folder_of_its_parent(tmp_path):
    first = FolderLock(tmp_path)
    context = multiprocessing.get_context("fork")
    ready, done = context.Event(), context.Event()
    child = context.Process(target=lambda: (ready.set(), done.wait(20)))
    child.start()
    assert ready.wait(20)
    first.release()
    FolderLock(tmp_path).release()
    done.set()
    child.join()


def _hold_until_killed(folder, ready):
    lock = FolderLock(folder)
    ready.set()
    time.sleep(60)
    lock.release()


def test_a_killed_process_leaves_the_folder_free(tmp_path):
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    child = context.Process(target=_hold_until_killed, args=(tmp_path, ready))
    child.start()
    assert ready.wait(20)
    with pytest.raises(FolderError, match="another process"):
        FolderLock(tmp_path)
    child.kill()
    child.join()
    FolderLock(tmp_path).release()
    assert list(tmp_path.iterdir()) == []


def test_a_forked_process_cannot_give_up_its_parent_s_lock(tmp_path):
    first = FolderLock(tmp_path)
    child = multiprocessing.get_context("fork").Process(target=first.release)
    child.start()
    child.join()
    with pytest.raises(FolderError, match="another process"):
        FolderLock(tmp_path)
    first.release()
