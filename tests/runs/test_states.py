"""Client states: snapshots are immutable, memory is limited, checkpoints write changes."""

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import unskew as us
from toys import federation_of, small_federation
from unskew.errors import UnskewError
from unskew.methods import ClientSide, Finished, Server
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten
from unskew.runs import states as module
from unskew.runs.checkpoint import Checkpoints, Position
from unskew.runs.states import ClientStates, StateStore


def state(number: float, size: int = 4):
    return {"a": torch.full((size,), float(number)), "b": torch.tensor(number)}


def values(states):
    return {client: float(kept["b"]) for client, kept in states.items()}


ROUNDS = st.lists(st.dictionaries(st.integers(0, 60), st.integers(0, 99), max_size=6), max_size=12)


@settings(max_examples=40)
@given(ROUNDS, st.sampled_from([0, 60, 200, 10**6]))
def test_snapshots_never_change(rounds, memory):
    states = ClientStates(StateStore(memory=memory))
    snapshots, expected = [states], [{}]
    for round_ in rounds:
        states = states.updated({k: state(v) for k, v in round_.items()})
        snapshots.append(states)
        expected.append({**expected[-1], **round_})
    for snapshot, known in zip(snapshots, expected, strict=True):
        assert values(snapshot) == known
        for client, number in known.items():
            assert torch.equal(snapshot[client]["a"], torch.full((4,), float(number)))


def in_memory(states):
    return {k for k, record in states._records.items() if record.tensors is not None}


def test_least_recently_trained_clients_are_moved_to_disk(tmp_path):
    """Four states of 40 bytes exceed the limit of 130 and are reduced to 3/4 of it, 97."""
    states = ClientStates(StateStore(tmp_path, memory=130))
    for client in (5, 6, 7):
        states = states.updated({client: {"a": torch.zeros(10)}})
    assert in_memory(states) == {5, 6, 7}
    states = states.updated({5: {"a": torch.ones(10)}})  # 6 is now the oldest
    assert in_memory(states) == {5, 6, 7}
    assert not list(tmp_path.iterdir())
    states = states.updated({8: {"a": torch.zeros(10)}})
    assert in_memory(states) == {5, 8}
    assert len(list(tmp_path.iterdir())) == 1
    assert float(states[5]["a"].sum()) == 10
    assert float(states[7]["a"].sum()) == 0


def test_reading_leaves_a_state_on_disk(tmp_path):
    states = ClientStates(StateStore(tmp_path, memory=0)).updated({0: state(1)})
    assert values(states) == {0: 1}
    assert in_memory(states) == set()


def test_unused_files_are_removed(tmp_path):
    states = ClientStates(StateStore(tmp_path, memory=0))
    for number in range(5):
        states = states.updated({0: state(number), 1: state(number)})
    assert len(list(tmp_path.iterdir())) <= 2
    assert values(states) == {0: 4, 1: 4}


def test_a_row_does_not_keep_its_matrix_in_memory():
    matrix = torch.zeros(100, 1000)
    kept = ClientStates().updated({0: {"row": matrix[3]}})[0]["row"]
    assert kept.untyped_storage().nbytes() == 4000


def test_a_temporary_folder_is_removed_with_its_states():
    states = ClientStates(StateStore(memory=0)).updated({0: state(1)})
    folder = states._records[0].file.path.parent
    assert folder.is_dir()
    del states
    assert not folder.exists()


def test_a_missing_file_is_named(tmp_path):
    states = ClientStates(StateStore(tmp_path, memory=0)).updated({0: state(1)})
    (file,) = tmp_path.iterdir()
    file.unlink()
    with pytest.raises(UnskewError, match=f"{file.name}: cannot read a client's state"):
        states[0]


# With checkpoints.


def save(checkpoints, states, round_):
    server = Server(torch.zeros(1))
    checkpoints.save(Position(round=round_, server=server, states=states), {})


def files_of(folder):
    return {path.name: path.stat().st_ino for path in (folder / "states").iterdir()}


