"""No method crashes on unusual federations: it trains to finite numbers or raises one line."""

from dataclasses import replace

import numpy as np
import pytest

import unskew as us
from every_method import SPECS, is_finite, train_quickly
from toys import federation_of
from unskew.errors import UnskewError

RNG = np.random.default_rng(0)
TEXT = {"model": "bilstm:embedding=3,hidden=2", "runner": "loop"}
NORMED = {"model": "mlp:hidden=6,norm=batch", "runner": "loop"}


def client(samples, classes=(0, 1, 2)):
    return RNG.random((samples, 5)), RNG.choice(classes, samples)


def texts():
    tokens = RNG.integers(1, 9, size=(48, 4))
    tokens[::5, 2:] = 0  # short texts
    tokens[::11] = 0  # texts without a word
    federation = us.Federation.from_arrays(
        tokens, RNG.integers(0, 2, 48), np.arange(48) % 8, holdout=0.2, tokens=True
    )
    return replace(federation, vocabulary=tuple("abcdefghi"))


EIGHT = [client(samples) for samples in (9, 6, 7, 5, 8, 6, 7, 9)]
TESTS = [client(3) for _ in EIGHT]
CASES = {
    "two clients": (federation_of(*EIGHT[:2], test=TESTS[:2]), {}),
    "one client per round": (federation_of(*EIGHT, test=TESTS), {"cohort": 1, "rounds": 3}),
    "a single sample": (federation_of(*EIGHT[:7], client(1), test=TESTS), {}),
    "a single class": (federation_of(*EIGHT[:7], client(6, (1,)), test=TESTS), {}),
    "BatchNorm": (federation_of(*EIGHT, test=TESTS), NORMED),
    "text": (texts(), TEXT),
}
QUICK = "a single sample"
OTHERS = [pytest.param(case, marks=pytest.mark.long) for case in CASES if case != QUICK]
TOO_FEW_CLIENTS = ("two clients", "one client per round")
REJECTED = {
    **{("krum", case): "krum: f=1 needs at least 5 clients" for case in TOO_FEW_CLIENTS},
    **{("multikrum", case): "multi_krum: f=1 needs at least 5 clients" for case in TOO_FEW_CLIENTS},
    **{("bulyan", case): "bulyan: f=1 needs at least 7 clients" for case in TOO_FEW_CLIENTS},
    ("feddisk", "text"): "a MADE is a density of numbers from 0 to 1",
    ("latent", "text"): "a VAE reconstructs numbers; this data set is text",
    ("fedma", "text"): "units cannot be matched",
}


VARIANTS = ["fedrod:head=hypernetwork", "cfl:wait=0,eps1=9,eps2=0", "fedgroup:mix=0.1"]


@pytest.mark.parametrize("method", [*SPECS, *VARIANTS])
@pytest.mark.parametrize("case", [QUICK, *OTHERS])
def test_every_method_on_odd_federations(method, case):
    federation, options = CASES[case]
    options = {"rounds": 2, "evaluate_every": 2} | options
    reason = REJECTED.get((method.partition(":")[0], case))
    if reason is not None:
        with pytest.raises(UnskewError, match=reason) as caught:
            train_quickly(federation, method, **options)
        assert "\n" not in str(caught.value)
        return
    run = train_quickly(federation, method, **options)
    assert is_finite(run)
    assert not any("kept_model" in row for row in run.metrics)
    assert 0 <= run.last("personal") <= 1
