"""Replies are checked, missing nodes are recorded, and rounds continue."""

import io
import logging
import re
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from private_method import PrivateTask

from toys import small_federation
from unskew.data.columns import Columns
from unskew.engine.settings import Settings
from unskew.errors import UnskewError, UnskewWarning
from unskew.methods import ClientSide, ServerSide, make_method
from unskew.models import make
from unskew.models.functional import FunctionalModel

grids = pytest.importorskip("grids")

from flwr.app import Array, ConfigRecord, MetricRecord  # noqa: E402

from unskew.flower.loopback.programs import last_error  # noqa: E402
from unskew.flower.node import Node  # noqa: E402
from unskew.flower.requests import Request  # noqa: E402
from unskew.flower.site import Site  # noqa: E402
from unskew.flower.wire import Refusal  # noqa: E402

TRAIN = "train.unskew"
OPTIONS = {"rounds": 2, "lr": 0.1, "batch_size": 8, "evaluate_every": 0}


def changed(change):
    """Make node 1 send a changed model."""

    def spoil(name, kind, reply):
        if (name, kind) == ("1", TRAIN) and not reply.has_error():
            arrays = reply.content.array_records["arrays"]
            arrays["model"] = Array(change(arrays["model"].numpy().copy()))
        return reply

    return spoil


def without_model(name, kind, reply):
    if (name, kind) == ("1", TRAIN):
        del reply.content.array_records["arrays"]["model"]
    return reply


def without_metrics(name, kind, reply):
    if (name, kind) == ("1", TRAIN):
        reply.content["metrics"] = MetricRecord({})
    return reply


def without_arrays(name, kind, reply):
    if (name, kind) == ("1", TRAIN):
        del reply.content["arrays"]
    return reply


def with_text(name, kind, reply):
    if (name, kind) == ("1", TRAIN):
        reply.content.array_records["arrays"]["model"] = Array("float32", (3,), "npy", b"nonsense")
    return reply


def not_a_number(model):
    model[3] = np.nan
    return model


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (changed(not_a_number), "infinite or undefined"),
        (changed(lambda model: model[:-1]), "shape"),
        (changed(lambda model: model[None]), "shape"),
        (changed(lambda model: model.astype(np.float64)), "float64"),
        (changed(lambda model: model.astype(np.int64)), "int64"),
        (changed(lambda model: model * np.float32(1e9)), "times as far as the median"),
        (without_model, "no model"),
        (without_metrics, "no number"),
        (without_arrays, "cannot be read"),
        (with_text, "cannot be read"),
    ],
)
def test_a_bad_upload_is_rejected_by_name_and_the_round_continues(spoil, reason):
    run = grids.run_on_grid(small_federation(), "fedavg", spoil=spoil, **OPTIONS).run
    for line in run.metrics:
        assert list(line["rejected"]) == ["1"]
        assert reason in line["rejected"]["1"]
        assert "kept_model" not in line
    assert np.isnan(run.weights[:, 1]).all()
    assert np.allclose(np.nansum(run.weights, 1), 1)
    assert bool(torch.isfinite(grids.vector_of(run.model)).all())


def test_reasons_start_with_the_nodes_name():
    spoil = changed(lambda model: model[:-1])
    run = grids.run_on_grid(small_federation(), "fedavg", spoil=spoil, **OPTIONS).run
    assert run.metrics[0]["rejected"]["1"].startswith("1: its model has shape")


def test_the_bound_can_be_raised_or_removed():
    spoil = changed(lambda model: model * np.float32(1e9))
    for bound in (1e12, None):
        run = grids.run_on_grid(
            small_federation(), "fedavg", spoil=spoil, bound=bound, **OPTIONS
        ).run
        assert "rejected" not in run.metrics[0]


def test_unusual_and_undefined_extras_are_rejected():
    def other_shape(name, kind, reply):
        if (name, kind) == ("1", TRAIN):
            arrays = reply.content.array_records["arrays"]
            extra = next(key for key in arrays if key.startswith("extra/"))
            arrays[extra] = Array(arrays[extra].numpy()[:-1])
        return reply

    def undefined(name, kind, reply):
        if (name, kind) == ("1", TRAIN):
            arrays = reply.content.array_records["arrays"]
            extra = next(key for key in arrays if key.startswith("extra/"))
            arrays[extra] = Array(arrays[extra].numpy() * np.float32(np.nan))
        return reply

    for spoil, reason in (
        (other_shape, "has shape"),
        (undefined, "infinite or undefined"),
    ):
        run = grids.run_on_grid(small_federation(), "scaffold", spoil=spoil, **OPTIONS).run
        assert reason in run.metrics[0]["rejected"]["1"]
        assert bool(torch.isfinite(grids.vector_of(run.model)).all())


