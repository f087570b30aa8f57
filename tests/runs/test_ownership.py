"""A run never overwrites or removes files that are not its own."""

import json
import shutil

import pytest

import unskew as us
from unskew.errors import FolderError, UnskewError

OPTIONS = {"model": "logistic", "rounds": 2, "cohort": 2, "checkpoint_seconds": 0}


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.fixture(scope="module")
def finished(federation, tmp_path_factory):
    return us.train(federation, out=tmp_path_factory.mktemp("runs") / "one", **OPTIONS).folder


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    "names",
    [
        ["checkpoints/model.pt", "metrics.jsonl"],
        ["checkpoints/model.pt"],
        ["checkpoints/stage0-round000001/server.safetensors"],
        ["notes.txt"],
        ["run.lock"],
        ["run.json"],
        [".notes.txt.12"],
        ["clients.jsonl"],
        ["states/node-0/mine.txt"],
    ],
)
def test_a_folder_with_foreign_files_is_refused_and_unchanged(federation, tmp_path, names, resume):
    for name in names:
        path = tmp_path / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"mine": 1}')
    before = content(tmp_path)
    with pytest.raises(FolderError, match="choose an"):
        us.train(federation, out=tmp_path / "out", resume=resume, **OPTIONS)
    assert content(tmp_path) == before


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("lost", ["run.json", "checkpoints/manifest.json"])
def test_a_run_that_lost_a_file_is_not_wiped(federation, finished, tmp_path, lost, resume):
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    (out / lost).unlink()
    before = content(out)
    with pytest.raises(FolderError, match=f"no {lost}, so it cannot be resumed"):
        us.train(federation, out=out, resume=resume, **OPTIONS)
    assert content(out) == before


def test_files_beside_a_run_are_kept(federation, finished, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    foreign = [
        "notes.txt", "checkpoints/best.pt", "checkpoints/mine/model.pt",
        "checkpoints/states/mine.safetensors", "checkpoints/stage0-round000001/notes.txt",
    ]  # fmt: skip
    for name in foreign:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("mine")
    run = us.train(federation, "scaffold", out=out / "below", **OPTIONS)
    assert run.rounds == 2
    assert us.train(federation, out=out, resume=True, **OPTIONS | {"rounds": 5}).rounds == 5
    assert {(out / name).read_text() for name in foreign} == {"mine"}


def test_what_nodes_keep_may_precede_a_run(federation, tmp_path):
    """``flower up`` starts its nodes first, and a raw table is prepared before the first round."""
    for name in ("logs/node-0.log", "states/node-0/run/0/preprocessing-fitted.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    assert us.train(federation, out=tmp_path, **OPTIONS).rounds == 2


def test_a_run_interrupted_at_its_start_is_started_again(federation, tmp_path):
    (tmp_path / "checkpoints").mkdir()
    us.train(federation, out=tmp_path, **OPTIONS)
    other = tmp_path / "other"
    (other / "checkpoints").mkdir(parents=True)
    (other / "checkpoints" / "manifest.json").write_text("{}\n")
    assert us.train(federation, out=other, resume=True, **OPTIONS).rounds == 2
    assert set(json.loads((other / "checkpoints" / "manifest.json").read_text())) == {
        "stage0-round000001", "stage0-round000002",
    }  # fmt: skip


def test_temporary_files_of_killed_writes_are_removed(federation, finished, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    (out / "checkpoints" / ".stage0-round000003.123456").mkdir()
    (out / "checkpoints" / ".stage0-round000003.123456" / "server.safetensors").write_text("x")
    (out / "checkpoints" / "states").mkdir(exist_ok=True)
    for name in (".run.json.123456", "checkpoints/.manifest.json.77",
                 "checkpoints/states/.00000001.safetensors.77"):  # fmt: skip
        (out / name).write_text("half")
    us.train(federation, out=out, resume=True, **OPTIONS)
    assert not list(out.rglob(".*"))


@pytest.mark.parametrize("name", ["report.html", "table.csv", "tuning.md"])
def test_a_comparison_does_not_overwrite_foreign_files(federation, tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(UnskewError, match=f"{name}: exists, but was not written by a comparison"):
        us.compare(federation, "fedavg", seeds=1, out=tmp_path, **OPTIONS)
    assert content(tmp_path) == {name: b"mine"}


def test_a_comparison_replaces_its_own_files(federation, tmp_path):
    (tmp_path / "data.csv").write_text("mine")
    (tmp_path / ".unskew-stages").mkdir()
    (tmp_path / ".unskew-stages" / "mine").write_text("mine")
    (tmp_path / ".report.html.99999999").write_text("half of a page")
    runs = us.compare(federation, "fedavg", seeds=1, out=tmp_path, **OPTIONS)
    (tmp_path / "comparison.json").unlink()
    for name in ("table.csv", "table.tex", "table.md"):
        (tmp_path / name).unlink()
    runs.report(tmp_path / "report.html")
    us.compare(federation, "fedavg", seeds=1, out=tmp_path, **OPTIONS)
    us.compare(federation, "fedavg", seeds=1, out=tmp_path, **OPTIONS)
    assert (tmp_path / "data.csv").read_text() == "mine"
    assert (tmp_path / ".unskew-stages" / "mine").read_text() == "mine"
    assert not (tmp_path / ".report.html.99999999").exists()


def test_a_comparison_is_not_written_into_the_folder_of_a_run(tmp_path):
    federation = us.load("digits", clients=3)
    us.train(federation, "fedavg", rounds=1, out=tmp_path / "run")
    with pytest.raises(UnskewError, match="is the folder of a single run; choose another"):
        us.compare(federation, "fedavg,mean", rounds=1, seeds=1, out=tmp_path / "run")
