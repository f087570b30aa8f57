"""Real clusters on this machine give the local table bit for bit, also if a worker is killed."""

import json
import shutil

import pytest
import torch
from tests.toys import vector_of
from torch import nn

import unskew as us

pytestmark = pytest.mark.long

PART = """
import os
import signal
from pathlib import Path

from unskew.methods import ServerSide


class KilledOnce(ServerSide):
    def receive(self, server, uploads):
        marker = Path(__file__).with_name("killed")
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().receive(server, uploads)
"""
OPTIONS = {"seeds": 2, "rounds": 4, "progress": False, "checkpoint_seconds": 0.0}


def digits(seed):
    return us.load("digits", "dirichlet:alpha=1", 4, seed, samples=200)


def without_time(run):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in run.metrics]


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param("ray_cluster", marks=pytest.mark.extras("ray")),
        pytest.param("dask_cluster", marks=pytest.mark.extras("distributed")),
        pytest.param("slurm_cluster", marks=pytest.mark.extras("submitit")),
    ],
)
def test_the_table_is_the_local_one_although_a_worker_is_killed(cluster, request, tmp_path):
    on = request.getfixturevalue(cluster)
    part = tmp_path / "my.py"
    part.write_text(PART)
    options = OPTIONS | {"model": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10))}
    methods = f"fedavg,scaffold,{part}:KilledOnce"
    (tmp_path / "killed").touch()
    here = us.compare(digits, methods, jobs=1, out=tmp_path / "here", **options)
    (tmp_path / "killed").unlink()
    away = us.compare(digits, methods, on=on, out=tmp_path / "away", **options)
    assert (tmp_path / "killed").exists()
    assert str(away.table_with_verdict()) == str(here.table_with_verdict())
    for one, two in zip(away, here, strict=True):
        assert without_time(one) == without_time(two)
        assert torch.equal(vector_of(one), vector_of(two))
    assert not (tmp_path / "away" / ".unskew-cluster").exists()
    text = (tmp_path / "away" / "fedavg" / "seed0" / "run.json").read_text()
    assert json.loads(text)["cpus"] == here[0].facts["cpus"]
    shutil.rmtree(tmp_path / "away" / "fedavg" / "seed0")
    again = us.compare(digits, methods, on=on, out=tmp_path / "away", **options)
    assert str(again.table_with_verdict()) == str(here.table_with_verdict())