def test_a_node_without_a_reply_is_recorded_and_counts_no_traffic():
    def silent(name, kind, reply):
        return None if (name, kind) == ("2", TRAIN) else reply

    run = grids.run_on_grid(small_federation(), "fedavg", spoil=silent, timeout=7.0, **OPTIONS).run
    assert run.metrics[0]["missing"] == {"2": "2: no reply within 7 s"}
    assert "rejected" not in run.metrics[0]
    table = run.client_tables[0]
    assert table["bytes_up"][2] == 0
    assert table["bytes_up"][1] > 0
    assert table["weight"][2] is None


def test_a_node_that_disconnects_is_missing_until_it_is_back():
    def disconnect(name, kind, reply):
        trained = len(grid.of_kind(TRAIN))
        grid.offline = {"3"} if 4 <= trained < 7 else set()
        return reply

    federation = small_federation()
    app = grids.client_app(grids.MODEL, federation, "fedavg", state=None)
    grid = grids.grid_of(app, len(federation), disconnect)
    run = grids.run_on_grid(federation, "fedavg", grid=grid, **OPTIONS | {"rounds": 3}).run
    assert [line.get("missing") for line in run.metrics] == [
        None,
        {"3": "3: it is not connected"},
        None,
    ]


@pytest.mark.filterwarnings("ignore:.*left the model as it was")
def test_below_the_quorum_the_model_is_kept_and_this_is_recorded():
    def silent(name, kind, reply):
        return None if kind == TRAIN and name in "12" else reply

    federation = small_federation()
    strategy = grids.run_on_grid(federation, "fedavg", spoil=silent, quorum=3, **OPTIONS)
    assert all("fewer than 3 usable uploads" in line["kept_model"] for line in strategy.run.metrics)
    one_round = grids.run_on_grid(
        federation, "fedavg", spoil=silent, quorum=3, **OPTIONS | {"rounds": 1}
    )
    assert torch.equal(grids.vector_of(strategy.run.model), grids.vector_of(one_round.run.model))


@pytest.mark.filterwarnings("ignore:.*left the model as it was")
def test_the_quorum_is_half_of_the_nodes_unless_one_is_given(tmp_path):
    def only_the_first(name, kind, reply):
        return None if kind == TRAIN and name != "0" else reply

    def kept(**options):
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        run = grids.run_on_grid(
            small_federation(), "fedavg", spoil=only_the_first, out=out, **OPTIONS | options
        ).run
        return run.metrics[0].get("kept_model")

    assert kept() == "fewer than 2 usable uploads; the previous model is kept"
    assert kept(quorum=1) is None
    assert kept(participation=0.5) == "fewer than 1 usable uploads; the previous model is kept"


def test_a_resumed_run_keeps_the_quorum_that_it_was_started_with(tmp_path):
    options = OPTIONS | {"rounds": 1, "out": tmp_path / "run"}
    grids.run_on_grid(small_federation(), "fedavg", quorum=1, **options)
    resumed = grids.run_on_grid(
        small_federation(), "fedavg", **options | {"rounds": 2, "resume": True}
    )
    assert resumed.run.metadata["configuration"]["quorum"] == 1


def test_a_run_starts_with_half_of_the_nodes_that_were_expected():
    federation = small_federation()
    app = grids.client_app(grids.MODEL, federation, "fedavg", state=None)
    with pytest.raises(UnskewError, match="1 connected within 0 s, and the quorum is 2"):
        grids.run_on_grid(federation, "fedavg", grid=grids.grid_of(app, 1), **OPTIONS)
    run = grids.run_on_grid(federation, "fedavg", grid=grids.grid_of(app, 2), **OPTIONS).run
    assert run.clients == 2


def test_a_run_does_not_start_below_the_quorum():
    federation = small_federation()
    app = grids.client_app(grids.MODEL, federation, "fedavg", state=None)
    with pytest.raises(UnskewError, match="2 connected within 0 s, and the quorum is 3"):
        grids.run_on_grid(federation, "fedavg", grid=grids.grid_of(app, 2), quorum=3, **OPTIONS)


