"""Run folders that somebody has changed are errors of one line."""

import ast
import json
import os
import shutil
from itertools import product

import pytest

import unskew as us
from unskew.errors import UnskewError
from unskew.report.reproduce import python_text
from unskew.report.watch import Watch
from unskew.runs.atomic import sha256
from unskew.runs.checkpoint import Checkpoints
from unskew.runs.read import read_run, read_runs


@pytest.fixture(scope="module")
def finished(federation, tmp_path_factory):
    options = {"model": "logistic", "rounds": 2, "cohort": 2}
    return us.train(federation, out=tmp_path_factory.mktemp("runs") / "one", **options).folder


@pytest.fixture
def folder(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


WRONG = [None, -1, 10**30, "x", [], {}, [1], {"a": None}, 0.5, True, "\ud800"]


def places(value, path=()):
    """Yield the path of every value in nested values."""
    if path:
        yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))


def changed(value, path, new):
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


def without(value, path):
    """Return a copy without the value at a path."""
    copy = value.copy()
    if len(path) > 1:
        copy[path[0]] = without(value[path[0]], path[1:])
    else:
        del copy[path[0]]
    return copy


def report(folder, tmp_path):
    """Make everything that a report and a live view show, if the folder can be read."""
    try:
        runs = read_runs([folder])
    except UnskewError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    runs.report(tmp_path / "page.html")
    with Watch([folder]) as watch:
        str(watch.update())


@pytest.mark.long
def test_any_wrong_value_in_run_json_is_one_line(folder, tmp_path):
    metadata = json.loads((folder / "run.json").read_text())
    for path, wrong in product(places(metadata), WRONG):
        (folder / "run.json").write_text(json.dumps(changed(metadata, path, wrong)))
        report(folder, tmp_path)


def test_any_missing_value_in_run_json_is_one_line(folder, tmp_path):
    metadata = json.loads((folder / "run.json").read_text())
    for path in places(metadata):
        (folder / "run.json").write_text(json.dumps(without(metadata, path)))
        report(folder, tmp_path)


@pytest.mark.parametrize("name", ["metrics.jsonl", "clients.jsonl"])
def test_any_missing_value_in_a_log_is_one_line(folder, tmp_path, name):
    lines = (folder / name).read_text().splitlines()
    row = json.loads(lines[0])
    for path in places(row):
        new = json.dumps(without(row, path))
        (folder / name).write_text("\n".join([new, *lines[1:]]) + "\n")
        report(folder, tmp_path)


