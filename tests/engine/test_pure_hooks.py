"""A hook that changes what it receives, draws from a global generator or stores something on its
part is an error that names the hook and the part, with every runner. So is one that returns
something else when it is called again."""

import itertools
import random
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pytest
import torch
from torch import nn

import unskew as us
from every_method import SPECS, train_quickly
from marks import long_but
from toys import small_federation, vector_of
from unskew.aggregation.weighting import ClientWeighting
from unskew.engine import pure_hooks
from unskew.errors import UnskewError
from unskew.methods import Aspect, ClientSide, Finished, Personalization, ServerSide, Setup
from unskew.utils.rng import torch_generator

RUNNERS = ("loop", "vectorised", "processes")
WEIGHTS = frozenset({Aspect.WEIGHTS})


class Weighs(ServerSide):
    """A weighting that derives its weights with a function of the uploads."""

    adds = WEIGHTS

    def client_weights(self, server):
        return ClientWeighting("mine", lambda uploads: (self._weights(uploads), {}))


class CentersInPlace(Weighs):
    def _weights(self, uploads):
        return uploads.stack.sub_(uploads.previous).square().sum(1)


class CentersWithNumpy(Weighs):
    def _weights(self, uploads):
        stack = uploads.stack.numpy()
        stack -= uploads.previous.numpy()
        return torch.from_numpy(stack).square().sum(1)


class DrawsWeights(Weighs):
    def _weights(self, uploads):
        return torch.rand(len(uploads))


class Draws(Weighs):
    def _weights(self, uploads):
        draw = torch_generator(uploads.seed, "weights", uploads.round)
        return torch.rand(len(uploads), generator=draw)


class ShrinksTheStart(ClientSide):
    def prepare(self, client, start, payload, state):
        start.received.mul_(0.9)
        return start


class ScalesSamples(ClientSide):
    def prepare(self, client, start, payload, state):
        client.x.div_(2)
        return start


class DrawsInPrepare(ClientSide):
    def prepare(self, client, start, payload, state):
        torch.rand(1)
        return start


class DrawsWithNumpy(ClientSide):
    def finish(self, client, start, trained, state):
        np.random.rand()  # noqa: NPY002
        return Finished()


class DrawsInEveryStep(ClientSide):
    adds = frozenset({Aspect.LOCAL_LOSS})

    def loss_term(self, step, refs):
        return 0 * step.weights.sum() * random.random()


class ChangesReferences(ClientSide):
    adds = frozenset({Aspect.LOCAL_LOSS})

    def prepare(self, client, start, payload, state):
        return replace(start, refs={"own": start.vector * (1 + client.id), "all": start.vector})

    def loss_term(self, step, refs):
        refs["own"].mul_(0.9)
        return 0 * step.weights.sum()


class Counts(ClientSide):
    count = 0

    def prepare(self, client, start, payload, state):
        self.count += 1
        return start


class CountsForAll(ClientSide):
    count = 0

    def prepare(self, client, start, payload, state):
        type(self).count += 1
        return start


@dataclass(frozen=True, kw_only=True)
class CountsInAFrozenField(ClientSide):
    count: int = 0

    def prepare(self, client, start, payload, state):
        self.count += 1
        return start


@dataclass(frozen=True, kw_only=True)
class Remembers(ServerSide):
    seen: list = field(default_factory=list)

    def broadcast(self, server, client):
        self.seen.append(client)
        return {}


class KeepsAGenerator(ClientSide):
    def __init__(self):
        vars(self)["draw"] = np.random.default_rng(0)

    def prepare(self, client, start, payload, state):
        self.draw.random()
        return start


class ChangesItsState(ClientSide):
    """Only from the second round on, since a client has no state before."""

    def finish(self, client, start, trained, state):
        if state:
            return Finished(state={"steps": state["steps"].add_(trained.steps)})
        return Finished(state={"steps": torch.tensor(trained.steps)})


