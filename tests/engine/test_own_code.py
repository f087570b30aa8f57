"""Methods and networks of one's own: runs know their code, and a function makes one a seed."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cached_property, partial

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
    assert own_code(make_method("fedprox+ida"), None) is None
    assert own_code(make_method("fedavg"), Net()) == own_code(make_method("fedavg"), Net())


TYPED = """
class Typed(Method):
    factor = {factor}

    def step(self, server, vector, uploads, share={share}):
        def inner(x):
            return x * {inner}
        if "a" in {{"mix", "centre", "head", "norm", "bias"}}:
            return server
        return inner(share)

    @property
    def held(self):
        return {held}

    @torch.no_grad()
    def quiet(self):
        "{doc}"
        return {quiet}
"""
AS_FIRST = {"factor": 1, "share": 2, "inner": 3, "held": 4, "quiet": 5, "doc": "Words."}


def typed(**changes):
    """The hash of a method that has no source."""
    names = {"Method": Method, "torch": torch, "__name__": "typed"}
    exec(TYPED.format(**(AS_FIRST | changes)), names)
    return own_code(names["Typed"](), None)


@pytest.mark.parametrize("place", ["factor", "share", "inner", "held", "quiet"])
def test_every_change_of_code_is_seen(place):
    assert typed(**{place: 9}) != typed()


def test_other_words_about_code_are_no_change():
    assert typed(doc="Other words.") == typed()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a", "b"}, {"a", "c"}),
        (torch.arange(5000.0), torch.arange(5000.0).index_fill(0, torch.tensor(2500), 0.0)),
        (np.arange(3), np.arange(4)),
        (lambda x: x, lambda x: 2 * x),
        (partial(max, 1), partial(max, 2)),
    ],
)
def test_what_a_method_holds_is_seen(one, other):
    assert own_code(Kept(one), None) == own_code(Kept(one), None) != own_code(Kept(other), None)


class Remembers(Method):
    @cached_property
    def slow(self):
        return 5


def test_what_a_method_remembers_is_no_change():
    method = Remembers()
    before = own_code(method, None)
    assert method.slow == 5
    assert own_code(method, None) == before


def test_layers_of_torch_and_what_a_network_holds_are_seen():
    method = make_method("fedavg")
    first, second = (nn.Sequential(nn.Linear(5, 3), act) for act in (nn.ReLU(), nn.Tanh()))
    assert own_code(method, first) != own_code(method, second)
    net = Net()
    net.slope = 0.5
    assert own_code(method, net) != own_code(method, Net())


def test_the_hash_is_the_same_in_every_process():
    code = (
        "from unskew.methods.base import Method\n"
        "from unskew.engine.own_code import own_code\n"
        "class Mine(Method):\n"
        "    names = {'mix', 'centre', 'head', 'norm', 'bias'}\n"
        "    def __init__(self):\n"
        "        object.__setattr__(self, 'own', {'bias', 'weight', 'norm', 'head'})\n"
        "    def step(self, server, vector, uploads):\n"
        "        return server if 'a' in {'mix', 'centre', 'head', 'norm'} else vector\n"
        "print(own_code(Mine(), None))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")  # all three sets have another order
    }
    assert len(said) == 1


def test_a_run_of_a_version_that_noted_no_code_is_gone_on_with(federation, tmp_path):
    us.train(federation, Kept(1.0), out=tmp_path / "r", **OPTIONS)
    path = tmp_path / "r" / "run.json"
    facts = json.loads(path.read_text())
    del facts["identity"]["code"]
    path.write_text(json.dumps(facts))
    more = OPTIONS | {"rounds": 2}
    assert us.train(federation, Kept(1.0), out=tmp_path / "r", resume=True, **more).rounds == 2


def test_a_function_makes_other_first_weights_for_every_seed(federation):
    options = OPTIONS | {"lr": 1e-9}
    runs = us.compare(federation, "fedavg,mean", seeds=2, **(options | {"model": Net}))
    first, second = (vector_of(run) for run in runs if run.method == "fedavg")
    assert not torch.allclose(first, second)
    one = us.train(federation, seed=1, **(options | {"model": lambda: nn.Sequential(Net())}))
    assert torch.equal(vector_of(one), second)  # a container has no weights of its own
    same = us.compare(federation, "fedavg", seeds=2, **(options | {"model": Net()}))
    torch.testing.assert_close(*(vector_of(run) for run in same))


def test_a_function_may_return_the_same_module_again(federation):
    net = Net().eval()
    us.train(federation, **(OPTIONS | {"model": lambda: net, "runner": "loop"}))
    assert not net.training


def local_net():
    class Local(Net):
        """A class that cannot be sent to another process."""

    return Local()


@pytest.mark.parametrize("model", [Net, lambda: nn.Sequential(Net()), local_net])
def test_runs_of_networks_that_functions_make_can_be_played_at_once(federation, model):
    options = OPTIONS | {"model": model}
    runs = us.compare(federation, "fedavg,mean", seeds=1, jobs=2, **options)
    alone = us.compare(federation, "fedavg,mean", seeds=1, jobs=1, **options)
    for one, other in zip(runs, alone, strict=True):
        assert torch.equal(vector_of(one), vector_of(other))


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (nn.Linear(5, 2), r"Linear must return a tensor of \(2, 3\) for 2 samples.*got \(2, 2\)"),
        (nn.Linear(4, 3), r"Linear fails on a batch of \(2, 5\), as the data has it: RuntimeError"),
        (nn.LSTM(5, 3), "LSTM must return .* a score for each class .got tuple"),
    ],
)
def test_a_network_that_does_not_fit_the_data_is_refused_before_it_trains(
    federation, network, words
):
    with pytest.raises(UnskewError, match=f"^model: {words}"):
        us.train(federation, **(OPTIONS | {"model": network}))


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
        ("broadcast", lambda payload: None, "in broadcast: TypeError: it must return a mapping"),
        ("broadcast", lambda p: {**p, "k": 3}, r"in broadcast: .*payload\['k'\] must be a tensor"),
        ("prepare", lambda start: None, "in prepare: TypeError: it must return a Start"),
        ("prepare", lambda s: replace(s, vector=s.vector[1:]), "in prepare: .*must be a float32"),
        ("prepare", lambda s: replace(s, sample_weights=[1.0]), "in prepare: .*'sample_weights'"),
        ("finish", lambda finished: None, "client 0 failed in round 1, in finish: TypeError"),
        ("finish", lambda f: replace(f, state={"mu": 0.1}), r"state\['mu'\] must be a tensor"),
        ("finish", lambda f: replace(f, extras={"a": 1}), r"extras\['a'\] must be a tensor"),
        ("aggregate", lambda s: replace(s, vector=s.vector.double()), r"got torch.float64 of \("),
        ("aggregate", lambda s: replace(s, vector=s.vector.numpy()), "tensor of .*got ndarray"),
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
