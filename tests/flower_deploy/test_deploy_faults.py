"""How a federation handles nodes that die, raise, or send unusable replies."""

import signal

import pytest

pytest.importorskip("flwr")

from deployments import (
    NODES,
    RUN_TIMEOUT,
    SECRET,
    make_app,
    make_faulty_app,
    names_of,
    parity,
    rounds,
    run_app,
    settings,
    until,
)

from unskew.flower.loopback.federation import Loopback, node_name
from unskew.flower.loopback.parity import final_tensors

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    with Loopback(tmp_path_factory.mktemp("federation"), NODES) as federation:
        yield federation
    assert federation.programs.processes == []


@pytest.fixture
def federation(started):
    """The federation of all tests here, in which every node that a test has stopped runs again."""
    for node in range(NODES):
        if not started.programs[node_name(node)].is_running:
            started.start_node(node)
    return started


def test_bad_replies_are_rejected_by_name_and_the_round_continues(federation, tmp_path):
    app, out = make_faulty_app(tmp_path / "app", "ida"), tmp_path / "run"
    faults = "0:1:nan 0:2:shape 1:0:dtype 1:1:raise 2:2:scale"
    options = {"train.rounds": 3, "train.quorum": 1}  # two of three nodes are bad in a round
    log = run_app(federation, app, settings(out, faults=faults, **options))
    expected = {
        (1, "1"): "infinite or undefined",
        (1, "2"): "shape",
        (2, "0"): "float64",
        (2, "1"): "it raised ValueError",
        (3, "2"): "times as far",
    }
    reasons = {
        (row["round"], name): why for row in rounds(out) for name, why in row["rejected"].items()
    }
    assert reasons.keys() == expected.keys()
    for (number, name), text in expected.items():
        assert reasons[number, name].startswith(f"{names_of(out)[int(name)]}: ")
        assert text in reasons[number, name]
    assert all(row["train_loss"] is not None and "kept_model" not in row for row in rounds(out))
    assert SECRET not in log + (out / "metrics.jsonl").read_text()
    assert SECRET in federation.programs[node_name(1)].text()  # the node's own log has it


def kill_in_round_two(federation, app, out, sign, **changes):
    """Submit a run, and send a signal to node 1 while it trains in the second round."""
    run = federation.submit(app, settings(out, faults="1:1:sleep", **changes))
    until((out / "asleep-1").exists, "node 1 trains in round 2")
    federation.programs[node_name(1)].signal(sign)
    return run


def test_a_node_that_was_stopped_comes_back_with_its_state(federation, tmp_path):
    app, out = make_faulty_app(tmp_path / "app", "scaffold"), tmp_path / "run"
    run = kill_in_round_two(
        federation, app, out, signal.SIGTERM,
        **{"train.rounds": 3, "train.quorum": 3, "wait": 120.0},
    )  # fmt: skip
    until(lambda: len(rounds(out)) == 2, "round 2 ends without node 1")
    federation.start_node(1)
    assert federation.wait(run, RUN_TIMEOUT).completed
    first, second, third = rounds(out)
    assert "missing" not in first
    assert list(second["missing"]) == ["1"]
    assert second["missing"]["1"].startswith("1: ")
    assert second["kept_model"] == "fewer than 3 usable uploads; the previous model is kept"
    # Its memory is gone, so the state that the server requests can only come from its file.
    assert not {"missing", "rejected", "kept_model"} & set(third)


def test_fewer_nodes_than_the_quorum_wait_and_keep_the_model(federation, tmp_path):
    federation.programs[node_name(2)].stop()
    app, out = make_app(tmp_path / "app", "fedavg"), tmp_path / "run"
    options = {"train.quorum": 2, "train.rounds": 3, "wait": 8.0}
    run = federation.submit(app, settings(out, **options))
    until(lambda: len(rounds(out)) == 1, "a round with two of three nodes")
    federation.programs[node_name(1)].stop()
    outcome = federation.wait(run, RUN_TIMEOUT)
    assert outcome.completed
    assert "2 of 3 nodes connected after 8 s; starting without the others" in outcome.log
    first, second, third = rounds(out)
    assert "kept_model" not in first
    for row in (second, third):
        assert list(row["missing"]) == ["1"]
        assert row["kept_model"] == "fewer than 2 usable uploads; the previous model is kept"
    assert third["seconds"] > 8  # it waited for a second node


def test_a_restarted_superlink_resumes_bit_for_bit(federation, tmp_path):
    app, out = make_app(tmp_path / "app", "scaffold"), tmp_path / "run"
    changes = settings(out, **{"train.rounds": 3})
    federation.submit(app, changes)
    manifest = out / "checkpoints" / "manifest.json"
    until(lambda: manifest.exists() and "round000001" in manifest.read_text(), "a round is saved")
    superlink = federation.programs["superlink"]
    superlink.signal(signal.SIGKILL)
    superlink.stop()
    before = final_tensors(out)
    federation.start_superlink()
    run_app(federation, app, {**changes, "resume": True})
    assert [row["round"] for row in rounds(out)] == [1, 2, 3]
    assert not before["/vector"].equal(final_tensors(out)["/vector"])
    assert parity(app, {**changes, "resume": True}).largest_difference == 0


def test_a_node_that_was_killed_is_on_record_and_the_rest_goes_on(federation, tmp_path):
    # The last test here: Flower takes a killed node for connected for about a minute.
    app, out = make_faulty_app(tmp_path / "app", "fedavg"), tmp_path / "run"
    run = kill_in_round_two(
        federation, app, out, signal.SIGKILL, **{"train.rounds": 3, "timeout": 150.0}
    )
    assert federation.wait(run, RUN_TIMEOUT).completed
    first, second, third = rounds(out)
    assert "missing" not in first
    assert list(second["missing"]) == ["1"]
    assert second["seconds"] < 150 + 15  # the timeout, plus Flower's polling intervals
    for row in (second, third):
        assert list(row["missing"]) == ["1"]
        assert row["train_loss"] is not None
        assert "kept_model" not in row
