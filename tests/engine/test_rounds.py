"""Rounds: cohorts, rejected clients, runs of several stages, and interrupted rounds."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import unskew as us
from toys import federation_of, small_federation, vector_of
from unskew.composition.values import Stage
from unskew.engine.cohort import draw_cohort
from unskew.engine.settings import Settings
from unskew.errors import UnskewError, UnskewWarning
from unskew.methods import Aspect, Finished, make_method
from unskew.models import make
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten

pytestmark = pytest.mark.usefixtures("hooks_called_once")

OPTIONS = {"model": "logistic", "batch_size": 8, "lr": 0.1}
RUNNERS = pytest.mark.parametrize("runner", ["loop", "vectorised"])


def rows_of(run, kind="round") -> list[dict]:
    return [table for table in run.client_tables if table["kind"] == kind]


# Cohorts.


@given(st.floats(0.001, 1), st.integers(1, 200), st.integers(0, 5), st.integers(0, 50))
def test_a_cohort_has_the_requested_share_sorted_and_without_repeats(share, clients, seed, round_):
    cohort = draw_cohort(Settings(participation=share, seed=seed), clients, round_)
    assert len(cohort) == max(1, round(share * clients))
    assert cohort == sorted(set(cohort))
    assert set(cohort) <= set(range(clients))


def test_a_cohort_depends_only_on_seed_and_round():
    settings = Settings(cohort=10)
    first = draw_cohort(settings, 100, 3)
    assert draw_cohort(settings, 100, 3) == first
    assert draw_cohort(settings, 100, 4) != first
    assert draw_cohort(Settings(cohort=10, seed=1), 100, 3) != first


def test_cohorts_are_drawn_uniformly():
    """Each of 20 clients is expected 500 times in 2000 rounds of 5; 4.5 deviations are 87."""
    cohorts = [draw_cohort(Settings(cohort=5), 20, round_) for round_ in range(2000)]
    counts = np.bincount(np.concatenate(cohorts), minlength=20)
    assert counts.sum() == 10_000
    assert np.abs(counts - 500).max() < 4.5 * np.sqrt(2000 * 0.25 * 0.75)


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, 20),
        ({"cohort": 7}, 7),
        ({"cohort": 100}, 20),
        ({"participation": 0.26}, 5),
        ({"participation": 0.001}, 1),
    ],
)
def test_cohort_size(options, size):
    assert len(draw_cohort(Settings(**options), 20, 0)) == size


def test_only_the_cohort_trains(federation):
    run = us.train(federation, rounds=4, cohort=2, seed=5, **OPTIONS)
    expected = [draw_cohort(Settings(cohort=2, seed=5), 4, round_) for round_ in range(4)]
    assert [table["client"] for table in rows_of(run)] == expected
    assert [row["clients"] for row in run.metrics] == [2] * 4
    assert (~np.isnan(run.weights)).sum(1).tolist() == [2] * 4
    np.testing.assert_allclose(np.nansum(run.weights, axis=1), 1)


# Rejected clients.


class Explodes(us.ClientSide):
    """Client 2's losses are multiplied by so large a factor that its weights overflow."""

    replaces = frozenset({Aspect.LOSS})

    def prepare(self, client, start, payload, state):
        factor = 1e38 if client.id == 2 else 1.0
        return replace(start, refs={"factor": torch.tensor(factor)})

    def losses(self, step, refs):
        losses = step.network.losses(step.weights, step.buffers, step.batch)
        return (losses * refs["factor"]) * refs["factor"]


@RUNNERS
def test_a_client_that_diverges_is_rejected_and_the_others_are_aggregated(federation, runner):
    run = us.train(federation, Explodes(), rounds=2, runner=runner, **OPTIONS)
    for row in run.metrics:
        assert row["rejected"] == {"2": "its model has infinite or undefined numbers"}
        assert np.isfinite(row["train_loss"])
        assert "kept_model" not in row
    assert bool(torch.isfinite(vector_of(run)).all())
    assert np.isnan(run.weights[:, 2]).all()
    np.testing.assert_allclose(np.nansum(run.weights, axis=1), 1)


