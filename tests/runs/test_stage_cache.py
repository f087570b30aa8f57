"""Runs of a comparison share equal stages, without any effect on their results."""

import json
import shutil

import pytest
import torch

import unskew as us
from toys import small_federation, vector_of
from unskew.composition.values import Stage
from unskew.methods import Method, make_method
from unskew.models import make
from unskew.runs.folder import RunFolder
from unskew.runs.read import read_runs
from unskew.runs.stage_cache import CACHE_FOLDER, StageCache

VAE = {"model": "vae:hidden=8,beta=1", "rounds": 3, "optimizer": "adam", "lr": 1e-3}
QUICK = "hidden=4,density_rounds=3,local_rounds=2,ratio_rounds=2,ratio_hidden=4"
FEDDISK = {"model": "logistic", "rounds": 2}
COMPARED = [
    (["latent:alpha=0.1", "latent:alpha=0.9,rescale=false"], VAE, "vae"),
    ([f"feddisk:{QUICK}", f"feddisk:estimator=loglik,{QUICK}"], FEDDISK, "density"),
]


@pytest.fixture
def federation():
    return small_federation(unit=True)


def seconds_of(run, stage):
    """The seconds of each round, which differ if a stage is executed twice."""
    return [row["seconds"] for row in run.metrics if row["stage"] == stage]


def without_seconds(run):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in run.metrics]


@pytest.mark.parametrize(("methods", "settings", "stage"), COMPARED)
def test_a_common_stage_runs_once_and_changes_no_bit(
    federation, tmp_path, methods, settings, stage
):
    runs = us.compare(federation, methods, seeds=1, jobs=1, out=tmp_path, **settings)
    assert seconds_of(runs[0], stage) == seconds_of(runs[1], stage) != []
    for method, shared in zip(methods, runs, strict=True):
        alone = us.train(federation, method, **settings)
        assert torch.equal(vector_of(shared), vector_of(alone))
        assert without_seconds(shared) == without_seconds(alone)
        assert shared.client_tables == alone.client_tables
        assert shared.cost == alone.cost


def train_cached(federation, out, name, method, **settings):
    shared = {"out": out / name, "stage_cache": out / "stages", **FEDDISK, **settings}
    return us.train(federation, method, **shared)


@pytest.mark.parametrize(
    ("method", "settings", "common"),
    [
        (f"feddisk:clip=5,{QUICK}", {}, ["density"]),
        (f"feddisk:{QUICK}", {"lr": 0.5, "epochs": 2}, ["density", "ratio"]),
        (f"feddisk:{QUICK}+ida", {}, ["density", "ratio"]),
        (f"feddisk:density_lr=0.1,{QUICK}", {}, []),
        (f"feddisk:{QUICK}", {"seed": 1}, []),
        (f"feddisk:{QUICK}", {"model": "mlp:hidden=4"}, []),
        (f"feddisk:{QUICK}", {"cohort": 2}, []),
    ],
)
def test_stages_are_shared_by_what_they_depend_on(federation, tmp_path, method, settings, common):
    first = train_cached(federation, tmp_path, "first", f"feddisk:{QUICK}")
    second = train_cached(federation, tmp_path, "second", method, **settings)
    found = [
        stage
        for stage in ("density", "ratio")
        if seconds_of(first, stage) == seconds_of(second, stage)
    ]
    assert found == common


def test_other_data_is_not_shared(tmp_path):
    first, second = (
        train_cached(
            small_federation(unit=True, seed=seed), tmp_path, f"{seed}", f"feddisk:{QUICK}"
        )
        for seed in (0, 1)
    )
    assert seconds_of(first, "density") != seconds_of(second, "density")


def test_a_run_with_a_cached_stage_can_be_resumed(federation, tmp_path):
    train_cached(federation, tmp_path, "first", f"feddisk:{QUICK}")
    train_cached(federation, tmp_path, "second", f"feddisk:clip=5,{QUICK}", rounds=1)
    resumed = train_cached(federation, tmp_path, "second", f"feddisk:clip=5,{QUICK}", resume=True)
    alone = us.train(federation, f"feddisk:clip=5,{QUICK}", **FEDDISK)
    assert torch.equal(vector_of(resumed), vector_of(alone))
    assert without_seconds(resumed) == without_seconds(alone)


def test_a_run_does_not_depend_on_the_runs_it_shared_stages_with(federation, tmp_path):
    train_cached(federation, tmp_path, "first", f"feddisk:{QUICK}")
    train_cached(federation, tmp_path, "second", f"feddisk:clip=5,{QUICK}", rounds=1)
    shutil.rmtree(tmp_path / "first")
    shutil.rmtree(tmp_path / "stages")
    resumed = train_cached(federation, tmp_path, "second", f"feddisk:clip=5,{QUICK}", resume=True)
    assert len(seconds_of(resumed, "task")) == 2


def damage_checkpoints(stages):
    for file in stages.rglob("*.safetensors"):
        damaged = file.read_bytes()[:-1]
        file.unlink()  # the linked file of the run is not changed
        file.write_bytes(damaged)


def damage_logs(stages):
    for file in stages.rglob("metrics.jsonl"):
        file.write_text("")


def lose_manifests(stages):
    for file in stages.rglob("manifest.json"):
        file.unlink()


