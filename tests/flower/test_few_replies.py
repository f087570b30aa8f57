"""One or two replies in a round: they are compared with the past and with the broadcast model."""

import json

import numpy as np
import pytest
import torch

from toys import small_federation
from unskew.runs.file_names import MANIFEST

grids = pytest.importorskip("grids")

from bad_values import TRAIN, changing  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*(left the model as it was|continued without)")
OPTIONS = {"rounds": 4, "lr": 0.1, "batch_size": 8, "evaluate_every": 0}


def nodes(count):
    return small_federation((20, 13, 9)[:count], unit=True)


def run_with(count, method, spoil, **options):
    return grids.run_on_grid(nodes(count), method, spoil=spoil, **OPTIONS | options).run


def norm_of(run):
    return float(torch.linalg.vector_norm(grids.vector_of(run.model)))


def rejected(run):
    return [sorted(row.get("rejected", {})) for row in run.metrics]


@pytest.mark.parametrize("count", [2, 3])
def test_an_honest_node_is_not_rejected_because_another_one_hardly_moved(count):
    def spoil(name, kind, reply):
        if (name, kind) == ("1", TRAIN):
            *_, (_, _, sent, _) = grid.log
            model = sent.content.array_records["arrays"]["model"].numpy().copy()
            model[0] = np.nextafter(model[0], np.float32(np.inf))
            reply.content.array_records["arrays"]["model"] = grids.Array(model)
        return reply

    app = grids.client_app(grids.MODEL, nodes(count), "fedavg", state=None)
    grid = grids.grid_of(app, count, spoil)
    assert rejected(grids.run_on_grid(nodes(count), "fedavg", grid=grid, **OPTIONS).run) == [[]] * 4


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("first", [0, 2])
def test_a_model_that_is_far_too_large_is_rejected_from_the_first_round(count, first):
    bad = str(count - 1)
    spoil = changing(bad, "model", lambda model: model * np.float32(1e6), first=first)
    run = run_with(count, "fedavg", spoil)
    assert rejected(run) == [[]] * first + [[bad]] * (4 - first)
    assert norm_of(run) < 20


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("scaffold", "scaffold/control"),
        ("fedpac", "fedpac/prototypes"),
        ("fedpac", "fedpac/means"),
        ("feddbe", "feddbe/mean"),
    ],
)
def test_a_value_that_is_a_million_times_too_large_moves_nothing(method, name):
    spoil = changing("1", name, lambda value: value * np.float32(1e6))
    run = run_with(2, method, spoil, rounds=3)
    first = run.metrics[0]
    assert sorted(first["rejected"]) in (["1"], ["0", "1"])
    assert all(name in why for why in first["rejected"].values())
    if len(first["rejected"]) == 2:
        assert "nothing tells which one is wrong" in first["kept_model"]
    assert norm_of(run) < 20


@pytest.mark.parametrize("name", ["scaffold/control", "model"])
def test_after_honest_rounds_only_the_node_that_lies_is_named_also_after_a_resume(name, tmp_path):
    def run_to(rounds, folder, honest_rounds, resume=False):
        app = grids.client_app(
            grids.MODEL, nodes(2), "scaffold", state=tmp_path / f"{folder}-nodes"
        )
        spoil = changing("1", name, lambda value: value * np.float32(1e6), first=honest_rounds)
        options = {"rounds": rounds, "out": tmp_path / folder, "resume": resume}
        return run_with(2, "scaffold", spoil, app=app, **options)

    whole = run_to(4, "whole", 2)
    assert rejected(whole) == [[], [], ["1"], ["1"]]
    run_to(2, "parts", 2)
    resumed = run_to(4, "parts", 0, resume=True)
    assert [row.get("rejected") for row in resumed.metrics] == [
        row.get("rejected") for row in whole.metrics
    ]
    assert torch.equal(grids.vector_of(resumed.model), grids.vector_of(whole.model))


def test_a_run_whose_checkpoint_has_no_history_is_resumed(tmp_path):
    def run_to(rounds, **options):
        app = grids.client_app(grids.MODEL, nodes(2), "scaffold", state=tmp_path / "nodes")
        return run_with(
            2, "scaffold", None, app=app, rounds=rounds, out=tmp_path / "run", **options
        )

    run_to(2)
    checkpoints = tmp_path / "run" / "checkpoints"
    manifest = json.loads((checkpoints / MANIFEST).read_text())
    for name, files in manifest.items():
        (checkpoints / name / "accepted.safetensors").unlink()
        del files["accepted.safetensors"]
    (checkpoints / MANIFEST).write_text(json.dumps(manifest))
    assert rejected(run_to(4, resume=True)) == [[]] * 4
