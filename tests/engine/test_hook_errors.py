"""Errors in custom hooks, and wrong values that they return, name hook, part and line."""

import pickle
import re
from dataclasses import replace
from functools import cached_property

import pytest
import torch
from torch import nn

import unskew as us
from unskew.aggregation.weighting import ClientWeighting
from unskew.composition.hook_calls import HookFailed
from unskew.composition.parts import Part
from unskew.composition.returned import CHECKS
from unskew.composition.values import ExtraTraining
from unskew.errors import UnskewError
from unskew.methods import (
    Aspect,
    ClientSide,
    Personalization,
    ServerSide,
    Setup,
    make_method,
)

RUNNERS = ["loop", "vectorised", "processes"]
PLACE = r"\(.*test_hook_errors\.py, line \d+\)"
REPLACES = {
    "losses": Aspect.LOSS,
    "perturbation": Aspect.PERTURBATION,
    "combine": Aspect.COMBINATION,
    "step": Aspect.SERVER_STEP,
    "model": Aspect.GLOBAL_MODEL,
    "personal": Aspect.PERSONAL_MODEL,
    "fine_tuning": Aspect.FINE_TUNING,
    "candidates": Aspect.CANDIDATES,
}
ADDS = {"loss_term": Aspect.LOCAL_LOSS, "client_weights": Aspect.WEIGHTS}
GROUPS = (ClientSide, ServerSide, Personalization, Setup)


def mine(hook, function):
    """Return a part that defines one hook."""
    group = next(each for each in GROUPS if hook in vars(each))
    names = {hook: function, "__module__": __name__}
    if hook == "next_refs":
        names["changing_refs"] = ("memory",)
    for declared, aspects in (("adds", ADDS), ("replaces", REPLACES)):
        if hook in aspects:
            names[declared] = frozenset({aspects[hook]})
    return type("Mine", (group,), names)()


def weighting(weigh):
    return lambda self, server: ClientWeighting("mine", lambda uploads: (weigh(uploads), {}))


def train(federation, part, runner="loop"):
    us.train(federation, part, rounds=1, model="logistic", batch_size=8, runner=runner, workers=2)


def test_every_hook_has_a_check():
    hooks = {
        name
        for group in GROUPS
        for name, value in vars(group).items()
        if callable(value) and not name.startswith("_")
    }
    assert set(CHECKS) == hooks


def fails(self, *args):
    return args[0].nothing


@pytest.mark.parametrize("hook", sorted(set(CHECKS) - {"proximal_strength", "fine_tuning"}))
def test_every_hook_that_raises_is_named_with_its_line(federation, hook):
    what = rf"{hook} of 'mine' raised AttributeError: .* has no attribute 'nothing' {PLACE}"
    with pytest.raises(UnskewError, match=what):
        train(federation, mine(hook, fails))


@pytest.mark.parametrize("hook", sorted(set(CHECKS) - {"check", "receive", "loss_term"}))
def test_every_hook_that_returns_something_else_is_named(federation, hook):
    with pytest.raises(UnskewError, match=rf"{hook} of 'mine' returned .* {PLACE}$"):
        train(federation, mine(hook, lambda self, *args: "x"))


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize(
    ("hook", "function", "message"),
    [
        (
            "client_weights",
            weighting(lambda uploads: uploads.sample),
            "server failed in round 1: client_weights of 'mine' raised AttributeError: 'Uploads' "
            "object has no attribute 'sample'",
        ),
        (
            "client_weights",
            weighting(lambda uploads: torch.ones(3)),
            "client_weights of 'mine' returned 3 weights for 4 clients",
        ),
        (
            "client_weights",
            weighting(lambda uploads: -uploads.samples),
            "returned weights that are not finite, non-negative and not all zero: ",
        ),
        (
            "loss_term",
            lambda self, step, refs: step.batch.scale * step.weights.sum(),
            r"loss_term of 'mine' returned a tensor of shape \(8,\), and a term of the loss is one",
        ),
        (
            "loss_term",
            lambda self, step, refs: step.weights @ torch.ones(3),
            "loss_term of 'mine' raised RuntimeError: .*size",
        ),
        (
            "prepare",
            lambda self, client, start, *rest: replace(start, sample_weights=torch.ones(2)),
            r"returned sample_weights of shape \(2,\) for \d+ samples",
        ),
    ],
)
def test_all_runners_name_hook_part_and_line(federation, runner, hook, function, message):
    if hook == "loss_term":
        message = rf"client (\d|of the cohort.*) failed in round 1: .*{message}"
    with pytest.raises(UnskewError, match=f"{message}.*{PLACE}"):
        train(federation, mine(hook, function), runner)


