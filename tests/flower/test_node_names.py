"""Names are bound to node keys: a node that claims another's name is refused."""

import json

import pytest
import torch

from toys import small_federation

grids = pytest.importorskip("grids")

from flwr.proto.node_pb2 import NodeInfo  # noqa: E402

OPTIONS = {"rounds": 2, "lr": 0.1, "batch_size": 8, "evaluate_every": 0}
TRAIN = "train.unskew"


class KeyedGrid(grids.InProcessGrid):
    """A grid whose nodes have keys, some of them registered with a name."""

    def __init__(self, app, configs, spoil=None):
        super().__init__(app, configs, spoil)
        self.keys = {node: f"key of {self.name_of(node)}" for node in self.contexts}
        self.registered = {}

    def get_nodes(self):
        return [
            NodeInfo(
                node_id=node,
                public_key=self.keys.get(node, f"key of node {node}").encode(),
                name=self.registered.get(node, ""),
            )
            for node in self.get_node_ids()
        ]

    def register(self):
        self.registered = {node: self.name_of(node) for node in self.contexts}


def keyed_grid(federation, method="fedavg", spoil=None, state=None, extra=()):
    app = grids.client_app(grids.MODEL, federation, method, state=state)
    configs = [{"partition-id": k} for k in range(len(federation))]
    return KeyedGrid(app, [*configs, *extra], spoil)


def good_model(federation):
    return grids.vector_of(grids.run_on_grid(federation, "fedavg", **OPTIONS).run.model)


def test_a_registered_node_that_claims_another_name_is_refused():
    federation = small_federation()
    grid = keyed_grid(federation, extra=[{"partition-id": 1}])
    grid.register()
    intruder = max(grid.contexts, key=lambda node: list(grid.contexts).index(node))
    grid.registered[intruder] = "clinic"
    run = grids.run_on_grid(federation, "fedavg", grid=grid, **OPTIONS).run
    assert run.clients == 4
    assert torch.equal(grids.vector_of(run.model), good_model(federation))
    asked = {sent.metadata.dst_node_id for _, sent, _ in grid.of_kind(TRAIN)}
    assert intruder not in asked


def test_without_registered_names_both_claimants_are_refused_and_the_run_goes_on():
    federation = small_federation()
    grid = keyed_grid(federation, extra=[{"partition-id": 1}])
    run = grids.run_on_grid(federation, "fedavg", grid=grid, **OPTIONS).run
    assert run.clients == 3
    assert {name for name, *_ in grid.of_kind(TRAIN)} == {"0", "2", "3"}


@pytest.mark.parametrize("registered", [True, False])
def test_the_name_of_a_node_that_disconnected_stays_with_its_key(registered):
    federation = small_federation()

    def swap(name, kind, reply):
        if kind == TRAIN and len(grid.of_kind(TRAIN)) == 4:
            victim = next(node for node in grid.contexts if grid.name_of(node) == "1")
            del grid.contexts[victim]
            grid.add({"partition-id": 1})
        return reply

    grid = keyed_grid(federation, spoil=swap)
    if registered:
        grid.register()
    run = grids.run_on_grid(federation, "fedavg", grid=grid, **OPTIONS).run
    assert ("missing" in run.metrics[1]) == registered


def test_a_resumed_run_knows_whose_name_it_is(tmp_path):
    federation = small_federation()
    grid = keyed_grid(federation, state=tmp_path / "states")
    options = OPTIONS | {"out": tmp_path / "run"}
    grids.run_on_grid(federation, "fedavg", grid=grid, **options)
    keys = json.loads((tmp_path / "run" / "nodes.json").read_text())["keys"]
    assert keys["1"] == {"key": b"key of 1".hex(), "registered": False}
    again = keyed_grid(federation, state=tmp_path / "states", extra=[{"partition-id": 1}])
    intruder = list(again.contexts)[-1]
    again.keys[intruder] = "another key"
    run = grids.run_on_grid(
        federation, "fedavg", grid=again, resume=True, **options | {"rounds": 3}
    ).run
    assert run.clients == 4
    assert intruder not in {sent.metadata.dst_node_id for _, sent, _ in again.of_kind(TRAIN)}


def test_a_node_that_comes_back_with_other_samples_is_refused():
    federation = small_federation()

    def come_back(name, kind, reply):
        if kind == TRAIN and len(grid.of_kind(TRAIN)) == 4:
            victim = next(node for node in grid.contexts if grid.name_of(node) == "1")
            del grid.contexts[victim]
            grid.add({"partition-id": 0, "name": "1"})
        return reply

    grid = keyed_grid(federation, spoil=come_back)
    run = grids.run_on_grid(federation, "fedavg", grid=grid, **OPTIONS).run
    assert list(run.metrics[1]["missing"]) == ["1"]
