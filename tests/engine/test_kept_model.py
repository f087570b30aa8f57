"""A round that comes to nothing: the old model stays, and so does all that belongs to it."""

from dataclasses import replace

import pytest
import torch

import unskew as us
from toys import vector_of
from unskew.engine import stage

OPTIONS = {"model": "logistic", "lr": 0.1}


class DownOnce:
    """A runner in whose second round a client does not answer."""

    def __init__(self, runner):
        self._runner = runner

    def train(self, round_, tasks):
        result = self._runner.train(round_, tasks)
        return replace(result, missing={2: "it is gone"}) if round_ == 1 else result


@pytest.mark.filterwarnings("ignore:.*left the model as it was")
@pytest.mark.parametrize("method", ["scaffold", "feddyn:alpha=0.1"])
def test_where_the_old_model_stays_so_do_all_states(federation, method, monkeypatch):
    """A run with a round that came to nothing is one with a round less: nothing of it is left."""

    def trained(rounds, quorum):
        options = {**OPTIONS, "batch_size": 100, "steps": 2, "evaluate_every": 0}
        return us.train(federation, method, rounds=rounds, quorum=quorum, **options)

    wanted = trained(3, 1)
    played = stage.run_round
    monkeypatch.setattr(
        stage,
        "play_round",
        lambda context, runner, *rest: played(context, DownOnce(runner), *rest),
    )
    run = trained(4, 4)
    assert ["kept_model" in row for row in run.metrics] == [False, True, False, False]
    # Full batches: rounds differ by the order of samples, so by rounding alone.
    torch.testing.assert_close(vector_of(run), vector_of(wanted), rtol=1e-4, atol=1e-5)
    for client, state in wanted.states.items():
        torch.testing.assert_close(run.states[client], state, rtol=1e-4, atol=1e-5)
