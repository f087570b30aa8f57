"""Methods and networks of one's own: runs know their code, and a function makes one a seed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import unskew as us
from toys import small_federation, vector_of
from unskew.engine.own_code import own_code
from unskew.errors import UnskewError
from unskew.methods.base import Method
from unskew.methods.table import make_method

OPTIONS = {"model": "logistic", "rounds": 1, "batch_size": 8, "lr": 0.1}


def a_method():
    class Mine(Method):
        def step(self, server, vector, uploads):
            return replace(server, vector=vector)

    return Mine()


def the_method_edited():
    class Mine(Method):
        def step(self, server, vector, uploads):
            return replace(server, vector=0 * vector)

    return Mine()


class Kept(Method):
    def __init__(self, factor):
        object.__setattr__(self, "factor", factor)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x):
        return self.layer(x)


def compiled(body):
    """A network without source, as one typed into an interpreter has none."""
    names = {"Net": Net, "__name__": "typed"}
    exec(f"class Typed(Net):\n    def forward(self, x):\n        return {body}", names)
    return names["Typed"]()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"method": a_method()}, {"method": the_method_edited()}),
        ({"method": Kept(1.0)}, {"method": Kept(0.0)}),
        ({"model": compiled("self.layer(x)")}, {"model": compiled("self.layer(x * x)")}),
    ],
)
def test_other_code_is_another_run(federation, tmp_path, first, second):
    if "model" in first:
        second["model"].load_state_dict(first["model"].state_dict())
    us.train(federation, out=tmp_path / "r", **(OPTIONS | first))
    again = us.train(federation, out=tmp_path / "r", resume=True, **(OPTIONS | first))
    assert again.rounds == 1
    with pytest.raises(UnskewError, match=r"code was .* \(the source of your own method or net"):
        us.train(federation, out=tmp_path / "r", resume=True, **(OPTIONS | second))


def test_the_packages_own_code_is_no_part_of_a_run():
    linear = nn.Sequential(nn.Flatten(), nn.Linear(5, 3))
    assert own_code(make_method("fedprox+ida"), linear) is None
    assert own_code(make_method("fedavg"), Net()) == own_code(make_method("fedavg"), Net())


def test_a_function_makes_other_first_weights_for_every_seed(federation):
    options = OPTIONS | {"lr": 1e-9}
    runs = us.compare(federation, "fedavg,mean", seeds=2, **(options | {"model": Net}))
    first, second = (vector_of(run) for run in runs if run.method == "fedavg")
    assert not torch.allclose(first, second)
    one = us.train(federation, seed=1, **(options | {"model": lambda: nn.Sequential(Net())}))
    assert torch.equal(vector_of(one), second)  # a container has no weights of its own
    same = us.compare(federation, "fedavg", seeds=2, **(options | {"model": Net()}))
    torch.testing.assert_close(*(vector_of(run) for run in same))


def test_what_makes_no_network_is_refused(federation):
    for model in (5, nn.Linear, lambda: 5):
        with pytest.raises(UnskewError, match="or a function without arguments that makes one"):
            us.train(federation, **(OPTIONS | {"model": model}))


@pytest.mark.parametrize("silent", [0, 1])
def test_all_clients_must_send_the_same_extras(federation, silent):
    class Sometimes(Method):
        def finish(self, client, start, trained, state):
            finished = super().finish(client, start, trained, state)
            extras = {} if client.id == silent else {"z": torch.ones(3)}
            return replace(finished, extras=extras)

    with pytest.raises(UnskewError, match=f"client {silent} sent no 'z', which others sent"):
        us.train(federation, Sometimes(), **OPTIONS)


class Careless(Method):
    """Makes the mistake it is told in one hook."""

    def __init__(self, hook, mistake):
        object.__setattr__(self, "hook", hook)
        object.__setattr__(self, "mistake", mistake)

    def broadcast(self, server, client):
        return self._or_mistake("broadcast", super().broadcast(server, client))

    def prepare(self, client, payload, state):
        return self._or_mistake("prepare", super().prepare(client, payload, state))

    def finish(self, client, start, trained, state):
        return self._or_mistake("finish", super().finish(client, start, trained, state))

    def aggregate(self, server, uploads):
        after, told = super().aggregate(server, uploads)
        return self._or_mistake("aggregate", after), told

    def _or_mistake(self, hook, value):
        return self.mistake(value) if hook == self.hook else value


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
@pytest.mark.parametrize(
    ("hook", "mistake", "words"),
    [
        ("broadcast", lambda payload: payload["nothing"], "round 1, in broadcast: KeyError"),
        ("prepare", lambda start: None, "in prepare: TypeError: it must return a Start"),
        ("finish", lambda finished: None, "client 0 failed in round 1, in finish: TypeError"),
        ("finish", lambda f: replace(f, state={"mu": 0.1}), r"state\['mu'\] must be a tensor"),
        ("finish", lambda f: replace(f, extras={"a": 1}), r"extras\['a'\] must be a tensor"),
        ("aggregate", lambda s: replace(s, vector=s.vector.double()), "must be float32 of"),
        ("aggregate", lambda s: replace(s, slots={"n": 3}), r"slots\['n'\] must be a tensor"),
        ("aggregate", lambda s: s.vector[0] / "x", "server failed in round 1, in aggregate: Type"),
    ],
)
def test_a_mistake_is_named_where_it_is_made(federation, runner, hook, mistake, words):
    with pytest.raises(UnskewError, match=words):
        us.train(federation, Careless(hook, mistake), runner=runner, **OPTIONS)


def test_a_bug_of_the_server_is_no_matter_of_rejected_clients():
    federation = small_federation()
    federation.train.x[federation.train.offsets[1] - 1] = np.nan  # the first client's last sample
    method = Careless("aggregate", lambda server: None)
    with pytest.raises(UnskewError, match="in aggregate: TypeError: it must return a Server"):
        us.train(federation, method, **OPTIONS)
