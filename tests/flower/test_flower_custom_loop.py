"""Custom data and code: nodes with plain arrays, and apps with a custom training loop."""

import numpy as np
import pytest
import torch
from torch import nn

import unskew as us
from toys import federation_of, small_federation
from unskew.aggregation.rule import weighted_mean
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import by_samples
from unskew.errors import UnskewError
from unskew.report.page import page_text
from unskew.runs.read import read_run
from unskew.runs.runs import Runs

grids = pytest.importorskip("grids")

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402

from unskew.flower.custom_loop import with_standard_names  # noqa: E402

OPTIONS = {"rounds": 2, "lr": 0.1, "batch_size": 8}
SITES = ("clinic", "hospital", "praxis")


def sites():
    rng = np.random.default_rng(0)
    return {
        site: (rng.normal(size=(n, 5)).astype(np.float32), rng.integers(0, 3, n))
        for site, n in zip(SITES, (9, 14, 11), strict=True)
    }


@pytest.mark.parametrize("method", ["fedavg", "ida", "fedper"])
def test_nodes_with_plain_arrays_train_like_a_federation_of_them(method):
    arrays = sites()
    app = grids.client_app(
        grids.MODEL, lambda context: arrays[context.node_config["site"]], method, state=None
    )
    # The order of connection differs from the order of names, which decides.
    grid = grids.InProcessGrid(app, [{"site": site} for site in reversed(SITES)])
    strategy = grids.Strategy(method, model=grids.MODEL, nodes=3, wait=0.0, **OPTIONS)
    strategy.start(grid)
    federation = federation_of(*arrays.values())
    simulated = us.train(federation, method, model=grids.MODEL, runner="loop", **OPTIONS)
    assert torch.equal(grids.vector_of(strategy.run.model), grids.vector_of(simulated.model))
    assert strategy.run.metadata["data"]["client_names"] == sorted(SITES)
    assert strategy.run.metadata["data"]["label_counts"] is None


def test_the_nodes_test_samples_are_evaluated_on_the_node():
    arrays = {site: (*pair, *pair) for site, pair in sites().items()}
    app = grids.client_app(
        grids.MODEL, lambda context: arrays[context.node_config["site"]], state=None
    )
    grid = grids.InProcessGrid(app, [{"site": site} for site in SITES])
    strategy = grids.Strategy(model=grids.MODEL, nodes=3, wait=0.0, **OPTIONS)
    result = strategy.start(grid)
    x = torch.cat([torch.from_numpy(pair[0]) for pair in sites().values()])
    y = torch.cat([torch.from_numpy(pair[1]) for pair in sites().values()])
    predictions = strategy.run.model(x).argmax(1)
    accuracies = [
        (p == t).double().mean()
        for p, t in zip(predictions.split([9, 14, 11]), y.split([9, 14, 11]), strict=True)
    ]
    assert strategy.run.last("local") == pytest.approx(float(torch.stack(accuracies).mean()))
    assert result.evaluate_metrics_clientapp[2]["local/accuracy"] == strategy.run.last("local")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((np.zeros((3, 2)),), "data must be"),
        ((np.zeros((3, 2)), [0, 1, 0], np.zeros((2, 3)), [0, 1]), "test samples have shape"),
        ((["a text", "another"], [0, 1]), "give the node's table as NodeTable"),
    ],
)
def test_invalid_arrays_are_rejected(data, message):
    from unskew.flower.site import Site

    context = next(iter(grids.grid_of(None, 1).contexts.values()))
    with pytest.raises(UnskewError, match=message):
        Site.of(data, context)