class ScalesTheFederation(Setup):
    def transform_federation(self, federation):
        federation.train.x[:] = 0
        return federation


class ShrinksThePersonalModel(Personalization):
    replaces = frozenset({Aspect.PERSONAL_MODEL})

    def personal(self, model, state):
        return model.mul_(0.9)


ROUNDS_SEEN = itertools.count(1)


class CountsInItsModule(Weighs):
    def client_weights(self, server):
        count = next(ROUNDS_SEEN)
        return ClientWeighting("mine", lambda uploads: (uploads.samples + count, {}))


class CountsInTheFunction(Weighs):
    def _weights(self, uploads, seen=[]):  # noqa: B006
        seen.append(uploads)
        return uploads.samples + len(seen)


class DrawsUnseeded(ClientSide):
    def prepare(self, client, start, payload, state):
        noise = np.random.default_rng().standard_normal(len(start.vector)).astype(np.float32)
        return replace(start, vector=start.vector + torch.from_numpy(noise))


def _counts_in_a_closure():
    seen = []

    def finish(self, client, start, trained, state):
        seen.append(trained.loss)
        return Finished(state={"mean": torch.tensor(sum(seen))})

    return finish


class CountsInAClosure(ClientSide):
    finish = _counts_in_a_closure()


class ReturnsItsBuffer(ServerSide):
    buffer = torch.zeros(2)

    def broadcast(self, server, client):
        return {"buffer": self.buffer.add_(1)}


class KeepsAListInACachedProperty(ClientSide):
    @cached_property
    def seen(self):
        return []

    def prepare(self, client, start, payload, state):
        self.seen.append(client.id)
        return replace(start, vector=start.vector * (1 + len(self.seen)))


class FailsTheSecondTime(ClientSide):
    def prepare(self, client, start, payload, state):
        self.left.pop()
        return start

    @cached_property
    def left(self):
        return [1]