@RUNNERS
def test_a_rejected_client_does_not_change_the_average_of_the_others(federation, runner):
    with_it = us.train(federation, Explodes(), rounds=1, runner=runner, **OPTIONS)

    class WithoutTwo(us.ServerSide):
        replaces = frozenset({Aspect.COMBINATION})

        def combine(self, server, uploads, mean):
            keep = [row for row, k in enumerate(uploads.clients) if k != 2]
            weights = uploads.samples[keep] / uploads.samples[keep].sum()
            return (uploads.stack[keep] * weights[:, None]).sum(0).float(), {}

    without = us.train(federation, WithoutTwo(), rounds=1, runner=runner, **OPTIONS)
    torch.testing.assert_close(vector_of(with_it), vector_of(without))


def test_a_run_folder_contains_only_standard_json(federation, tmp_path):
    us.train(federation, Explodes(), rounds=1, out=tmp_path / "run", **OPTIONS)

    def reject(constant):
        raise AssertionError(f"{constant} is not JSON")

    for name in ("metrics.jsonl", "clients.jsonl", "run.json"):
        text = (tmp_path / "run" / name).read_text()
        for line in [text] if name == "run.json" else text.splitlines():
            json.loads(line, parse_constant=reject)


@RUNNERS
def test_a_rejected_client_keeps_its_old_state(federation, runner):
    class Twice(Explodes):
        """Client 2 diverges in its second round only."""

        def prepare(self, client, start, payload, state):
            assert all(bool(torch.isfinite(kept).all()) for kept in state.values())
            start = super().prepare(client, start, payload, state)
            if len(seen.setdefault(client.id, [])) != 1:
                start = replace(start, refs={"factor": torch.tensor(1.0)})
            seen[client.id].append(float(state.get("rounds", 0)))
            return start

        def finish(self, client, start, trained, state):
            model = trained.vector.clone()
            return Finished(
                state={"model": model, "rounds": state.get("rounds", 0) + torch.ones(())}
            )

    seen = {}
    run = us.train(federation, Twice(), rounds=3, runner=runner, **OPTIONS)
    assert ["rejected" in row for row in run.metrics] == [False, True, False]
    assert seen[2] == [0, 1, 1]
    assert seen[0] == [0, 1, 2]


def test_below_the_quorum_the_old_model_stays(federation):
    start = make("logistic", (5,), 3, seed=0)
    with pytest.warns(UnskewWarning, match="2 of 2 rounds left the model as it was: fewer than 4"):
        run = us.train(federation, Explodes(), rounds=2, quorum=4, **OPTIONS)
    assert torch.equal(vector_of(run), flatten(start, FunctionalModel(start).layout))
    for row in run.metrics:
        assert row["kept_model"] == "fewer than 4 usable uploads; the previous model is kept"
        assert row["rejected"] == {"2": "its model has infinite or undefined numbers"}
    assert np.isnan(run.weights).all()
    enough = us.train(federation, Explodes(), rounds=2, quorum=3, **OPTIONS)
    assert not torch.equal(vector_of(enough), vector_of(run))


def with_an_empty_client():
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(12, 5)), rng.integers(0, 3, 12)
    empty = np.empty((0, 5)), np.empty(0)
    return federation_of(samples, empty, common=samples)


@RUNNERS
def test_a_client_without_samples_is_rejected_with_a_reason(runner):
    run = us.train(with_an_empty_client(), rounds=1, runner=runner, **OPTIONS)
    assert run.metrics[0]["rejected"] == {"1": "it has no samples to train on"}
    assert rows_of(run)[0]["weight"] == [1.0, None]
    assert rows_of(run)[0]["steps"] == [2, 0]


@pytest.mark.filterwarnings("ignore:.*left the model as it was")
@RUNNERS
def test_a_cohort_without_samples_does_not_change_the_model(runner):
    run = us.train(with_an_empty_client(), rounds=12, cohort=1, runner=runner, **OPTIONS)
    without_samples = [row for row in run.metrics if "rejected" in row]
    assert 0 < len(without_samples) < 12
    assert all(row["train_loss"] is None and "kept_model" in row for row in without_samples)
    assert "-" in str(run.table())


def test_a_federation_without_samples_is_rejected():
    empty = np.empty((0, 5)), np.empty(0)
    with pytest.raises(UnskewError, match="no client has a sample to train on"):
        us.train(federation_of(empty, empty), rounds=1)