def test_a_checkpoint_writes_only_what_changed(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    states = ClientStates(checkpoints.store).updated({k: state(k) for k in range(300)})
    save(checkpoints, states, 1)
    first = files_of(tmp_path)
    assert len(first) == 2  # of 256 clients, and of 44
    states = states.updated({k: state(-k) for k in range(10, 20)})
    save(checkpoints, states, 2)
    second = files_of(tmp_path)
    assert first.items() < second.items()
    (new,) = set(second) - set(first)
    assert (tmp_path / "states" / new).stat().st_size < 3000  # ten states of 20 bytes, and names
    read, _ = Checkpoints(tmp_path).load()
    assert values(read.states) == values(states)
    save(checkpoints, states, 3)
    assert files_of(tmp_path) == second


def test_states_on_disk_are_not_written_again(tmp_path):
    checkpoints = Checkpoints(tmp_path, state_memory=0)
    states = ClientStates(checkpoints.store).updated({k: state(k) for k in range(20)})
    before = files_of(tmp_path)
    save(checkpoints, states, 1)
    assert files_of(tmp_path) == before


def test_a_mostly_outdated_file_is_replaced(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    states = ClientStates(checkpoints.store).updated({k: state(k) for k in range(10)})
    save(checkpoints, states, 1)
    (first,) = files_of(tmp_path)
    states = states.updated({k: state(-k) for k in range(6)})  # four of ten are left
    save(checkpoints, states, 2)
    assert first in files_of(tmp_path)  # the previous checkpoint needs it
    save(checkpoints, states, 3)
    assert first not in files_of(tmp_path)
    read, _ = Checkpoints(tmp_path).load()
    assert values(read.states) == {k: -k if k < 6 else k for k in range(10)}


def test_many_small_files_are_merged(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MAX_SMALL_FILES", 5)
    checkpoints = Checkpoints(tmp_path)
    states = ClientStates(checkpoints.store)
    for client in range(20):
        states = states.updated({client: state(client)})
        save(checkpoints, states, client)
        assert len(files_of(tmp_path)) <= 14  # of this checkpoint and of the previous one
    assert values(Checkpoints(tmp_path).load()[0].states) == {k: k for k in range(20)}


def test_a_checkpoint_may_have_older_states_than_the_store(tmp_path):
    """This happens if Ctrl-C arrives after a round's states and before its metrics."""
    checkpoints = Checkpoints(tmp_path, state_memory=100)
    whole = ClientStates(checkpoints.store).updated({k: state(k) for k in range(8)})
    newer = whole.updated({k: state(100 + k) for k in range(8)})
    save(checkpoints, whole, 1)
    assert values(Checkpoints(tmp_path).load()[0].states) == {k: k for k in range(8)}
    assert values(newer) == {k: 100 + k for k in range(8)}


def test_a_damaged_state_falls_back_to_the_previous_checkpoint(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    states = ClientStates(checkpoints.store).updated({0: state(0), 1: state(1)})
    save(checkpoints, states, 1)
    old = set(files_of(tmp_path))
    save(checkpoints, states.updated({1: state(2)}), 2)
    (new,) = set(files_of(tmp_path)) - old
    (tmp_path / "states" / new).write_bytes(b"rubbish")
    position, _ = Checkpoints(tmp_path).load()
    assert position.round == 1
    assert values(position.states) == {0: 0, 1: 1}


class KeepsPrevious(ClientSide):
    """Keeps the whole model, and adds a part of the previous one to the next start."""

    def prepare(self, client, start, payload, state):
        before = state.get("before", start.vector)
        return replace(start, vector=start.vector + 0.01 * (before - start.vector))

    def finish(self, client, start, trained, state):
        return Finished(state={"before": trained.vector})


OPTIONS = {"model": "mlp:hidden=8", "batch_size": 8, "lr": 0.1, "cohort": 2, "seed": 3}


@pytest.mark.parametrize("checkpoint_seconds", [0, 1000])
def test_a_run_with_its_states_on_disk_resumes_bit_for_bit(tmp_path, checkpoint_seconds):
    federation = small_federation(sizes=(20, 15, 10, 9, 8, 7))
    method, options = KeepsPrevious(), OPTIONS | {"checkpoint_seconds": checkpoint_seconds}
    plain = us.train(federation, method, rounds=8, **OPTIONS)
    tight = options | {"state_megabytes": 0}
    us.train(federation, method, rounds=4, out=tmp_path, **tight)
    run = us.train(federation, method, rounds=8, out=tmp_path, resume=True, **tight)
    layout = FunctionalModel(run.model).layout
    assert torch.equal(flatten(run.model, layout), flatten(plain.model, layout))


def test_a_thousand_clients_with_ten_per_round(tmp_path):
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(2, 5, generator=rng).numpy()
    federation = federation_of(*[(x, [k % 3, 1]) for k in range(1000)])
    options = {"participation": 0.01, "rounds": 30, "evaluate_every": 0, "checkpoint_seconds": 0}
    run = us.train(federation, KeepsPrevious(), model="logistic", out=tmp_path, **options)
    assert run.rounds == 30
    newest = sorted((tmp_path / "checkpoints").glob("stage*"))[-1]
    states = json.loads((newest / "position.json").read_text())["states"]
    assert 1 <= len(states) <= 30
    trained = {k for table in run.client_tables for k in table["client"]}
    position, _ = Checkpoints(tmp_path / "checkpoints").load()
    assert set(position.states) == trained