def test_without_a_quorum_the_nodes_own_reasons_are_repeated():
    def samples(context):
        if context.node_config["partition-id"] < 3:
            raise KeyError("secret 4711")
        return small_federation()

    app = grids.client_app(grids.MODEL, samples, "fedavg", state=None)
    grid = grids.grid_of(app, 4)
    with pytest.raises(UnskewError) as error:
        grids.Strategy("fedavg", nodes=4, quorum=2, wait=0.0, **OPTIONS).start(grid)
    text = str(error.value)
    assert text.startswith(
        "nodes: 4 connected, of which 1 can take part, and the quorum is 2; their logs say more; "
    )
    assert re.search(r"; 3 nodes: it raised KeyError \(test_flower_faults.py, line \d+\)", text)
    assert "secret" not in text


def test_a_run_on_nodes_that_all_fail_does_not_wait():
    app = grids.client_app(grids.MODEL, lambda context: 1 / 0, "fedavg", state=None)
    started = time.monotonic()
    with pytest.raises(UnskewError, match=r"3 connected, of which 0 can take part.* ZeroDivision"):
        grids.Strategy("fedavg", nodes=3, wait=60).start(grids.grid_of(app, 3))
    assert time.monotonic() - started < 30


class LeakyErrors(ClientSide):
    """A method that puts samples into its error messages."""

    def prepare(self, client, start, payload, state):
        if client.id == 1:
            raise ValueError(f"secret {client.x[0].tolist()}")
        return start


def test_an_error_on_a_node_is_reported_by_type_and_hook_without_data():
    strategy = grids.run_on_grid(small_federation(), LeakyErrors(), **OPTIONS)
    (why,) = strategy.run.metrics[0]["rejected"].values()
    place = r"\(test_flower_faults.py, line \d+\)"
    assert re.fullmatch(rf"1: it raised ValueError in prepare of 'leakyerrors' {place}", why)
    sent = [reply for name, _, reply in strategy.grid.of_kind(TRAIN) if name == "1"]
    assert all("secret" not in str(reply.content) for reply in sent)


class FailsInRoundTwo(ClientSide):
    def prepare(self, client, start, payload, state):
        return payload["missing"] if client.round else start


@pytest.mark.filterwarnings("ignore:.*left the model as it was")
def test_an_error_on_a_node_is_in_its_own_log_in_full_once():
    log = io.StringIO()
    logger, handler = logging.getLogger("flwr"), logging.StreamHandler(log)
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.ERROR)
    grids.run_on_grid(small_federation(), make_method("scaffold") + FailsInRoundTwo(), **OPTIONS)
    logger.removeHandler(handler)
    logger.setLevel(level)
    text = log.getvalue()
    assert text.count("this node failed, given scaffold/") == 4
    assert text.count('return payload["missing"]') == 4
    assert last_error(text) == "KeyError: 'missing'"


class ShrinksTheModel(ClientSide):
    def prepare(self, client, start, payload, state):
        start.received.mul_(0.9)
        return start


class CentersUploads(ServerSide):
    def receive(self, server, uploads):
        uploads.stack.sub_(uploads.previous)
        return {}


def test_a_hook_that_is_not_pure_is_named_on_nodes_and_on_the_server():
    with pytest.warns(
        UnskewWarning, match=r"prepare of 'shrinksthemodel' .*changed .*start\.received in place"
    ):
        strategy = grids.run_on_grid(
            small_federation(), ShrinksTheModel(), **{**OPTIONS, "rounds": 3}
        )
    assert len(strategy.run.metrics[-1]["rejected"]) == 4
    with pytest.raises(UnskewError, match=r"receive of 'centersuploads' .*changed uploads\.stack"):
        grids.run_on_grid(small_federation(), CentersUploads(), **OPTIONS)


def test_an_error_while_loading_data_is_reported_without_data():
    federation = small_federation()

    def load(context):
        if context.node_config["partition-id"] == 1 and loaded:
            raise RuntimeError("secret")
        loaded.append(True)
        return federation

    loaded = []
    app = grids.client_app(grids.MODEL, load, "fedavg", state=None)
    grid = grids.grid_of(app, len(federation))
    run = grids.run_on_grid(federation, "fedavg", grid=grid, nodes=3, **OPTIONS).run
    assert run.clients == 3
    assert "secret" not in str([reply for *_, reply in grid.log if not reply.has_error()])


@pytest.mark.filterwarnings("ignore:.*left the model as it was")
def test_a_node_with_another_method_or_network_refuses():
    federation = small_federation()
    for model, method, reason in (
        (grids.MODEL, "fedprox", "it runs fedprox, but the server runs fedavg"),
        ("mlp:hidden=9", "fedavg", "its network differs from the server's"),
    ):
        app = grids.client_app(model, federation, method, state=None)
        run = grids.run_on_grid(federation, "fedavg", app=app, **OPTIONS).run
        assert reason in run.metrics[0]["rejected"]["0"]


