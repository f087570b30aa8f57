"""A node's private releases cost what its ledger says, whatever a server asks and in any order."""

import json
import math
import multiprocessing
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from node_tables import COLUMNS, HOSPITALS, run_on_nodes
from private_method import DELTA, EPSILON, PrivateTask

from processes import SRC
from terminal import Terminal
from toys import small_federation
from unskew.engine.private_steps import PrivateStage
from unskew.errors import UnskewError
from unskew.flower.ledger import FOLDER, Ledger, LedgerFile, Release
from unskew.flower.node_files import NodeFiles
from unskew.flower.wire import Refusal
from unskew.privacy import Privacy, PrivacyLimit

pytest.importorskip("opacus")
hostile = pytest.importorskip("hostile")
grids = pytest.importorskip("grids")

OPTIONS = {"rounds": 3, "lr": 0.1, "batch_size": 8, "evaluate_every": 0}
TRAIN, PREPARE = "train.unskew", "query.unskew_prepare"


@pytest.fixture
def honest(tmp_path):
    """The first node of a run that has spent the budget that its method states."""
    state = tmp_path / "state"
    grid, exchanges = hostile.trained_exchanges(equal_clients(), PrivateTask(), state, **OPTIONS)
    return grid, [each for each in exchanges if each[0] == "0"], ledgers(state)["0"]


def equal_clients():
    """Clients that all need the same noise, so that each spends all of its budget."""
    return small_federation((20, 20, 20, 20), holdout=0)


def ledgers(state):
    """The path of the ledger of every node."""
    found = (state / FOLDER).glob("*/ledger.json")
    return {json.loads(path.read_text())["node"]: path for path in found}


def spent(path, delta=DELTA):
    return LedgerFile.model_validate_json(path.read_bytes()).spent().epsilon(delta)


def logged(path):
    """The epsilon of all messages that the node of a ledger has sent, by its log."""
    node = json.loads(path.read_text())["node"]
    lines = map(json.loads, (path.parents[2] / "sent.jsonl").read_text().splitlines())
    return sum(each["epsilon"] or 0.0 for each in lines if each["node"] == node)


def releases(path):
    return LedgerFile.model_validate_json(path.read_bytes()).releases


def model_in(content):
    return content.array_records["arrays"]["model"].numpy().tobytes()


def test_an_honest_run_spends_what_its_method_states(honest):
    _, exchanges, path = honest
    assert [hostile.reason_in(reply.content) for *_, reply in exchanges] == [None] * 3
    assert [each.what for each in releases(path)] == [f"task, round {n}" for n in (1, 2, 3)]
    assert 0.9 * EPSILON < spent(path) <= EPSILON
    assert logged(path) == pytest.approx(spent(path))


def test_200_repeats_of_a_round_get_the_same_bits(honest):
    grid, exchanges, path = honest
    before = path.read_bytes()
    replies = {model_in(hostile.repeat(grid, exchanges[1])) for _ in range(200)}
    assert replies == {model_in(exchanges[1][2].content)}
    assert path.read_bytes() == before
    assert logged(path) == pytest.approx(spent(path))


def test_replayed_and_reordered_rounds_get_what_they_got_or_are_refused(tmp_path):
    options = OPTIONS | {"rounds": 6}
    grid, all_exchanges = hostile.trained_exchanges(
        equal_clients(), PrivateTask(), tmp_path, **options
    )
    exchanges = [each for each in all_exchanges if each[0] == "0"]
    refused = 0
    for n in (5, 0, 3, 1, 4, 2, 0, 5, 0):
        again, (*_, reply) = hostile.repeat(grid, exchanges[n]), exchanges[n]
        if hostile.reason_in(again) is None:
            assert model_in(again) == model_in(reply.content)
        else:
            refused += 1
    assert refused == 5
    assert len(releases(ledgers(tmp_path)["0"])) == 6


def test_a_repeat_after_a_restart_gets_the_same_reply(honest):
    grid, exchanges, _ = honest
    grid.forget("0")
    again = hostile.repeat(grid, exchanges[2])
    first = exchanges[2][2].content
    assert model_in(again) == model_in(first)
    assert dict(again.metric_records["metrics"]) == dict(first.metric_records["metrics"])


