"""A round that is not aggregated keeps the previous model and all states."""

from dataclasses import replace

import pytest
import torch

import unskew as us
from toys import vector_of
from unskew.engine import round_loop

OPTIONS = {"model": "logistic", "lr": 0.1}


class MissesOneReply:
    """A runner in whose second round a client does not reply."""

    def __init__(self, runner):
        self._runner = runner

    def train(self, round_, tasks):
        result = self._runner.train(round_, tasks)
        return replace(result, missing={2: "no reply"}) if round_ == 1 else result


@pytest.mark.filterwarnings("ignore:.*left the model as it was")
@pytest.mark.parametrize("method", ["scaffold", "feddyn:alpha=0.1"])
def test_where_the_old_model_stays_so_do_all_states(federation, method, monkeypatch):
    """A run with a round that is not aggregated equals a run with one round less."""

    def run_training(rounds, quorum):
        options = {**OPTIONS, "batch_size": 100, "steps": 2, "evaluate_every": 0}
        return us.train(federation, method, rounds=rounds, quorum=quorum, **options)

    expected = run_training(3, 1)
    run_round = round_loop.run_round
    monkeypatch.setattr(
        round_loop,
        "run_round",
        lambda context, runner, *rest: run_round(context, MissesOneReply(runner), *rest),
    )
    run = run_training(4, 4)
    assert ["kept_model" in row for row in run.metrics] == [False, True, False, False]
    # Full batches: rounds differ only in the order of samples, so only by rounding.
    torch.testing.assert_close(vector_of(run), vector_of(expected), rtol=1e-4, atol=1e-5)
    for client, state in expected.states.items():
        torch.testing.assert_close(run.states[client], state, rtol=1e-4, atol=1e-5)