def custom_app(federation):
    """An app as in Flower's PyTorch quickstart, without any unskew code."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        model = make_net()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = federation.train.client(int(context.node_config["partition-id"]))
        x, y = torch.from_numpy(x.copy()), torch.from_numpy(y.copy())
        optimizer = torch.optim.SGD(model.parameters(), lr=message.content["config"]["lr"])
        for _ in range(3):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        metrics = {"train_loss": loss.item(), "num-examples": len(y)}
        content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)}
        return Message(content=RecordDict(content), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        model = make_net()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = federation.test.client(int(context.node_config["partition-id"]))
        accuracy = (model(torch.from_numpy(x)).argmax(1) == torch.from_numpy(y)).double().mean()
        metrics = {"num-examples": len(y), "eval_loss": 2.0, "eval_acc": accuracy.item()}
        return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    return app


def make_net():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


def start(strategy, federation, rounds=3, **options):
    """The rest of the quickstart's server app, unchanged."""
    grid = grids.grid_of(custom_app(federation), len(federation))
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(make_net().state_dict()),
        train_config=ConfigRecord({"lr": 0.1}),
        num_rounds=rounds,
        **options,
    )
    return result, grid


def test_with_two_lines_changed_fedavg_agrees_with_flowers():
    federation = small_federation()
    ours, grid = start(
        grids.Strategy("fedavg", model=make_net(), custom_loop=True, wait=0.0, nodes=4), federation
    )
    theirs, _ = start(FedAvg(), federation)
    ours, theirs = ours.arrays.to_torch_state_dict(), theirs.arrays.to_torch_state_dict()
    assert list(ours) == list(theirs)
    for name, tensor in ours.items():
        if name != "1.num_batches_tracked":
            assert torch.allclose(tensor, theirs[name], atol=1e-6)
    assert ours["1.num_batches_tracked"].dtype == torch.int64
    rounds = [sent.content["config"]["server-round"] for _, sent, _ in grid.of_kind("train")]
    assert rounds == [1] * 4 + [2] * 4 + [3] * 4


@pytest.mark.parametrize("method", ["ida", "fedsa", "fedfusion", "median", "fedadam", "krum:f=0"])
def test_server_side_methods_need_no_client_code(method):
    federation = small_federation()
    measured = []

    def evaluate_fn(round_, arrays):
        measured.append(round_)
        return MetricRecord({"tensors": len(arrays)})

    strategy = grids.Strategy(method, model=make_net(), custom_loop=True, wait=0.0, nodes=4)
    result, _ = start(strategy, federation, rounds=2, evaluate_fn=evaluate_fn)
    assert measured == [1, 2]
    assert result.evaluate_metrics_serverapp[2]["tensors"] == 9
    assert 0 <= result.evaluate_metrics_clientapp[2]["local/accuracy"] <= 1
    assert strategy.run.metrics[0]["train_loss"] > 0
    assert strategy.run.weights.shape == (2, 4)


def test_metrics_of_apps_get_the_names_that_reports_use(tmp_path):
    strategy = grids.Strategy(
        "fedavg", model=make_net(), custom_loop=True, wait=0.0, nodes=4, out=tmp_path / "run"
    )
    start(strategy, small_federation())
    local = strategy.run.metrics[-1]["local"]
    assert 0 <= local["min"] <= local["accuracy"] <= local["max"] <= 1
    assert local["loss"] == 2.0
    assert "num-examples" not in local
    runs = Runs([read_run(tmp_path / "run")])
    assert "2.0000" not in str(runs.table())
    assert "Accuracy of the global model on each client" in page_text(runs, None, None)


def test_other_metrics_keep_their_names_and_do_not_break_reports(tmp_path):
    measures = {"num-examples": np.array([3.0]), "rmse": np.array([0.5])}
    assert list(with_standard_names(measures)) == ["rmse"]
    strategy = grids.Strategy("fedavg", model=make_net(), custom_loop=True, wait=0.0, nodes=4)
    start(strategy, small_federation())
    run = strategy.run
    for row in (*run.metrics, *run.client_tables):
        level = row.get("local", row)
        for name in ("accuracy", "loss"):
            level.pop(name, None)
    page_text(Runs([run]), None, None)
    assert run.cost_to(0.5, "local") is None