class DrawsCandidates(Setup):
    replaces = frozenset({Aspect.CANDIDATES})

    def candidates(self, clients, number, seed):
        return sorted(np.random.default_rng().choice(clients, clients // 2, replace=False).tolist())


CHEATS = {
    CentersInPlace: "client_weights of 'centersinplace' .*changed uploads.stack in place",
    CentersWithNumpy: "client_weights of 'centerswithnumpy' .*changed uploads.stack in place",
    DrawsWeights: "client_weights of 'drawsweights' .*drew from the global generator of torch",
    ShrinksTheStart: r"prepare of 'shrinksthestart' .*changed .*start.received in place",
    ScalesSamples: "prepare of 'scalessamples' .*changed client.x in place",
    DrawsInPrepare: "prepare of 'drawsinprepare' .*drew from the global generator of torch",
    DrawsWithNumpy: "finish of 'drawswithnumpy' .*drew from the global generator of NumPy",
    DrawsInEveryStep: "loss_term of 'drawsineverystep' .*drew from the global generator of Python"
    r".*: in prepare, torch_generator\(client\.seed,.* and read the numbers in refs",
    ChangesReferences: r"loss_term of 'changesreferences' .*changed refs\['own'\] in place",
    Counts: "prepare of 'counts' .*changed the attribute count",
    CountsForAll: "prepare of 'countsforall' .*changed the attribute CountsForAll.count",
    CountsInAFrozenField: "prepare of 'countsinafrozenfield' .*changed the attribute count",
    Remembers: "broadcast of 'remembers' .*changed the attribute seen of its part",
    KeepsAGenerator: "prepare of 'keepsagenerator' .*changed the attribute draw",
    ChangesItsState: r"finish of 'changesitsstate' .*changed state\['steps'\] in place",
    ScalesTheFederation: "of 'scalesthefederation' .*changed federation.train.x",
    ShrinksThePersonalModel: "personal of 'shrinksthepersonalmodel' .*changed model in place",
    CountsInItsModule: r"client_weights of 'countsinitsmodule' .*returned something else when it .*"
    r"uploads\.seed",
    CountsInTheFunction: "client_weights of 'countsinthefunction' .*returned something else",
    DrawsUnseeded: r"prepare of 'drawsunseeded' .*returned something else .*client\.seed",
    CountsInAClosure: "finish of 'countsinaclosure' .*returned something else",
    ReturnsItsBuffer: "broadcast of 'returnsitsbuffer' .*returned something else",
    KeepsAListInACachedProperty: "prepare of 'keepsalistinacachedproperty' .*something else",
    FailsTheSecondTime: "prepare of 'failsthesecondtime' raised IndexError",
}


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.__name__)
def test_a_hook_that_is_not_pure_is_an_error_that_names_it(cheat, runner):
    with pytest.raises(UnskewError, match=CHEATS[cheat]) as caught:
        us.train(small_federation(), cheat(), rounds=3, runner=runner, workers=2)
    assert "\n" not in str(caught.value)


def test_the_error_says_how_to_draw_and_that_works(federation):
    with pytest.raises(UnskewError, match=r"torch_generator\(uploads.seed, .*uploads.round\)"):
        us.train(federation, DrawsWeights(), rounds=1)
    method, options = Draws(), {"seed": 1, "rounds": 2, "workers": 2}
    loop, processes = (
        us.train(federation, method, runner=each, **options) for each in RUNNERS[::2]
    )
    assert torch.equal(vector_of(loop), vector_of(processes))


class DrawsBeforeTraining(ClientSide):
    """What the error of a loss term that draws recommends."""

    adds = frozenset({Aspect.LOCAL_LOSS})

    @cached_property
    def size(self):
        return 0.1

    def prepare(self, client, start, payload, state):
        draw = torch_generator(client.seed, "term", client.round, client.id)
        noise = self.size * torch.randn(len(start.vector), generator=draw)
        return replace(start, refs={"noise": noise + state.get("noise", 0)})

    def loss_term(self, step, refs):
        return (step.weights * refs["noise"]).sum()

    def finish(self, client, start, trained, state):
        undefined = torch.tensor(float("nan"))
        return Finished(state={"noise": start.refs["noise"], "undefined": undefined})


def test_state_that_hooks_receive_and_cached_properties_are_pure(federation):
    options = {"seed": 1, "rounds": 3, "workers": 2}
    loop, processes = (
        us.train(federation, DrawsBeforeTraining(), runner=each, **options) for each in RUNNERS[::2]
    )
    assert torch.equal(vector_of(loop), vector_of(processes))


def test_the_error_of_candidates_says_how_to_draw(federation):
    with pytest.raises(UnskewError, match=r'torch_generator\(seed, "a purpose", number\)'):
        us.train(federation, DrawsCandidates(), rounds=2)


CHECKED = []


class RecordsChecks(ClientSide):
    def prepare(self, client, start, payload, state):
        CHECKED.append((client.round, "prepare" in vars(self)))
        return start


@pytest.mark.parametrize("runner", RUNNERS[:2])
def test_later_rounds_call_the_hooks_themselves(federation, runner):
    CHECKED.clear()
    us.train(federation, RecordsChecks(), rounds=4, runner=runner)
    assert set(CHECKED) == {(0, True), (1, True), (2, False), (3, False)}


DROPOUT = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 3))


@pytest.mark.parametrize("spec", long_but(["fedgen:hidden=8,generator_steps=2"], SPECS))
def test_every_method_is_pure_with_dropout_too(spec, monkeypatch):
    """Other tests of every method train each with every runner; these draw random numbers, and call
    the hooks twice, as in custom parts."""
    monkeypatch.setattr(pure_hooks, "_is_custom", lambda part: True)
    sizes = (12, 10, 8, 8, 9, 7, 6)
    federation = small_federation(sizes, unit=True)
    train_quickly(federation, spec, rounds=2, runner="loop", model=DROPOUT)