@pytest.mark.parametrize("field", ["run", "round", "client", "settings", "noise", "batch", "steps"])
def test_what_a_server_invents_spends_from_the_same_budget(honest, field):
    grid, exchanges, path = honest
    noise = json.loads(exchanges[0][1].content["request"]["json"])["noise"]
    answered = set()
    for n in range(300 if field == "run" else 20):
        changes = {
            "run": {"run": f"invented-{n}"},
            "round": {"round": n % 3},
            "client": {"clients": 5 + n},
            "settings": {"settings": {"lr": 0.1 + n, "seed": n}},
            "noise": {"noise": noise * (1.5 + n)},
            "batch": {"settings": {"batch_size": 1 + n}, "noise": noise * 2},
            "steps": {"settings": {"steps": 1 + n, "rounds": 1}, "round": 0},
        }[field]
        content = hostile.repeat(grid, exchanges[0], **changes)
        reason = hostile.reason_in(content)
        if reason is None:
            answered.add(model_in(content))
        else:
            needs_more_noise = reason.startswith("its privacy budget needs more noise")
            assert needs_more_noise or " is 3 at delta 0.001, of which epsilon " in reason
    assert spent(path) <= EPSILON
    assert len(answered) <= len(releases(path)) - 2
    assert field in ("noise", "batch", "steps") or len(releases(path)) == 3


@pytest.mark.parametrize("noise", [math.inf, math.nan, -1.0, 1e300, -math.inf])
def test_noise_that_is_no_number_is_refused_at_once(honest, noise):
    grid, exchanges, path = honest
    before, started = path.read_bytes(), time.monotonic()
    reason = hostile.reason_in(hostile.repeat(grid, exchanges[0], run="other", noise=noise))
    assert time.monotonic() - started < 1
    assert "request: noise must be" in reason
    assert path.read_bytes() == before


@pytest.mark.parametrize("round_", [-1, -(10**9), 3, 10**9])
def test_rounds_that_the_stage_does_not_have_are_refused(honest, round_):
    grid, exchanges, path = honest
    before = path.read_bytes()
    reason = hostile.reason_in(hostile.repeat(grid, exchanges[0], round=round_))
    assert "round" in reason
    assert path.read_bytes() == before


def test_a_second_run_is_refused_unless_the_site_allows_more(tmp_path):
    federation, state = equal_clients(), tmp_path / "state"
    run = {"state": state, **OPTIONS}
    hostile.trained_exchanges(federation, PrivateTask(), **run)
    with pytest.warns(UserWarning, match="its privacy budget for these samples is 3 at"):
        _, exchanges = hostile.trained_exchanges(federation, PrivateTask(), **run)
    reasons = {hostile.reason_in(reply.content) for *_, reply in exchanges}
    assert all("its privacy budget for these samples is 3 at" in reason for reason in reasons)
    app = grids.client_app(grids.MODEL, federation, PrivateTask(), state=state, budget=f"5/{DELTA}")
    more = {"app": app, **run}
    _, exchanges = hostile.trained_exchanges(federation, PrivateTask(), **more)
    assert {hostile.reason_in(reply.content) for *_, reply in exchanges} == {None}
    # Two runs of epsilon 3 cost less than 6: their noise is composed.
    assert 3 < max(spent(path) for path in ledgers(state).values()) < 5


def test_the_stricter_limit_of_app_and_site_counts(tmp_path):
    federation = equal_clients()
    app = grids.client_app(
        grids.MODEL, federation, PrivateTask(), state=tmp_path, budget=f"3/{DELTA}"
    )
    limits = ["2/1e-3", "3/1e-3", "100/1e-3", "2"]
    configs = [{"partition-id": k, "privacy-budget": each} for k, each in enumerate(limits)]
    grid = grids.InProcessGrid(app, configs)
    grids.run_on_grid(federation, PrivateTask(), grid=grid, **OPTIONS)
    answered = dict.fromkeys("0123", 0)
    for name, _, reply in grid.of_kind(TRAIN):
        answered[name] += hostile.reason_in(reply.content) is None
    assert 0 < answered["0"] < 3
    assert (answered["1"], answered["2"], answered["3"]) == (3, 3, 0)