def test_one_round_applies_the_rule_to_the_uploads():
    federation = small_federation()
    strategy = grids.Strategy("fedavg", model=make_net(), custom_loop=True, wait=0.0, nodes=4)
    _, grid = start(strategy, federation, rounds=1)
    sent = {int(name): reply.content["arrays"] for name, _, reply in grid.of_kind("train")}
    rows = []
    for k in range(4):
        module = make_net()
        module.load_state_dict(sent[k].to_torch_state_dict())
        rows.append(grids.vector_of(module))
    layout = grids.Layout.of(make_net())
    uploads = Uploads.of(torch.stack(rows), federation.train.sizes.tolist(), layout)
    expected, _ = weighted_mean(by_samples()).apply(uploads)
    assert torch.allclose(grids.vector_of(strategy.run.model), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "needed"),
    [
        ("scaffold+ida", "scaffold;"),
        ("feddisk", "feddisk"),
        ("intrac", "intrac"),
        ("fedavg:buffers=local", "buffers=local"),
    ],
)
def test_methods_that_need_client_code_are_rejected(method, needed):
    with pytest.raises(UnskewError, match=f"needs unskew's client code.*{needed}"):
        grids.Strategy(method, model=make_net(), custom_loop=True)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda arrays: arrays.pop("0.bias"), "not those of the network"),
        (lambda arrays: arrays.update({"0.bias": grids.Array(np.zeros(5, np.float32))}), "shape"),
        (lambda arrays: arrays.update({"0.bias": grids.Array(np.zeros(6))}), "float64"),
    ],
)
def test_replies_of_custom_loops_are_checked(change, reason):
    def spoil(name, kind, reply):
        if (name, kind) == ("1", "train"):
            change(reply.content.array_records["arrays"])
        return reply

    federation = small_federation()
    grid = grids.grid_of(custom_app(federation), 4, spoil)
    strategy = grids.Strategy("median", model=make_net(), custom_loop=True, wait=0.0, nodes=4)
    strategy.start(grid, num_rounds=1, train_config=ConfigRecord({"lr": 0.1}))
    (message,) = strategy.run.metrics[0]["rejected"].values()
    assert reason in message


def test_one_app_cannot_take_the_model_with_its_number_of_samples():
    def spoil(name, kind, reply):
        if (name, kind) == ("1", "train"):
            reply.content.metric_records["metrics"]["num-examples"] = 10**6
        return reply

    federation = small_federation()
    for options, outcome in (({}, "large_nodes"), ({"size_limit": None}, None)):
        grid = grids.grid_of(custom_app(federation), 4, spoil)
        strategy = grids.Strategy(
            "fedavg", model=make_net(), custom_loop=True, wait=0.0, nodes=4, **options
        )
        strategy.start(grid, num_rounds=1, train_config=ConfigRecord({"lr": 0.1}))
        rejected = strategy.run.metrics[0].get("rejected", {})
        assert [outcome in why for why in rejected.values()] == ([True] if outcome else [])
        assert (np.nanmax(strategy.run.weights) > 0.99) == (outcome is None)


def test_a_custom_app_without_custom_loop_gets_advice(caplog):
    import logging

    federation = small_federation()
    grid = grids.grid_of(custom_app(federation), 4)
    logger = logging.getLogger("flwr")
    logger.addHandler(caplog.handler)
    logger.setLevel(logging.WARNING)
    try:
        with pytest.raises(UnskewError, match="4 connected, of which 0 can take part"):
            grids.Strategy("fedavg", model=make_net(), wait=0.0).start(grid)
    finally:
        logger.setLevel(logging.CRITICAL)
        logger.removeHandler(caplog.handler)
    assert "custom_loop=True" in caplog.text


def test_a_wrapper_around_the_strategy_is_rejected():
    strategy = grids.Strategy("fedavg", model=make_net())
    with pytest.raises(UnskewError, match="call its start directly"):
        strategy.configure_train(1, ArrayRecord(), ConfigRecord(), None)


def test_wrong_initial_arrays_are_rejected():
    grid = grids.grid_of(custom_app(small_federation()), 4)
    strategy = grids.Strategy("fedavg", model=make_net(), custom_loop=True, wait=0.0)
    with pytest.raises(UnskewError, match="initial_arrays: the arrays are not those"):
        strategy.start(grid, initial_arrays=ArrayRecord({}))