def test_two_nodes_with_the_same_name_are_rejected():
    federation = small_federation()
    app = grids.client_app(grids.MODEL, federation, "fedavg", name="mine", state=None)
    with pytest.raises(UnskewError, match="two nodes are named 'mine'"):
        grids.run_on_grid(federation, "fedavg", app=app, **OPTIONS)


def test_a_node_refuses_too_little_noise_and_too_many_rounds():
    pytest.importorskip("opacus")
    federation = small_federation(unit=True)

    settings = Settings(rounds=2, batch_size=8)
    node = Node(
        Site("0", replace(federation, train=Columns.whole(*federation.train.client(0)))),
        make_method(PrivateTask()),
        grids.MODEL,
        "cpu",
        None,
        secret_noise=True,
    )
    request = Request(
        run="r", method=make_method(PrivateTask()).spec, settings=settings, stage_index=0, round=0,
        client=0, clients=4, classes=3, layout="", noise=0.01,
    )  # fmt: skip
    layout = FunctionalModel(make(grids.MODEL, (5,), 3)).layout.fingerprint
    with pytest.raises(
        Refusal, match=r"its privacy budget needs more noise than 0\.01, which the server requests"
    ):
        node.context(request.model_copy(update={"layout": layout}))
    enough = request.model_copy(update={"layout": layout, "noise": 50.0, "round": 2})
    assert node.context(enough).private.noise_multiplier == 50
    with pytest.raises(Refusal, match="ends before round 3"):
        node.train(enough, {}, None)


def replying(kind, record, value):
    """Make node 1 reply with another record."""

    def spoil(name, message_type, reply):
        if (name, message_type) == ("1", kind):
            reply.content[record] = value
        return reply

    return spoil


@pytest.mark.parametrize(
    "text", ["no json", "{}", '{"name": "1", "samples": -3}', '["a list"]', '{"name": 5}']
)
def test_a_node_with_invalid_info_is_left_out(text):
    spoil = replying("query.unskew", "info", ConfigRecord({"json": text}))
    run = grids.run_on_grid(small_federation(), "fedavg", spoil=spoil, **OPTIONS).run
    assert run.clients == 3
    assert "rejected" not in run.metrics[0]


@pytest.mark.parametrize("accuracy", [[1, 2], 1e30, -0.5, float("nan")])
def test_invalid_metrics_of_one_node_leave_those_of_the_others(accuracy):
    def spoil(name, kind, reply):
        if (name, kind) == ("1", "evaluate.unskew"):
            reply.content["metrics"] = MetricRecord(
                {**reply.content["metrics"], "local/accuracy": accuracy}
            )
        return reply

    federation = small_federation()
    run = grids.run_on_grid(
        federation, "fedavg", spoil=spoil, **OPTIONS | {"evaluate_every": 1}
    ).run
    tables = [table for table in run.client_tables if table["kind"] == "local"]
    assert [table["client"] for table in tables] == [[0, 2, 3]] * 2


def test_no_node_replaces_one_that_is_connected():
    federation = small_federation()
    app = grids.client_app(grids.MODEL, federation, "fedavg", state=None)

    def intruder(name, kind, reply):
        if kind == TRAIN and len(grid.contexts) == 4:
            grid.add({"partition-id": 1})
        return reply

    grid = grids.grid_of(app, len(federation), intruder)
    run = grids.run_on_grid(federation, "fedavg", grid=grid, **OPTIONS).run
    good = grids.run_on_grid(federation, "fedavg", **OPTIONS).run
    assert torch.equal(grids.vector_of(run.model), grids.vector_of(good.model))
    node_ids = {sent.metadata.dst_node_id for name, sent, _ in grid.of_kind(TRAIN) if name == "1"}
    assert len(node_ids) == 1


def test_a_round_waits_for_its_quorum(monkeypatch):
    federation = small_federation()
    app = grids.client_app(grids.MODEL, federation, "fedavg", state=None)

    def disconnect(name, kind, reply):
        if kind == TRAIN and len(grid.of_kind(TRAIN)) == 4:
            grid.offline = {"2", "3"}
        return reply

    def reconnect(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            grid.offline = set()

    slept = []
    monkeypatch.setattr("unskew.flower.registry.time.sleep", reconnect)
    grid = grids.grid_of(app, len(federation), disconnect)
    run = grids.run_on_grid(federation, "fedavg", grid=grid, quorum=3, wait=60.0, **OPTIONS).run
    assert len(slept) == 3
    assert "missing" not in run.metrics[1]
