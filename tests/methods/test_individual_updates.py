"""Every method declares whether its server must see each client's update.

The uploads of two rounds are aggregated twice: as they are, and with noise whose weighted sum is
zero. A server that needs only sums cannot distinguish the two.
"""

from dataclasses import dataclass, replace

import pytest
import torch

from every_method import QUICK, train_quickly
from marks import long_but
from toys import small_federation
from unskew.composition.method import Method
from unskew.composition.multi_model import MultiModelMethod
from unskew.methods import METHODS, About, Aspect, ServerSide, make_method

SPECS = {name: QUICK.get(name, name) for name in METHODS} | {
    "fedgen": "fedgen:hidden=8,generator_steps=5",
    "fedsa": "fedsa:cv_threshold=0.01",
    "cfl": "cfl:eps1=100,eps2=0,wait=0",
}
"""All methods, with options that let their rules have an effect in two rounds."""

MIXED = {"fedpac"}
"""Methods that combine models with other weights for each client, which depend on its extras."""

NOISE = 0.3
"""The size of the noise; what is left of it after a sum is smaller than the tolerance."""
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def federation():
    return small_federation(sizes=(20,) * 8, unit=True)


def aggregations(federation, method, monkeypatch):
    """Return the method, server and uploads of every aggregation of a run."""
    found = []
    for kind in (Method, MultiModelMethod):
        aggregate = kind.aggregate

        def recorded(self, server, uploads, aggregate=aggregate):
            if type(self) in (Method, MultiModelMethod):
                found.append((self, server, uploads))
            return aggregate(self, server, uploads)

        monkeypatch.setattr(kind, "aggregate", recorded)
    train_quickly(federation, method, rounds=2, steps=2, evaluate_every=0, runner="loop")
    monkeypatch.undo()
    return found


def alike(uploads, name):
    """Return uploads in which clients differ in their models alone (and in what mixes them)."""

    def first(column):
        return None if column is None else column[:1].expand_as(column).clone()

    extras = {key: [each[0]] * len(uploads) for key, each in uploads.extras.items()}
    return replace(
        uploads,
        samples=first(uploads.samples),
        train_loss=first(uploads.train_loss),
        train_accuracy=first(uploads.train_accuracy),
        label_counts=first(uploads.label_counts),
        extras=uploads.extras if name in MIXED else extras,
    )


def with_noise(uploads, weights):
    """Return uploads with other models that have the same weighted sum."""
    generator = torch.Generator().manual_seed(0)
    noise = NOISE * torch.randn(uploads.stack.shape, generator=generator, dtype=torch.float64)
    noise -= (weights.double() / weights.sum()) @ noise
    noise[:, uploads.layout.trainable :] = 0  # counters take the maximum
    return replace(uploads, stack=(uploads.stack + noise).float())


def difference(name, method, server, uploads) -> float:
    """Return by how much noise changes what the server holds after the round."""
    same = alike(uploads, name)
    first, diagnostics = method.aggregate(server, same)
    weights = diagnostics.get("weights", torch.zeros(1))
    if not bool(weights.any()):  # a rule without weights, or a round that keeps the model
        weights = torch.ones(len(uploads))
    second, _ = method.aggregate(server, with_noise(same, weights))
    pairs = [(first.vector, second.vector)]
    pairs += [(first.state[name], second.state[name]) for name in first.state]
    changes = [(a.double() - b.double()).abs().max() for a, b in pairs if a.numel()]
    return float(torch.stack(changes).max())


def problem(name, federation, method, monkeypatch) -> str:
    """Return what the method should declare instead; nothing if the declaration is right."""
    found = aggregations(federation, method, monkeypatch)
    depends = any(difference(name, *each) > TOLERANCE for each in found if len(each[2]) > 1)
    if depends and not method.about.needs_individual_updates:
        return (
            f"{name}: the server's result depends on each client's upload, not only on weighted "
            "sums; declare needs_individual_updates=True in about"
        )
    if not depends and method.about.needs_individual_updates:
        return (
            f"{name}: the server's result depends only on weighted sums of the uploads; remove "
            "needs_individual_updates=True from about"
        )
    return ""


@pytest.mark.parametrize("name", long_but(("fedavg", "fedexp", "ida", "scaffold"), METHODS))
def test_the_declaration_is_right(name, federation, monkeypatch):
    assert not problem(name, federation, make_method(SPECS[name]), monkeypatch)


@dataclass(frozen=True, kw_only=True)
class Careless(ServerSide):
    """The median, declared as if it were a sum."""

    replaces = frozenset({Aspect.COMBINATION})

    def combine(self, server, uploads, mean):
        return uploads.stack.median(0).values, {"weights": torch.ones(len(uploads))}


@dataclass(frozen=True, kw_only=True)
class Careful(ServerSide):
    """The mean, declared as if it were not a sum."""

    about = About(title="Mean", paper="", kind="server", needs_individual_updates=True)


def test_a_wrong_declaration_is_noticed(federation, monkeypatch):
    said = problem("careless", federation, make_method(Careless()), monkeypatch)
    assert said.endswith("declare needs_individual_updates=True in about")
    said = problem("careful", federation, make_method(Careful()), monkeypatch)
    assert said.endswith("remove needs_individual_updates=True from about")