def test_the_learning_rate_decays_by_its_factor(federation):
    """With one full-batch step, a client's model moves by lr times its gradient."""
    moves = []

    class Moves(us.ServerSide):
        def receive(self, server, uploads):
            moves.append((uploads.stack - uploads.previous).norm(dim=1))
            # None: the model is unchanged, and so are the gradients.

    options = {"model": "logistic", "batch_size": 100, "lr": 0.2, "lr_decay": 0.5}
    us.train(federation, Moves(), rounds=3, **options)
    torch.testing.assert_close(moves[1], moves[0] / 2, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(moves[2], moves[0] / 4, rtol=1e-4, atol=1e-6)


# Several stages.


class Prepared(us.ClientSide, us.ServerSide, us.Setup):
    """A first stage trains a small network, whose mean is added to the model of the task."""

    name = "prepared"

    def stages(self, stages):
        return (Stage("first", make_method(Counting()), 3, tiny_network), *stages)

    def begin(self, beginning):
        assert list(beginning.earlier) == ["first"]
        return {"mean": beginning.earlier["first"].vector.mean(), "rounds": torch.zeros(4)}

    def prepare(self, client, start, payload, state):
        return replace(start, vector=start.vector + state["mean"])

    def finish(self, client, start, trained, state):
        return Finished(extras={"rounds": state["rounds"].view(1)}, state=state)

    def receive(self, server, uploads):
        return {**server.state, "rounds": torch.cat(list(uploads.extras["rounds"]))}


class Counting(us.ClientSide, us.ServerSide):
    """The first stage; it shares the client's state with the task."""

    name = "prepared"

    def broadcast(self, server, client):
        return {"note": torch.zeros(2)}

    def finish(self, client, start, trained, state):
        mean = trained.vector.mean()
        rounds = state.get("rounds", torch.zeros(())) + 1
        return Finished(extras={"mean": mean.view(1)}, state={"rounds": rounds, "mean": mean})


def tiny_network(module, shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 2), nn.Linear(2, classes))


def test_both_stages_have_their_rounds_and_bytes_counted(federation):
    run = us.train(federation, Prepared(), rounds=2, **OPTIONS)
    assert [(row["stage"], row["round"]) for row in run.metrics] == [
        ("first", 1), ("first", 2), ("first", 3), ("task", 1), ("task", 2),
    ]  # fmt: skip
    assert run.rounds == run.cost.rounds == 5
    small, task = 5 * 2 + 2 + 2 * 3 + 3, 5 * 3 + 3
    assert run.cost.parameters_down == 4 * (3 * (small + 2) + 2 * task)
    assert run.cost.parameters_up == 4 * (3 * (small + 1) + 2 * (task + 1))
    assert run.cost.bytes_up == 4 * run.cost.parameters_up
    assert ["global" in row for row in run.metrics] == [False] * 3 + [True] * 2


def test_clients_keep_their_state_from_stage_to_stage(federation, tmp_path):
    from unskew.runs.checkpoint import Checkpoints

    us.train(federation, Prepared(), rounds=2, out=tmp_path / "run", **OPTIONS)
    position, _ = Checkpoints(tmp_path / "run" / "checkpoints").load()
    assert position.server.state["prepared/rounds"].tolist() == [3, 3, 3, 3]
    assert position.server.state["prepared/mean"] == position.earlier["first"].vector.mean()
    assert len(position.earlier["first"].vector) == 21


def test_the_network_of_a_stage_is_initialised_from_the_run_s_seed(federation):
    runs = []
    for torch_seed in (1, 2):
        torch.manual_seed(torch_seed)
        runs.append(us.train(federation, Prepared(), rounds=1, **OPTIONS))
    assert torch.equal(vector_of(runs[0]), vector_of(runs[1]))
    other = us.train(federation, Prepared(), rounds=1, seed=1, **OPTIONS)
    assert runs[0].metrics[0]["train_loss"] != other.metrics[0]["train_loss"]


@RUNNERS
def test_training_does_not_change_torch_s_global_generator(federation, runner):
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    us.train(federation, Prepared(), rounds=1, runner=runner, **OPTIONS)
    assert torch.equal(torch.rand(4), expected)


class Stopped(BaseException):
    """Like KeyboardInterrupt, not a subclass of Exception."""


def stopping_after(rounds):
    """A callback that stops the run after this number of rounds over all stages."""
    seen = []

    def stop(round_, metrics):
        seen.append(round_)
        if len(seen) == rounds:
            raise Stopped

    return stop


