"""Accuracy on three levels, compared with values computed by hand."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import unskew as us
from toys import federation_of
from unskew.data.columns import Columns
from unskew.engine.evaluate import ClientScores, Scores, by_client, score, score_personal
from unskew.methods import Aspect, Finished
from unskew.models.functional import FunctionalModel

CPU = torch.device("cpu")
SIGNS = FunctionalModel(nn.Linear(1, 2))
POSITIVE = torch.tensor([0.0, 1.0, 0.0, 0.0])
"""Predicts class 1 where x > 0, class 0 where x < 0, with scores 0 and x."""
NEGATIVE = -POSITIVE


def columns(*clients) -> Columns:
    return federation_of(*clients).train


TESTS = columns(
    ([[1.0], [2.0], [-1.0], [-2.0]], [1, 0, 0, 1]),  # 2 of 4
    (np.empty((0, 1)), []),
    ([[3.0]], [1]),  # 1 of 1
    ([[1.0], [1.0], [1.0]], [0, 0, 1]),  # 1 of 3
)


def test_scores_by_hand():
    scores = score(SIGNS, POSITIVE, TESTS.x, TESTS.y, CPU)
    assert scores.metrics["accuracy"].tolist() == [
        True,
        False,
        True,
        False,
        True,
        False,
        False,
        True,
    ]
    assert scores.means()["accuracy"] == 0.5
    assert scores.metrics["loss"][0] == pytest.approx(math.log(1 + math.exp(-1)))
    assert scores.metrics["loss"][1] == pytest.approx(math.log(1 + math.exp(2)))
    assert scores.means()["loss"] == pytest.approx(scores.metrics["loss"].sum() / 8)


@pytest.mark.parametrize("chunk", [1, 3, 8, 100])
def test_scores_do_not_depend_on_the_chunks(chunk):
    whole = score(SIGNS, POSITIVE, TESTS.x, TESTS.y, CPU)
    chunked = score(SIGNS, POSITIVE, TESTS.x, TESTS.y, CPU, chunk=chunk)
    assert chunked.metrics["accuracy"].tolist() == whole.metrics["accuracy"].tolist()
    np.testing.assert_allclose(chunked.metrics["loss"], whole.metrics["loss"])


def test_clients_without_tests_are_left_out():
    result = by_client(score(SIGNS, POSITIVE, TESTS.x, TESTS.y, CPU), TESTS)
    assert result.clients.tolist() == [0, 2, 3]
    np.testing.assert_allclose(result.metrics["accuracy"], [0.5, 1, 1 / 3])


@pytest.mark.parametrize("place", [0, 1, 2])
def test_clients_without_tests_are_left_out_wherever_they_are(place):
    clients = [([[1.0]], [1]), ([[1.0]], [0])]
    clients.insert(place, (np.empty((0, 1)), []))
    test = columns(*clients)
    result = by_client(score(SIGNS, POSITIVE, test.x, test.y, CPU), test)
    assert result.clients.tolist() == [k for k in range(3) if k != place]
    assert result.metrics["accuracy"].tolist() == [1, 0]


def test_losses_are_averaged_per_client():
    scores = Scores({"loss": np.array([1.0, 3.0, 5.0])})
    result = by_client(scores, columns(([[0.0]] * 2, [0, 0]), ([[0.0]], [0])))
    assert result.metrics["loss"].tolist() == [2, 5]


def test_personal_models_are_measured_on_their_clients_tests():
    result = score_personal(SIGNS, lambda k: POSITIVE if k == 0 else NEGATIVE, TESTS, CPU)
    assert result.clients.tolist() == [0, 2, 3]
    np.testing.assert_allclose(result.metrics["accuracy"], [0.5, 0, 2 / 3])
    assert result.metrics["loss"][1] == pytest.approx(math.log(1 + math.exp(3)))


def test_summary_by_hand():
    accuracy = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    summary = ClientScores(
        np.arange(5), {"accuracy": accuracy, "loss": np.array([1.0, 2, 3, 4, 5])}
    ).summary()
    assert summary == {
        "accuracy": 0.5,
        "sd": pytest.approx(math.sqrt(0.125)),
        "min": 0,
        "q25": 0.25,
        "median": 0.5,
        "q75": 0.75,
        "max": 1,
        "loss": 3,
    }


def test_dropout_and_batchnorm_are_in_evaluation_mode_only_while_scoring():
    network = FunctionalModel(nn.Sequential(nn.Dropout(0.9), nn.BatchNorm1d(1), nn.Linear(1, 2)))
    vector = torch.tensor([1.0, 0, 0, 1, 0, 0, 0, 1, 0])
    before = vector.clone()
    network.module.train()
    first = score(network, vector, TESTS.x, TESTS.y, CPU)
    assert first.metrics["accuracy"].tolist() == (
        score(SIGNS, POSITIVE, TESTS.x, TESTS.y, CPU).metrics["accuracy"].tolist()
    )
    assert torch.equal(vector, before)
    assert network.module.training


class Fixed(us.ClientSide, us.ServerSide, us.Personalization):
    """The global model predicts by sign; client 3's personal model predicts the opposite."""

    replaces = frozenset({Aspect.GLOBAL_MODEL, Aspect.PERSONAL_MODEL})

    def model(self, server):
        return POSITIVE

    def finish(self, client, start, trained, state):
        return Finished(state={"model": NEGATIVE if client.id == 3 else POSITIVE})

    def personal(self, model, state):
        return state.get("model", model)


def three_levels(**options):
    train = [*[([[1.0]], [1])] * 3, ([[1.0]], [0])]
    tests = [TESTS.client(k) for k in range(4)]
    common = ([[1.0], [2.0], [-1.0], [5.0]], [1, 1, 0, 0])
    federation = federation_of(*train, test=tests, common=common, classes=2)
    return us.train(federation, Fixed(), model=SIGNS.module, **options)


def test_the_three_levels_of_a_run():
    run = three_levels(rounds=1)
    assert run.accuracy == run.last("global") == 0.75
    assert run.last("local") == pytest.approx((0.5 + 1 + 1 / 3) / 3)
    assert run.last("local", "min") == pytest.approx(1 / 3)
    assert run.last("local", "median") == 0.5
    assert run.last("personal") == pytest.approx((0.5 + 1 + 2 / 3) / 3)
    tables = {table["kind"]: table for table in run.client_tables}
    assert tables["local"]["client"] == tables["personal"]["client"] == [0, 2, 3]
    assert tables["personal"]["accuracy"] == pytest.approx([0.5, 1, 2 / 3])


@pytest.mark.parametrize(
    ("every", "evaluated"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (10, [5]), (0, [])]
)
def test_evaluations_are_at_regular_rounds_and_at_the_end(every, evaluated):
    run = three_levels(rounds=5, evaluate_every=every)
    assert run.curve("global")[0] == run.curve("personal")[0] == evaluated
    assert math.isnan(run.accuracy) == (not evaluated)


def test_levels_without_samples_are_left_out():
    federation = federation_of(([[1.0]], [1]), ([[1.0]], [0]), common=(np.empty((0, 1)), []))
    run = us.train(federation, model=nn.Linear(1, 3), rounds=1)
    assert not {"global", "local", "personal"} & set(run.metrics[0])
    assert math.isnan(run.last("local"))