@pytest.mark.parametrize("value", ["x", "1/2/3", "-1", "1/1", "nan", "inf/1e-5", True, ""])
def test_a_limit_that_is_none_is_refused_by_name(value):
    with pytest.raises(UnskewError, match="budget: "):
        grids.client_app(grids.MODEL, small_federation(), "fedavg", budget=value)
    app = grids.client_app(grids.MODEL, small_federation(), "fedavg", state=None)
    grid = grids.InProcessGrid(app, [{"partition-id": 0, "privacy-budget": value}])
    with pytest.raises(UnskewError, match="privacy-budget: "):
        grids.run_on_grid(small_federation(), "fedavg", grid=grid, nodes=1, **OPTIONS)
    (_, _, reply), *_ = grid.of_kind("query.unskew")
    assert "the config of its site is wrong: privacy-budget: " in hostile.reason_in(reply.content)


def test_a_private_release_needs_a_state_folder():
    federation = equal_clients()
    app = grids.client_app(grids.MODEL, federation, PrivateTask(), state=None)
    with pytest.warns(UserWarning, match="it keeps no ledger of privacy"):
        run = grids.run_on_grid(federation, PrivateTask(), app=app, **OPTIONS).run
    assert "it keeps no ledger of privacy; set state" in run.metrics[0]["rejected"]["0"]


def test_a_damaged_ledger_is_not_an_empty_one(honest):
    grid, exchanges, path = honest
    for damaged in (
        b"",
        b"{}",
        b'{"node": "0", "limits": []}',
        path.read_bytes()[:-20],
        b'{"node": "0", "limits": []}x',
    ):
        path.write_bytes(damaged)
        reason = hostile.reason_in(hostile.repeat(grid, exchanges[0], run="other"))
        assert reason == "its ledger of privacy is damaged; its site must restore it"
        assert path.read_bytes() == damaged


def test_a_resumed_run_spends_a_round_only_once(tmp_path):
    federation, state = small_federation(), tmp_path / "state"
    app = grids.client_app(grids.MODEL, federation, PrivateTask(), state=state)

    def killed(name, kind, reply):
        if len(grid.of_kind(TRAIN)) == 2 * len(federation) - 1:
            raise KeyboardInterrupt
        return reply

    grid = grids.grid_of(app, len(federation), killed)
    options = {"out": tmp_path / "run", **OPTIONS}
    with pytest.raises(KeyboardInterrupt):
        grids.run_on_grid(federation, PrivateTask(), grid=grid, **options)
    grid = grids.grid_of(app, len(federation))
    run = grids.run_on_grid(federation, PrivateTask(), grid=grid, resume=True, **options).run
    assert [line["round"] for line in run.metrics] == [1, 2, 3]
    assert not any("rejected" in line for line in run.metrics)
    assert {len(releases(path)) for path in ledgers(state).values()} == {3}


# Statistics of tables.


def private_tables(folder):
    strategy = run_on_nodes(
        folder, state=folder / "state", prepare="federated:epsilon=1", columns=COLUMNS,
        noise="secret", rounds=1,
    )  # fmt: skip
    first, *_ = [each for each in strategy.grid.of_kind(PREPARE) if each[0] == HOSPITALS[0]]
    return strategy.grid, first, ledgers(folder / "state")[HOSPITALS[0]]


def test_300_invented_runs_get_one_release_of_statistics(tmp_path):
    grid, exchange, path = private_tables(tmp_path)
    sent = exchange[2].content["reply"]["json"]
    for n in range(300):
        again = hostile.repeat(grid, exchange, run=f"invented-{n}", seed=n, client=n % 4)
        assert again["reply"]["json"] == sent
    for n in range(300):
        asked = {"age": ["number", 0.0, 121.0 + n, None]}
        content = hostile.repeat(grid, exchange, run=f"invented-{n}", schema=asked)
        assert "is 1, of which epsilon 0 is left" in hostile.reason_in(content)
    assert len(releases(path)) == 1
    assert spent(path) == logged(path) == 1


# Processes.


KILLED = """
import os, signal, sys
sys.path[:0] = {paths}
import hostile
from private_method import PrivateTask
from toys import small_federation
from unskew.flower import node
state, kill = sys.argv[1:]
train = node.Loop.train
def killed(self, round_, tasks):
    if kill == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    result = train(self, round_, tasks)
    os.kill(os.getpid(), signal.SIGKILL)
node.Loop.train = killed
federation = small_federation((20, 20, 20, 20), holdout=0)
options = dict(rounds=3, lr=0.1, batch_size=8, evaluate_every=0)
hostile.trained_exchanges(federation, PrivateTask(), state, **options)
"""


