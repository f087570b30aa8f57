"""The plan of a search: what follows from the settings, and errors of one line."""

import pytest

from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.experiments.tuning.plan import make_plan


def test_defaults_follow_from_the_settings_of_the_runs():
    plan = make_plan(True, Settings(rounds=50, lr=0.2), seeds=[3, 4, 5])
    assert (plan.lr, plan.start, plan.clips) == ((0.025, 1.6), 0.2, ())
    assert (plan.rounds, plan.budget, plan.seeds, plan.seed) == (13, 12 * 13, (3, 4), 3)
    assert make_plan(False, Settings(), [0]) is None


def test_options():
    tune = {"lr": [1, 0.01, 0.1], "clip": [10], "budget": 100, "rounds": 7, "seeds": 3}
    plan = make_plan(tune, Settings(lr=5.0), seeds=[7])
    assert (plan.lr, plan.start, plan.clips) == ((0.01, 1.0), 0.1, (10.0,))  # 5 is not searched
    assert (plan.rounds, plan.budget, plan.seeds) == (7, 100, (7, 8, 9))


def test_what_a_wave_costs():
    plan = make_plan({"rounds": 15}, Settings(), [0])
    # 4 settings train 5 rounds, 2 of them 10 more, and one 15 with the second seed.
    assert (plan.first_rounds, plan.repeat_cost, plan.wave_cost) == (5, 15, 20 + 20 + 15)


@pytest.mark.parametrize(
    ("tune", "words"),
    [
        ({"lr": [0.1]}, "lr: give the lowest and the highest learning rate"),
        ({"lr": [0.1, 0.1]}, "lr: give the lowest and the highest learning rate"),
        ({"lr": [0.1, -1]}, "must be greater than 0"),
        ({"clip": [0]}, "must be greater than 0"),
        ({"budget": 54, "rounds": 15}, "budget must be at least 55 rounds per method"),
        ({"seeds": 1}, "seeds must be greater than or equal to 2"),
        ({"rounds": 0}, "rounds must be greater than"),
        ({"round": 5}, "did you mean 'rounds'?"),
    ],
)
def test_errors_are_one_line(tune, words):
    with pytest.raises(UnskewError, match=r"^tune: [^\n]*$") as caught:
        make_plan(tune, Settings(), [0])
    assert words in str(caught.value)