@pytest.mark.parametrize("name", ["metrics.jsonl", "clients.jsonl"])
def test_any_wrong_value_in_a_log_is_one_line(folder, tmp_path, name):
    lines = (folder / name).read_text().splitlines()
    row = json.loads(lines[0])
    for number, path in enumerate(places(row)):
        new = json.dumps(changed(row, path, WRONG[number % len(WRONG)]))
        (folder / name).write_text("\n".join([new, *lines[1:]]) + "\n")
        report(folder, tmp_path)


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "clients.jsonl"])
@pytest.mark.parametrize("content", [b"\xff\xfe\n", b"[" * 50_000 + b"\n", b"[]\n", b"null\n"])
def test_files_of_another_kind_are_one_line(folder, name, content):
    (folder / name).write_bytes(content)
    with pytest.raises(UnskewError, match=name) as error:
        read_run(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("identity", [0.5, None, [], "x"])
def test_a_run_without_its_identity_is_not_resumed(folder, federation, identity):
    metadata = json.loads((folder / "run.json").read_text()) | {"identity": identity}
    (folder / "run.json").write_text(json.dumps(metadata))
    with pytest.raises(UnskewError, match=r"its run\.json was not written by unskew"):
        us.train(federation, model="logistic", rounds=2, cohort=2, out=folder, resume=True)


@pytest.mark.parametrize("content", ["3", "[]", "{}", "[" * 50_000])
def test_a_damaged_older_checkpoint_does_not_end_a_resumed_run(federation, tmp_path, content):
    options = {"model": "logistic", "out": tmp_path}
    us.train(federation, rounds=2, checkpoint_seconds=0, **options)
    newest = tmp_path / "checkpoints" / "stage0-round000002" / "position.json"
    newest.write_text(content)
    assert us.train(federation, rounds=3, resume=True, **options).rounds == 3


def test_a_pipe_in_place_of_a_file_is_refused(folder):
    (folder / "run.json").unlink()
    os.mkfifo(folder / "run.json")
    with pytest.raises(UnskewError, match=r"run\.json: is not a file"):
        read_run(folder)


HOSTILE = "it's \"<script>alert(1)</script>\\"
"""A name in which quotes, tags and a backslash have to be escaped."""


@pytest.mark.parametrize(
    "change",
    [
        {"identity": {"method": HOSTILE}},
        {"identity": {"network": HOSTILE}},
        {"data": {"name": HOSTILE, "skew": HOSTILE}},
        {"data": {"skew": "iid", "options": {"x=1); print(": 1}}},
        {"configuration": {"metrics": [HOSTILE], "metric": HOSTILE, "x=1); print(": 1}},
        {"versions": {HOSTILE: HOSTILE}},
    ],
)
def test_a_page_quotes_what_run_json_holds(folder, tmp_path, change):
    metadata = json.loads((folder / "run.json").read_text())
    for section, values in change.items():
        metadata[section] |= values
    (folder / "run.json").write_text(json.dumps(metadata))
    runs = read_runs(folder)
    page = runs.report(tmp_path / "page.html").read_text()
    assert "<script>alert" not in page
    code = python_text(runs)
    assert code is None or not [n for n in ast.walk(ast.parse(code)) if is_call_of(n, "print")][1:]


def is_call_of(node, name):
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == name


TUNING = {
    "requested": "fedavg", "chosen": {"method": "fedavg", "lr": 0.1, "rounds": 1, "value": 0.5,
    "values": [0.5], "failures": []}, "edges": {}, "results": [], "lr": [0.1, 1.0],
    "searched_lr": [0.1, 1.0], "clips": [], "share": 0.2, "budget": 4, "spent": 4, "rounds": 1,
    "seeds": [0], "level": "global", "metric": "accuracy",
}  # fmt: skip


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"tuning": TUNING | {"lr": []}}, "tuning.lr"),
        ({"tuning": TUNING | {"clips": "x"}}, "tuning.clips"),
        ({"target": [1.0, 2.0]}, "target"),
        ({"target": {"center": 1.0, "scale": 0.0}}, "target.scale"),
    ],
)
def test_the_file_and_the_field_are_named(folder, values, field):
    metadata = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(metadata | values))
    with pytest.raises(UnskewError, match=rf"run\.json: is damaged .*: {field} .*; move the run"):
        read_runs(folder)


def test_names_in_run_json_are_printable(folder, tmp_path):
    metadata = json.loads((folder / "run.json").read_text())
    metadata["data"] |= {"name": "a\x1b[31m\ud800", "class_names": ["\u202e", "b", "c"]}
    metadata["identity"]["method"] = "fed\x07avg"
    (folder / "run.json").write_text(json.dumps(metadata))
    run = read_run(folder)
    assert (run.data, run.method) == ("a\\x1b[31m\\ud800", "fed\\x07avg")
    assert us.Runs([run]).report(tmp_path / "page.html").read_text()


@pytest.mark.parametrize("name", ["../../victim", "/tmp/victim", "stage0-round000001/../.."])
def test_a_manifest_leads_to_no_other_folder(folder, name):
    manifest = folder / "checkpoints" / "manifest.json"
    listed = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({name: next(iter(listed.values()))}))
    with pytest.raises(UnskewError, match=r"manifest\.json: is damaged"):
        Checkpoints(manifest.parent).load()


@pytest.mark.parametrize("name", ["../../../victim.safetensors", "/tmp/victim"])
def test_a_checkpoint_leads_to_no_other_folder(folder, name, tmp_path):
    checkpoints = Checkpoints(folder / "checkpoints")
    (checkpoint, files) = list(
        json.loads((folder / "checkpoints/manifest.json").read_text()).items()
    )[-1]
    position = folder / "checkpoints" / checkpoint / "position.json"
    content = json.loads(position.read_text())
    position.write_text(json.dumps(content | {"states": {name: sha256(folder / "run.json")}}))
    files["position.json"] = sha256(position)
    (folder / "checkpoints/manifest.json").write_text(json.dumps({checkpoint: files}))
    for use in (checkpoints.load, lambda: checkpoints.link_to(tmp_path / "copy")):
        with pytest.raises(UnskewError, match="files that are not states"):
            use()