@pytest.mark.parametrize("kill", ["before", pytest.param("after", marks=pytest.mark.long)])
def test_a_process_killed_before_it_sends_loses_budget_never_privacy(tmp_path, kill):
    paths = [str(SRC), str(Path(__file__).parent), str(Path(__file__).parents[1])]
    command = [sys.executable, "-c", KILLED.format(paths=paths), str(tmp_path), kill]
    assert subprocess.run(command, check=False, timeout=300).returncode == -signal.SIGKILL
    (path,) = ledgers(tmp_path).values()
    assert len(releases(path)) == 1
    cost = spent(path)
    _, exchanges = hostile.trained_exchanges(equal_clients(), PrivateTask(), tmp_path, **OPTIONS)
    refused = [hostile.reason_in(reply.content) for name, _, reply in exchanges if name == "0"]
    assert refused[:2] == [None, None]
    assert "is left, and task, round 3 needs" in refused[2]
    assert 0 < cost < spent(path) <= EPSILON


def spend_at_once(state, n, start, answers):
    ledger = Ledger(state, "samples", "node", (PrivacyLimit(epsilon=10),), PrivacyLimit(epsilon=1))
    start.wait()
    try:
        ledger.release(Release.of_statistics("run", f"request-{n}", 1.0), lambda: b"sent")
        answers.put(True)
    except Refusal:
        answers.put(False)


def test_processes_that_spend_at_once_never_spend_too_much(tmp_path):
    context = multiprocessing.get_context("fork")
    start, answers = context.Event(), context.Queue()
    processes = [
        context.Process(target=spend_at_once, args=(tmp_path, n, start, answers)) for n in range(16)
    ]
    for process in processes:
        process.start()
    start.set()
    answered = [answers.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert sum(answered) == 10
    (path,) = ledgers(tmp_path).values()
    assert spent(path) == 10


def test_a_ledger_does_not_become_slow(tmp_path):
    """Every release has another noise, which costs time to account for."""
    ledger = Ledger(tmp_path, "samples", "node", (PrivacyLimit(epsilon=50, delta=1e-5),),
                    PrivacyLimit(epsilon=1))  # fmt: skip
    for n in range(40):
        private = PrivateStage(Privacy(1, 1e-5), "task", 50.0 + n / 7, ((0.3, 1),), 1)
        release = Release.of_round("run", n, f"{n}", private)
        ledger.release(release, lambda: b"sent")
    (path,) = ledgers(tmp_path).values()
    stored = LedgerFile.model_validate_json(path.read_bytes())
    recomputed = stored.model_copy(update={"composed": None}).spent()
    assert stored.spent().epsilon(1e-5) == pytest.approx(recomputed.epsilon(1e-5))
    assert stored.composed.releases == 40
    files = NodeFiles(tmp_path / FOLDER, "samples")
    assert sum(name.endswith(".reply") for name in files.written()) == 3


# The command.


@pytest.fixture
def terminal(monkeypatch, capsys):
    return Terminal(monkeypatch, capsys)


def test_the_ledger_is_printed(honest, terminal):
    state = honest[2].parents[2]
    rows = [row for row in terminal.json("flower", "ledger", state) if row["node"] == "0"]
    assert [(row["run"] == "all", row["released"], row["times"]) for row in rows] == [
        (False, "task", 3), (True, "", 3)
    ]  # fmt: skip
    for row in rows:
        assert row["epsilon"] == pytest.approx(spent(honest[2]), abs=1e-4)
        assert row["limit"] == "3 at delta 0.001"
        assert row["left"] == pytest.approx(3 - spent(honest[2]), abs=1e-4)
    output = terminal.output("flower", "ledger", state)
    assert output.count(" of 3 at delta 0.001 is spent, ") == 4


def test_ledgers_that_cannot_be_printed(honest, terminal, tmp_path):
    (tmp_path / "new").mkdir()
    assert "no private release has left" in terminal.output("flower", "ledger", tmp_path / "new")
    assert terminal.json("flower", "ledger", tmp_path / "new") == []
    assert "no such folder" in terminal.error("flower", "ledger", tmp_path / "none")
    honest[2].write_text("{}")
    assert "the ledger is damaged" in terminal.error("flower", "ledger", honest[2].parents[2])
