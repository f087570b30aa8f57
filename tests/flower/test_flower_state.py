"""A client's state stays on its node, survives a restart, and can be rolled back."""

import json

import pytest
import torch

import unskew as us
from toys import small_federation
from unskew.errors import FolderError, UnskewError

grids = pytest.importorskip("grids")

TRAIN = "train.unskew"
OPTIONS = {"rounds": 4, "lr": 0.1, "batch_size": 8, "evaluate_every": 0}
DISK = "feddisk:density_rounds=2,ratio_rounds=2,hidden=6,global_samples=32,ratio_hidden=6"


def bits(run):
    return grids.vector_of(run.model)


def simulated(method, federation, **options):
    return us.train(federation, method, model=grids.MODEL, runner="loop", **OPTIONS | options)


@pytest.mark.parametrize("method", ["ditto", "fedper", "moon", DISK])
def test_the_server_neither_receives_nor_stores_the_state(method):
    federation = small_federation(unit=True)
    strategy = grids.run_on_grid(federation, method, **OPTIONS)
    assert len(strategy.run.states) == len(federation)
    for stored in strategy.run.states.values():
        assert set(stored) <= {"version", "kept"}
        assert stored["version"].shape == (2,)
        assert stored.get("kept", torch.empty(0)).numel() == 0
    kept = simulated(method, federation).states
    for name, _, reply in strategy.grid.of_kind(TRAIN):
        sent = [array.numpy() for array in reply.content.array_records["arrays"].values()]
        for tensor in kept[int(name)].values():
            # Single numbers may coincide, and tensors of an uploaded shape may be public.
            if tensor.ndim and not any(tensor.shape == array.shape for array in sent):
                assert all(tensor.numpy().tobytes() not in array.tobytes() for array in sent)


def test_sample_weights_never_leave_the_node():
    federation = small_federation(unit=True)
    strategy = grids.run_on_grid(federation, DISK, **OPTIONS)
    states = simulated(DISK, federation).states
    for name, _, reply in strategy.grid.of_kind(TRAIN):
        weights = states[int(name)]["feddisk/sample_weights"].numpy().tobytes()
        arrays = reply.content.array_records["arrays"].values()
        assert all(weights not in array.numpy().tobytes() for array in arrays)


@pytest.mark.parametrize("method", ["ditto", "scaffold", "fedper", DISK])
def test_a_restarted_node_reads_its_state_from_its_file(method, tmp_path):
    def restart(name, kind, reply):
        grid.forget(name)
        return reply

    federation = small_federation(unit=True)
    app = grids.client_app(grids.MODEL, federation, method, state=tmp_path / "nodes")
    grid = grids.grid_of(app, len(federation), restart)
    run = grids.run_on_grid(federation, method, grid=grid, **OPTIONS).run
    assert torch.equal(bits(run), bits(simulated(method, federation)))
    files = list((tmp_path / "nodes").rglob("*.safetensors"))
    assert len(files) <= 3 * len(federation)
    assert all(file.parent.stat().st_mode & 0o077 == 0 for file in files)


def test_a_node_that_lost_its_state_refuses_to_train():
    def restart(name, kind, reply):
        if name == "1":
            grid.forget(name)
        return reply

    federation = small_federation()
    app = grids.client_app(grids.MODEL, federation, "scaffold", state=None)
    grid = grids.grid_of(app, len(federation), restart)
    run = grids.run_on_grid(federation, "scaffold", grid=grid, **OPTIONS).run
    assert "rejected" not in run.metrics[0]
    assert run.metrics[1]["rejected"] == {"1": "1: it has lost its state of stage 1, round 1"}


def test_after_a_lost_reply_a_node_starts_from_its_earlier_state():
    def late_once(name, kind, reply):
        trained = [name for name, *_ in grid.of_kind(TRAIN)]
        return None if kind == TRAIN and name == "1" and trained.count("1") == 2 else reply

    federation = small_federation()
    app = grids.client_app(grids.MODEL, federation, "scaffold", state=None)
    grid = grids.grid_of(app, len(federation), late_once)
    run = grids.run_on_grid(federation, "scaffold", grid=grid, **OPTIONS).run
    versions = [
        json.loads(sent.content.config_records["request"]["json"])["state"]
        for name, sent, _ in grid.of_kind(TRAIN)
        if name == "1"
    ]
    assert versions == [None, [0, 0], [0, 0], [0, 2]]
    assert "rejected" not in run.metrics[2]


class Stop(KeyboardInterrupt):
    """The server is killed."""


DISK_STAGES = [pytest.param(DISK, at, marks=pytest.mark.long) for at in (2, 5)]


