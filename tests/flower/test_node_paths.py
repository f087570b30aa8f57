"""Nothing that a server sends makes a node write or remove files outside its state folder."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from node_tables import HOSPITALS, run_on_nodes

from hostile_names import HOSTILE
from toys import small_federation
from unskew.flower.node_files import NodeFiles
from unskew.flower.wire import Refusal

hostile = pytest.importorskip("hostile")

OPTIONS = {"rounds": 1, "lr": 0.1, "batch_size": 8, "evaluate_every": 0}
IDS = st.sampled_from(HOSTILE) | st.text()


def snapshot(folder):
    return {path: path.is_dir() or path.read_bytes() for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A node's state folder beside files of others, and the messages of an honest run."""
    place = tmp_path_factory.mktemp("machine")
    state = place / "nodes" / "state"
    grid, exchanges = hostile.trained_exchanges(small_federation(), "ditto", state, **OPTIONS)
    for victim in (place / "victim" / "0", place / "x" / "0", place / "nodes" / "victim" / "0"):
        victim.mkdir(parents=True)
        (victim / "weights.safetensors").write_bytes(b"mine")
        (victim / "000-00000000.safetensors").write_bytes(b"mine")
    return place, state, grid, exchanges


def outside(place, state):
    return {k: v for k, v in snapshot(place).items() if not k.is_relative_to(state)}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(IDS)
def test_a_run_id_leads_nowhere(trained, run):
    place, state, grid, exchanges = trained
    before = outside(place, state)
    for again in (False, True):
        hostile.repeat(grid, exchanges[0], run=run, state=[0, 0] if again else None)
    assert outside(place, state) == before


@pytest.mark.parametrize("run", HOSTILE)
def test_a_run_id_works_or_is_refused(trained, run):
    reply = hostile.repeat(trained[2], trained[3][1], run=run)
    assert "Error" not in (hostile.reason_in(reply) or "")


@pytest.mark.parametrize("run", ["../victim", "../../x", "/tmp/../x", "a\0b"])
def test_preprocessing_of_a_hostile_run_id_writes_nothing(tmp_path, run):
    state = tmp_path / "nodes"
    strategy = run_on_nodes(tmp_path / "tables", state=state, rounds=1)
    before = outside(tmp_path, state)
    (exchange,) = [
        each
        for each in strategy.grid.of_kind("query.unskew_prepare")
        if each[0] == HOSPITALS[0] and '"apply"' in each[1].content["request"]["json"]
    ]
    reason = hostile.reason_in(hostile.repeat(strategy.grid, exchange, run=run))
    assert reason.startswith("request: run")
    assert outside(tmp_path, state) == before


def test_a_foreign_file_in_the_state_folder_is_kept(tmp_path):
    hostile.trained_exchanges(small_federation(), "ditto", tmp_path, **OPTIONS)
    (folder,) = (path.parent for path in tmp_path.rglob("0/*.safetensors"))
    foreign = folder / "999-00000000.safetensors"
    foreign.write_bytes(b"mine")
    files = NodeFiles(tmp_path, folder.parent.name, "0")
    files.remove(["999-00000000.safetensors", "000-00000000.safetensors"])
    assert foreign.read_bytes() == b"mine"
    assert not (folder / "000-00000000.safetensors").exists()


@pytest.mark.parametrize("place", ["run", "run/node", "run/node/state.bin"])
def test_a_link_out_of_the_state_folder_is_refused(tmp_path, place):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "state.bin").write_bytes(b"mine")
    files = NodeFiles(tmp_path / "nodes", "run", "node")
    files.write("other.bin", b"")
    link = tmp_path / "nodes" / place
    if link.is_dir():
        link.rename(tmp_path / "moved")
    link.symlink_to(victim / "state.bin" if link.suffix else victim)
    before = snapshot(victim)
    for use in (lambda: files.write("state.bin", b"new"), lambda: files.read("state.bin")):
        with pytest.raises(Refusal, match="a link in its state folder"):
            use()
    assert snapshot(victim) == before


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(st.tuples(IDS, IDS), IDS)
def test_files_are_below_the_state_folder_whatever_their_names(tmp_path, parts, name):
    files = NodeFiles(tmp_path / "nodes", *parts)
    path = files.write(name, b"1")
    assert path.is_relative_to((tmp_path / "nodes").resolve())
    assert files.read(name) == b"1"
    files.remove([name])
    assert not path.exists()
    assert set(tmp_path.iterdir()) == {tmp_path / "nodes"}
