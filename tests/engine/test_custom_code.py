"""Custom methods and networks: runs record a hash of their code, and functions build networks."""

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
from unskew.engine.custom_code import custom_code
from unskew.errors import UnskewError, UnskewWarning
from unskew.methods import Aspect, ClientSide, Finished, ServerSide, make_method

OPTIONS = {"model": "logistic", "rounds": 1, "batch_size": 8, "lr": 0.1}


STEP = frozenset({Aspect.SERVER_STEP})


def a_method():
    class Custom(ServerSide):
        replaces = STEP

        def step(self, server, vector, uploads):
            return replace(server, vector=vector)

    return Custom()


def the_method_edited():
    class Custom(ServerSide):
        replaces = STEP

        def step(self, server, vector, uploads):
            return replace(server, vector=0 * vector)

    return Custom()


class WithAttribute(ServerSide):
    def __init__(self, factor):
        object.__setattr__(self, "factor", factor)


WEIGHT = 1


def weighted(y, scores, share):
    return WEIGHT * share


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x):
        return self.layer(x)


def compiled(body):
    """A network without source, like one typed into an interpreter."""
    names = {"Net": Net, "__name__": "typed"}
    exec(f"class Typed(Net):\n    def forward(self, x):\n        return {body}", names)
    return names["Typed"]()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"method": a_method()}, {"method": the_method_edited()}),
        ({"method": WithAttribute(1.0)}, {"method": WithAttribute(0.0)}),
        ({"model": compiled("self.layer(x)")}, {"model": compiled("self.layer(x * x)")}),
    ],
)
def test_a_run_is_not_resumed_with_other_code(federation, tmp_path, first, second):
    if "model" in first:
        second["model"].load_state_dict(first["model"].state_dict())
    us.train(federation, out=tmp_path / "r", **(OPTIONS | first))
    again = us.train(federation, out=tmp_path / "r", resume=True, **(OPTIONS | first))
    assert again.rounds == 1
    with pytest.raises(UnskewError, match="code that it used has changed: "):
        us.train(federation, out=tmp_path / "r", resume=True, **(OPTIONS | second))


def test_a_partial_metric_is_followed_to_what_it_uses(monkeypatch):
    metric = partial(weighted, share=2)
    before = custom_code(make_method("fedavg"), functions=[metric])
    assert custom_code(make_method("fedavg"), functions=[partial(weighted, share=2)]) == before
    assert custom_code(make_method("fedavg"), functions=[partial(weighted, share=3)]) != before
    monkeypatch.setattr(sys.modules[__name__], "WEIGHT", 2)
    assert custom_code(make_method("fedavg"), functions=[metric]) != before


def test_the_package_s_code_is_not_part_of_the_hash():
    assert custom_code(make_method("fedprox+ida")) == {}
    assert custom_code(make_method("fedavg"), Net()) == custom_code(make_method("fedavg"), Net())