@pytest.mark.parametrize(
    ("method", "at"),
    [("fedavg", 2), ("scaffold", 3), ("fedper", 2), ("ifca:models=2", 3), *DISK_STAGES],
)
def test_a_restarted_server_resumes_bit_for_bit(method, at, tmp_path):
    federation = small_federation(unit=True)
    app = grids.client_app(grids.MODEL, federation, method, state=tmp_path / "nodes")

    def killed(name, kind, reply):
        # In the middle of a round: some nodes have replied and have a newer state.
        if len(grid.of_kind(TRAIN)) == at * len(federation) - 1:
            raise Stop
        return reply

    grid = grids.grid_of(app, len(federation), killed)
    with pytest.raises(Stop):
        grids.run_on_grid(federation, method, grid=grid, out=tmp_path / "run", **OPTIONS)
    resumed_grid = grids.grid_of(app, len(federation))
    options = OPTIONS | {"out": tmp_path / "run", "resume": True}
    run = grids.run_on_grid(federation, method, grid=resumed_grid, **options).run
    whole = simulated(method, federation)
    assert torch.equal(bits(run), bits(whole))
    assert [line["round"] for line in run.metrics] == [line["round"] for line in whole.metrics]
    trained = len(resumed_grid.of_kind(TRAIN)) // len(federation)
    assert trained == len(whole.metrics) - (at - 1)


def test_a_module_with_new_initial_weights_can_be_resumed(tmp_path):
    federation = small_federation()
    app = grids.client_app(grids.MODEL, federation, "fedavg", state=None)
    for rounds in (2, 4):
        model = torch.nn.Sequential(torch.nn.Linear(5, 3))
        app = grids.client_app(model, federation, "fedavg", state=None)
        options = OPTIONS | {"rounds": rounds, "out": tmp_path, "resume": rounds == 4}
        run = grids.run_on_grid(federation, "fedavg", model=model, app=app, **options).run
    assert [line["round"] for line in run.metrics] == [1, 2, 3, 4]


def test_nodes_keep_their_numbers_when_others_join_or_leave(tmp_path):
    federation = small_federation()
    app = grids.client_app(grids.MODEL, federation, "ditto", state=tmp_path / "nodes")

    def run_with(configs, rounds, resume):
        grid = grids.InProcessGrid(app, configs)
        options = OPTIONS | {"rounds": rounds, "out": tmp_path / "run", "resume": resume}
        return grids.run_on_grid(federation, "ditto", grid=grid, nodes=2, **options).run

    run_with([{"site": "b", "partition-id": 0}, {"site": "d", "partition-id": 1}], 1, False)
    joined = [{"site": "a", "partition-id": 2}, {"site": "d", "partition-id": 1}]
    run = run_with(joined, 2, True)
    assert run.metrics[1]["missing"] == {"0": "b: it is not connected"}
    assert run.client_tables[-1]["client"] == [0, 1, 2]
    assert json.loads((tmp_path / "run" / "nodes.json").read_text())["nodes"].keys() == {
        "b",
        "d",
        "a",
    }


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    federation = small_federation()
    grids.run_on_grid(federation, "fedavg", out=tmp_path, **OPTIONS)
    before = (tmp_path / "nodes.json").read_text()
    with pytest.raises(UnskewError, match="it already has a run"):
        grids.run_on_grid(federation, "fedavg", out=tmp_path, **OPTIONS)
    assert (tmp_path / "nodes.json").read_text() == before


@pytest.mark.parametrize(
    "names", [["notes.txt"], ["nodes.json"], ["start.safetensors"], ["logs/notes.txt"]]
)
@pytest.mark.parametrize("resume", [False, True])
def test_a_foreign_folder_is_refused_before_anything_is_written(tmp_path, names, resume):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"mine": 1}')
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FolderError, match="not part of a run; choose an empty"):
        grids.run_on_grid(
            small_federation(), "fedavg", out=tmp_path, resume=resume, **OPTIONS | {"rounds": 1}
        )
    assert sorted(tmp_path.rglob("*")) == before
    assert {(tmp_path / name).read_text() for name in names} == {'{"mine": 1}'}


@pytest.mark.parametrize("left", [["nodes.json"], ["nodes.json", "start.safetensors"]])
def test_a_server_that_was_killed_before_its_run_starts_again(tmp_path, left):
    options = OPTIONS | {"rounds": 1}
    grids.run_on_grid(small_federation(), "fedavg", out=tmp_path / "first", **options)
    again = tmp_path / "again"
    again.mkdir()
    for name in left:
        (again / name).write_bytes((tmp_path / "first" / name).read_bytes())
    (again / ".nodes.json.999999").write_text("half of it")
    run = grids.run_on_grid(small_federation(), "fedavg", out=again, resume=True, **options).run
    assert run.rounds == 1
    assert not list(again.glob(".*"))