def without_seconds(metrics):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in metrics]


@pytest.mark.parametrize("after", [1, 2, 3, 4])
def test_a_run_of_two_stages_resumes_bit_for_bit(federation, tmp_path, after):
    whole = us.train(federation, Prepared(), rounds=2, out=tmp_path / "whole", **OPTIONS)
    out = tmp_path / "stopped"
    with pytest.raises(Stopped):
        us.train(
            federation, Prepared(), rounds=2, out=out, progress=stopping_after(after), **OPTIONS
        )
    resumed = us.train(federation, Prepared(), rounds=2, out=out, resume=True, **OPTIONS)
    assert torch.equal(vector_of(whole), vector_of(resumed))
    assert without_seconds(whole.metrics) == without_seconds(resumed.metrics)
    assert whole.client_tables == resumed.client_tables


def test_the_task_may_replace_the_run_s_network(federation):
    class OtherNetwork(us.Setup):
        def stages(self, stages):
            return (*stages[:-1], replace(stages[-1], network=tiny_network))

    run = us.train(federation, OtherNetwork(), rounds=1, **OPTIONS)
    assert [tuple(part.weight.shape) for part in run.model[1:]] == [(2, 5), (3, 2)]
    assert not run.model.training


# Runs that are stopped in the middle of a round.


INTERRUPTED = {"place": None}
"""Not in the class, whose code must be the same when the run is resumed."""


class Interrupting(Counting, us.Personalization):
    """Raises in the second round, at the place that INTERRUPTED names."""

    replaces = frozenset({Aspect.PERSONAL_MODEL})

    def receive(self, server, uploads):
        if INTERRUPTED["place"] == "aggregate" and int(server.state.get("round", 0)) == 1:
            raise Stopped
        return {"round": server.state.get("round", torch.zeros(())) + 1}

    def personal(self, model, state):
        if INTERRUPTED["place"] == "evaluation" and int(state["rounds"]) == 2:
            raise Stopped
        return model + state["rounds"]


@pytest.mark.parametrize("place", ["aggregate", "evaluation"])
def test_a_run_stopped_inside_a_round_resumes_bit_for_bit(tmp_path, monkeypatch, place):
    federation = small_federation()
    whole = us.train(federation, Interrupting(), rounds=4, out=tmp_path / "whole", **OPTIONS)
    out = tmp_path / "stopped"
    with monkeypatch.context() as patched:
        patched.setitem(INTERRUPTED, "place", place)
        with pytest.raises(Stopped):
            us.train(federation, Interrupting(), rounds=4, out=out, **OPTIONS)
    resumed = us.train(federation, Interrupting(), rounds=4, out=out, resume=True, **OPTIONS)
    assert torch.equal(vector_of(whole), vector_of(resumed))
    assert without_seconds(whole.metrics) == without_seconds(resumed.metrics)
    assert whole.client_tables == resumed.client_tables


@pytest.mark.parametrize("name", ["metrics.jsonl", "clients.jsonl"])
def test_a_run_stopped_while_it_writes_resumes_bit_for_bit(federation, tmp_path, monkeypatch, name):
    from unskew.runs.folder import RunFolder

    whole = us.train(federation, Counting(), rounds=4, out=tmp_path / "whole", **OPTIONS)
    out, append, calls = tmp_path / "stopped", RunFolder._append, []

    def interrupted(self, file, value):
        append(self, file, value)
        calls.append(file)
        if calls.count(name) == 2 and calls[-1] == name:
            raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "_append", interrupted)
        with pytest.raises(Stopped):
            us.train(federation, Counting(), rounds=4, out=out, **OPTIONS)
    resumed = us.train(federation, Counting(), rounds=4, out=out, resume=True, **OPTIONS)
    assert torch.equal(vector_of(whole), vector_of(resumed))
    assert without_seconds(whole.metrics) == without_seconds(resumed.metrics)
    assert whole.client_tables == resumed.client_tables


def test_a_warning_names_clients_that_are_rejected():
    federation = small_federation()
    federation.train.x[0] = 1e38  # a sample of the first client
    with (
        pytest.warns(UnskewWarning, match="has values up to"),
        pytest.warns(UnskewWarning, match="^fedavg, seed 0: 2 rounds continued without client 0: "),
    ):
        us.train(federation, model="logistic", rounds=2, batch_size=8)