TYPED = """
class Typed(ServerSide):
    replaces = STEP
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
DEFAULTS = {"factor": 1, "share": 2, "inner": 3, "held": 4, "quiet": 5, "doc": "Words."}


def typed(**changes):
    """The hash of a method that has no source."""
    names = {"ServerSide": ServerSide, "STEP": STEP, "torch": torch, "__name__": "typed"}
    exec(TYPED.format(**(DEFAULTS | changes)), names)
    return custom_code(make_method(names["Typed"]()), None)


@pytest.mark.parametrize("place", ["factor", "share", "inner", "held", "quiet"])
def test_every_change_of_code_changes_the_hash(place):
    assert typed(**{place: 9}) != typed()


def test_docstrings_do_not_change_the_hash():
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
def test_the_attributes_of_a_method_change_the_hash(one, other):
    assert (
        custom_code(make_method(WithAttribute(one)), None)
        == custom_code(make_method(WithAttribute(one)), None)
        != custom_code(make_method(WithAttribute(other)), None)
    )


class WithCache(ServerSide):
    @cached_property
    def slow(self):
        return 5


def test_cached_properties_do_not_change_the_hash():
    part = WithCache()
    method = make_method(part)
    before = custom_code(method, None)
    assert part.slow == 5
    assert custom_code(method, None) == before


def test_the_layers_and_attributes_of_a_network_change_the_hash():
    method = make_method("fedavg")
    first, second = (nn.Sequential(nn.Linear(5, 3), act) for act in (nn.ReLU(), nn.Tanh()))
    assert custom_code(method, first) != custom_code(method, second)
    net = Net()
    net.slope = 0.5
    assert custom_code(method, net) != custom_code(method, Net())


@pytest.mark.long
def test_the_hash_is_the_same_in_every_process():
    code = (
        "from unskew.methods import Aspect, ServerSide, make_method\n"
        "from unskew.engine.custom_code import custom_code\n"
        "class Custom(ServerSide):\n"
        "    replaces = frozenset({Aspect.SERVER_STEP})\n"
        "    names = {'mix', 'centre', 'head', 'norm', 'bias'}\n"
        "    def __init__(self):\n"
        "        object.__setattr__(self, 'own', {'bias', 'weight', 'norm', 'head'})\n"
        "    def step(self, server, vector, uploads):\n"
        "        return server if 'a' in {'mix', 'centre', 'head', 'norm'} else vector\n"
        "print(custom_code(make_method(Custom()), None))"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")  # all three sets have another order
    }
    assert len(hashes) == 1


def test_custom_code_does_not_resume_a_run_without_a_hash_of_its_code(federation, tmp_path):
    us.train(federation, WithAttribute(1.0), out=tmp_path / "r", **OPTIONS)
    path = tmp_path / "r" / "run.json"
    metadata = json.loads(path.read_text())
    del metadata["identity"]["code"]
    path.write_text(json.dumps(metadata))
    more = OPTIONS | {"rounds": 2}
    with pytest.raises(UnskewError, match="has changed: attributes of WithAttribute, test_custom"):
        us.train(federation, WithAttribute(1.0), out=tmp_path / "r", resume=True, **more)


def test_a_function_builds_different_initial_weights_for_every_seed(federation):
    options = OPTIONS | {"lr": 1e-9}
    runs = us.compare(federation, "fedavg,mean", seeds=2, **(options | {"model": Net}))
    first, second = (vector_of(run) for run in runs if run.method == "fedavg")
    assert not torch.allclose(first, second)
    one = us.train(federation, seed=1, **(options | {"model": lambda: nn.Sequential(Net())}))
    assert torch.equal(vector_of(one), second)  # a container has no weights of its own
    same = us.compare(federation, "fedavg", seeds=2, **(options | {"model": Net()}))
    torch.testing.assert_close(*(vector_of(run) for run in same))


def test_a_function_may_return_the_same_module_every_time(federation):
    net = Net().eval()
    us.train(federation, **(OPTIONS | {"model": lambda: net, "runner": "loop"}))
    assert not net.training


def local_net():
    class Local(Net):
        """A class that cannot be sent to another process."""

    return Local()


@pytest.mark.parametrize("model", [Net, lambda: nn.Sequential(Net()), local_net])
def test_runs_of_networks_built_by_functions_can_run_in_parallel(federation, model):
    options = OPTIONS | {"model": model}
    runs = us.compare(federation, "fedavg,mean", seeds=1, jobs=2, **options)
    alone = us.compare(federation, "fedavg,mean", seeds=1, jobs=1, **options)
    for one, other in zip(runs, alone, strict=True):
        assert torch.equal(vector_of(one), vector_of(other))


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (nn.Linear(5, 2), r"Linear must return a tensor of \(2, 3\) for 2 samples.*got \(2, 2\)"),
        (nn.Linear(4, 3), r"Linear fails on .* the data, of shape \(2, 5\): RuntimeError"),
        (nn.LSTM(5, 3), "LSTM must return .* one score per class .got tuple"),
    ],
)
def test_a_network_that_does_not_fit_the_data_is_rejected_before_training(
    federation, network, message
):
    with pytest.raises(UnskewError, match=f"^model: {message}"):
        us.train(federation, **(OPTIONS | {"model": network}))


def test_a_model_that_is_not_a_network_is_rejected(federation):
    for model in (5, nn.Linear, lambda: 5):
        with pytest.raises(UnskewError, match="or a function without arguments that returns one"):
            us.train(federation, **(OPTIONS | {"model": model}))


@pytest.mark.parametrize("silent", [0, 1])
def test_all_clients_must_send_the_same_extras(federation, silent):
    class Sometimes(ClientSide):
        def finish(self, client, start, trained, state):
            return Finished({} if client.id == silent else {"z": torch.ones(3)})

    with pytest.raises(
        UnskewError, match=f"client {silent} sent no 'sometimes/z', which others sent"
    ):
        us.train(federation, Sometimes(), **OPTIONS)


class Faulty(ClientSide, ServerSide):
    """Makes a given mistake in a given hook."""

    def __init__(self, hook, mistake):
        object.__setattr__(self, "hook", hook)
        object.__setattr__(self, "mistake", mistake)

    def broadcast(self, server, client):
        return self._or_mistake("broadcast", {})

    def prepare(self, client, start, payload, state):
        return self._or_mistake("prepare", start)

    def finish(self, client, start, trained, state):
        return self._or_mistake("finish", Finished())

    def conclude(self, before, after, uploads, diagnostics):
        return self._or_mistake("conclude", after), {}

    def _or_mistake(self, hook, value):
        return self.mistake(value) if hook == self.hook else value


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
@pytest.mark.parametrize(
    ("hook", "mistake", "message"),
    [
        ("broadcast", lambda p: p["nothing"], "server failed in round 1: broadcast .* KeyError"),
        ("broadcast", lambda payload: None, "returned None, and must return a mapping of tensors"),
        (
            "broadcast",
            lambda p: {"k": 3},
            r"int as payload\['k'\], which must be a tensor",
        ),
        ("prepare", lambda start: None, "prepare of 'faulty' returned None, and must .* a Start"),
        ("prepare", lambda s: replace(s, vector=s.vector[1:]), "the vector to start from; it must"),
        ("prepare", lambda s: replace(s, sample_weights=[1.0]), "list as sample_weights"),
        ("finish", lambda finished: None, "client 0 failed in round 1: finish .* a Finished"),
        ("finish", lambda f: replace(f, state={"mu": 0.1}), r"returned float as state\['mu'\]"),
        ("finish", lambda f: replace(f, extras={"a": 1}), r"returned int as extras\['a'\]"),
        ("conclude", lambda s: replace(s, vector=s.vector.double()), r"torch.float64 of \("),
        ("conclude", lambda s: replace(s, vector=s.vector.numpy()), "ndarray as the new vector"),
        ("conclude", lambda s: replace(s, state={"n": 3}), r"returned int as state\['n'\]"),
        ("conclude", lambda s: s.vector[0] / "x", "server failed in round 1: conclude .* TypeErr"),
    ],
)
def test_an_error_names_the_hook_that_caused_it(federation, runner, hook, mistake, message):
    with pytest.raises(UnskewError, match=message):
        us.train(federation, Faulty(hook, mistake), runner=runner, **OPTIONS)


def test_an_error_on_the_server_is_raised_even_if_clients_are_rejected():
    federation = small_federation()
    federation.train.x[federation.train.offsets[1] - 1] = 1e38  # the first client's last sample
    method = Faulty("conclude", lambda server: None)
    with (
        pytest.warns(UnskewWarning, match="has values up to"),
        pytest.raises(UnskewError, match=r"conclude of 'faulty' returned None, .* a Server"),
    ):
        us.train(federation, method, **OPTIONS)


def test_values_that_hold_themselves_and_empty_cells_have_a_hash():
    def hashed():
        looped = []
        looped.append(looped)

        def metric(targets, scores, options=looped):
            return later(targets, scores, options)

        found = custom_code(make_method("fedavg"), None, [metric])
        later = max  # defined after the function that uses it
        return found, later

    assert hashed()[0]
    assert hashed() == hashed()