@pytest.mark.parametrize("damage", [damage_checkpoints, damage_logs, lose_manifests])
def test_a_damaged_stage_is_run_again_and_replaced(federation, tmp_path, damage):
    first = train_cached(federation, tmp_path, "first", f"feddisk:{QUICK}")
    damage(tmp_path / "stages")
    second, third = (
        train_cached(federation, tmp_path, name, f"feddisk:{QUICK}") for name in ("second", "third")
    )
    assert seconds_of(first, "density") != seconds_of(second, "density")
    assert seconds_of(second, "density") == seconds_of(third, "density")
    assert torch.equal(vector_of(first), vector_of(second))
    assert without_seconds(first) == without_seconds(second) == without_seconds(third)


def test_a_run_interrupted_at_its_start_is_not_resumed(federation, tmp_path):
    first = train_cached(federation, tmp_path, "first", f"feddisk:{QUICK}")
    second = tmp_path / "second"
    shutil.copytree(first.folder / "checkpoints", second / "checkpoints")
    (second / "checkpoints" / "manifest.json").write_text("{}")
    (second / "run.json").write_text("{}")
    for _ in range(2):  # the second time the checkpoints are gone
        folder = RunFolder(tmp_path / "second", checkpoint_seconds=10)
        position = folder.open({"seed": 1}, {}, resume=True)
        folder.close()
        assert (position.stage, position.round, position.server) == (0, 0, None)
        assert [path.name for path in (second / "checkpoints").glob("*.*")] == ["manifest.json"]
        assert not list((second / "checkpoints").glob("stage*"))


def test_stages_of_resumed_runs_are_not_shared(federation, tmp_path):
    def stop(round_, metrics):
        if round_ == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_cached(federation, tmp_path, "first", "latent", **{**VAE, "rounds": 6}, progress=stop)
    train_cached(federation, tmp_path, "first", "latent", **{**VAE, "rounds": 2}, resume=True)
    second = train_cached(
        federation, tmp_path, "second", "latent:alpha=0.9", **{**VAE, "rounds": 2}
    )
    assert len(seconds_of(second, "vae")) == 2


def test_runs_of_custom_modules_share_no_stages(federation, tmp_path):
    settings = {**VAE, "model": make("vae:hidden=8,beta=1", (5,), 3, seed=0)}
    for name in ("first", "second"):
        train_cached(federation, tmp_path, name, "latent", **settings)
    assert not (tmp_path / "stages").exists()


def test_a_cached_stage_has_one_checkpoint(federation, tmp_path):
    train_cached(federation, tmp_path, "first", f"feddisk:{QUICK}", checkpoint_seconds=0)
    for kept in (tmp_path / "stages").iterdir():
        assert len(list((kept / "checkpoints").glob("stage*"))) == 1


def test_only_runs_with_folders_share_stages(federation, tmp_path):
    with pytest.raises(us.UnskewError, match="stage_cache: there is nothing to share"):
        us.train(federation, "fedavg", stage_cache=tmp_path)


def test_only_the_cache_is_removed_after_all_runs(federation, tmp_path):
    (tmp_path / "stages").mkdir()
    us.compare(federation, [f"feddisk:{QUICK}", "fedavg"], seeds=1, out=tmp_path, **FEDDISK)
    assert not (tmp_path / CACHE_FOLDER).exists()
    assert (tmp_path / "stages").exists()
    assert len(read_runs([tmp_path])) == 2


class Failing(us.ClientSide):
    """A method that is interrupted in its first round."""

    def prepare(self, client, start, payload, state):
        raise KeyboardInterrupt


def test_the_cache_of_an_interrupted_comparison_is_kept(federation, tmp_path):
    methods = [make_method(f"feddisk:{QUICK}"), Failing()]
    with pytest.raises(KeyboardInterrupt):
        us.compare(federation, methods, seeds=1, jobs=1, out=tmp_path, **FEDDISK)
    assert list((tmp_path / CACHE_FOLDER).iterdir())


class ByFunction(us.Setup):
    """A method with a stage whose network is built by a function."""

    def stages(self, stages):
        return (Stage("first", Method(), 1, network=lambda module, *_: module), *stages)


class Foreign(us.Setup):
    """A method with a stage that is trained by a custom method."""

    class Custom(us.ClientSide):
        pass

    def stages(self, stages):
        return (Stage("first", make_method(Foreign.Custom()), 1), *stages)


@pytest.mark.parametrize("method", [ByFunction(), Foreign()])
def test_a_stage_without_a_key_is_not_shared(federation, tmp_path, method):
    for name in ("one", "other"):
        train_cached(federation, tmp_path, name, method)
    assert not (tmp_path / "stages").exists()


def test_two_runs_may_complete_the_same_stage(federation, tmp_path):
    run = train_cached(federation, tmp_path, "first", f"feddisk:{QUICK}")
    (kept, *_) = (tmp_path / "stages").iterdir()
    before = json.loads((kept / "checkpoints" / "manifest.json").read_text())
    StageCache(kept.parent, [kept.name]).keep(0, run.folder)
    assert json.loads((kept / "checkpoints" / "manifest.json").read_text()) == before
    assert not [path for path in kept.parent.iterdir() if path.name.startswith(".")]


def test_a_stage_that_cannot_be_cached_does_not_fail_the_run(federation, tmp_path):
    run = train_cached(federation, tmp_path, "first", f"feddisk:{QUICK}")
    damage_checkpoints(run.folder)
    StageCache(tmp_path / "others", ["key"]).keep(0, run.folder)
    assert not list((tmp_path / "others").iterdir())
