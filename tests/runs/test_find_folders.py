"""The search for runs: what it finds, and that it ends soon wherever it starts."""

import os

import pytest

from unskew.errors import UnskewError
from unskew.report.comparisons.reading import comparison_folders
from unskew.runs import find_folders
from unskew.runs.find_folders import folders_with
from unskew.runs.read import read_runs, run_folders


def make(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("{}")
    return folder


def test_folders_are_found_at_any_depth_and_sorted(tmp_path):
    found = [make(tmp_path / name, "run.json") for name in ("a", "a/inside", "b/c/d", "e")]
    make(tmp_path / "f", "other.json")
    (tmp_path / "g" / "run.json").mkdir(parents=True)
    assert folders_with(tmp_path, "run.json") == found == run_folders(tmp_path)
    assert folders_with(tmp_path / "a", "run.json") == found[:2]


def test_checkpoints_hidden_folders_and_links_are_not_searched(tmp_path):
    run = make(tmp_path / "run", "run.json")
    make(run / "checkpoints" / "deep", "run.json")
    make(tmp_path / ".hidden" / "run", "run.json")
    (tmp_path / "link").symlink_to(run)
    kept = make(tmp_path / "checkpoints" / "mine", "run.json")
    assert folders_with(tmp_path, "run.json") == [kept, run]
    assert folders_with(tmp_path / ".hidden", "run.json") == [tmp_path / ".hidden" / "run"]
    assert folders_with(tmp_path / "link", "run.json") == [tmp_path / "link"]


@pytest.mark.parametrize("find", [run_folders, comparison_folders, lambda path: read_runs([path])])
def test_a_search_of_too_many_folders_is_given_up(tmp_path, monkeypatch, find):
    monkeypatch.setattr(find_folders, "MAX_FOLDERS", 20)
    visited, walk = [], os.walk

    def counted(path):
        for each in walk(path):
            visited.append(each)
            yield each

    monkeypatch.setattr(os, "walk", counted)
    for number in range(40):
        make(tmp_path / str(number))
    with pytest.raises(UnskewError, match=r"more than 20 folders are below it.*; name a folder"):
        find(tmp_path)
    assert len(visited) <= 21


def test_a_run_that_is_listed_twice_is_noticed_before_the_rest_is_read(tmp_path, federation):
    import shutil

    import unskew as us

    us.train(federation, model="logistic", rounds=1, out=tmp_path / "a", progress=False)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    make(tmp_path / "c", "run.json")  # it could not be read
    with pytest.raises(UnskewError, match="fedavg with seed 0 is listed twice"):
        read_runs([tmp_path])