@pytest.mark.parametrize(
    ("hook", "function", "message"),
    [
        (
            "losses",
            lambda self, step, refs: step.network.losses(
                step.weights, step.buffers, step.batch
            ).mean(),
            r"returned losses of shape \(\), and must return one per sample of the batch, \(8,\)",
        ),
        (
            "combine",
            lambda self, server, uploads, mean: (uploads.stack.mean(1), {}),
            r"returned torch.float32 of \(4,\) as the combined vector; it must be",
        ),
        (
            "stays",
            lambda self, layout: torch.zeros(layout.size),
            r"returned torch.float32 of shape .* and must return torch.bool of shape",
        ),
        ("candidates", lambda self, clients, *rest: [3, 1], r"returned \[3, 1\], and must return"),
        (
            "extra_trainings",
            lambda self, method: [ExtraTraining("again", method), None],
            "returned list, and must return a tuple of ExtraTraining",
        ),
    ],
)
def test_shapes_are_checked_in_the_words_of_the_hook(federation, hook, function, message):
    with pytest.raises(UnskewError, match=f"{hook} of 'mine' {message}.*{PLACE}"):
        train(federation, mine(hook, function))


@pytest.mark.parametrize("kind", [property, cached_property])
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda self: self.nothing, "raised AttributeError: .* has no attribute 'nothing'"),
        (lambda self: None, "returned None, and must return a mapping of Value"),
        (lambda self: {"loss": 1.0}, "returned float for 'loss', which must be a Value"),
    ],
)
def test_what_the_server_receives_is_checked(federation, kind, function, message):
    names = {"receives": kind(function), "__module__": __name__}
    part = type("Mine", (ClientSide,), names)()
    with pytest.raises(UnskewError, match=f"^receives of 'mine' {message} {PLACE}$"):
        train(federation, part)


@pytest.mark.parametrize("runner", RUNNERS)
def test_losses_must_depend_on_the_weights(federation, runner):
    def losses(self, step, refs):
        return step.network.losses(step.weights, step.buffers, step.batch).detach()

    with pytest.raises(UnskewError, match="losses of 'mine' returned losses that do not depend"):
        train(federation, mine("losses", losses), runner)


def test_references_that_cannot_be_stacked_are_named(federation):
    def prepare(self, client, start, payload, state):
        return replace(start, refs={"labels": client.y, f"{client.id}": client.y})

    part = mine("prepare", prepare)
    with pytest.raises(UnskewError, match=r"client \d failed .*'mine/1': .* use runner='loop'"):
        train(federation, part, "vectorised")
    train(federation, part, "loop")


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("term", [0.5, True, False])
def test_a_term_of_the_loss_must_depend_on_the_weights(federation, runner, term):
    message = rf"loss_term of 'mine' returned {type(term).__name__} {term}, which does not depend"
    with pytest.raises(UnskewError, match=rf"{message}.* {PLACE}"):
        train(federation, mine("loss_term", lambda self, step, refs: term), runner)


@pytest.mark.parametrize("term", [None, 0, 0.0, torch.zeros(()), torch.ones(())])
def test_a_term_of_the_loss_may_be_nothing_or_constant(federation, term):
    for runner in ("loop", "vectorised"):
        train(federation, mine("loss_term", lambda self, step, refs: term), runner)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x):
        if self.training:
            return self.layer(x) @ x
        return self.layer(x)


def test_the_line_of_a_network_and_of_a_metric_is_named(federation):
    with pytest.raises(UnskewError, match=f"failed in round 1, in training: RuntimeEr.*{PLACE}"):
        us.train(federation, rounds=1, model=Net(), runner="loop")

    def broken(y, scores):
        return scores["nothing"]

    with pytest.raises(UnskewError, match=f"metrics: broken failed: IndexError: .*{PLACE}"):
        us.train(federation, rounds=1, model="logistic", metrics=[broken])


def test_errors_of_the_package_s_own_parts_keep_their_form(federation, monkeypatch):
    part = make_method("ida").parts[0]

    def broken(self, server):
        raise KeyError("inside")

    monkeypatch.setattr(type(part), "client_weights", broken)
    with pytest.raises(UnskewError, match=r"server failed in round 1, in aggregate: KeyError"):
        us.train(federation, "ida", rounds=1, model="logistic")


def test_an_error_of_a_hook_can_be_pickled_and_keeps_its_data_for_itself(federation):
    def leaks(self, client, start, payload, state):
        raise ValueError(f"secret {client.y[0]}")

    part: Part = mine("prepare", leaks)
    with pytest.raises(UnskewError) as caught:
        train(federation, part)
    cause = caught.value.__cause__
    assert isinstance(cause, HookFailed)
    assert re.fullmatch(
        r"raised ValueError in prepare of 'mine' \(test_hook_errors.py, line \d+\)",
        cause.without_values,
    )
    assert vars(pickle.loads(pickle.dumps(cause)))["without_values"] == cause.without_values
