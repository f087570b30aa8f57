"""The description of each method matches its traffic, its uploads and its runner."""

import pytest
import torch

from every_method import SPECS, train_quickly
from toys import small_federation
from unskew.engine import upload_checks
from unskew.engine.runners import example_inputs, resolve_runner
from unskew.engine.settings import Settings
from unskew.methods import make_method
from unskew.models import make
from unskew.models.functional import FunctionalModel
from unskew.models.layout import TensorKind

FEDERATION = small_federation((12, 9, 11, 8, 10, 9, 12, 8), unit=True)
PLAIN, NORMED = "mlp:hidden=6", "mlp:hidden=6,norm=batch"
HEAD = 6 * 3 + 3
GENERATOR = (3 + 32) * 8 + 8 + 2 * 8 + 8 * 6 + 6


def network_of(method):
    return NORMED if method.about.only_with_norms else PLAIN


def sizes(method, run) -> dict[str, int]:
    """The number of values of everything that may be sent."""
    layout = FunctionalModel(make(network_of(method), (5,), 3, seed=0)).layout
    norms = layout.mask(TensorKind.NORM_AFFINE, TensorKind.NORM_STATISTIC, TensorKind.COUNTER)
    return {
        "model": layout.size,
        "body": layout.size - HEAD,
        "nothing": 0,
        "all but BatchNorm": layout.size - int(norms.sum()),
        "all models": 4 * layout.size,
        "model with projection": FunctionalModel(run.model).layout.size,
        "model with GroupNorm": FunctionalModel(run.model).layout.size,
        "variate": layout.trainable,
        "1 number": 1,
        "2 numbers": 2,
        "label counts": 3,
        "feature statistics": 3 * (6 + 6 * 6),
        "head": HEAD,
        "prototypes": 3 * 6,
        "class statistics": 3 * 6 + 1,
        "generator": GENERATOR + 3 + 1,
    }


@pytest.fixture(scope="module", params=SPECS)
def trained(request):
    """A method, its run of three rounds, and the extras that it sent and does not declare."""
    method, check, undeclared = make_method(request.param), upload_checks.unacceptable, set()

    def recording(context, round_, tasks, result, *others):
        for finished in result.finished:
            undeclared.update(set(finished.extras) - set(context.method.receives))
        return check(context, round_, tasks, result, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upload_checks, "unacceptable", recording)
        run = train_quickly(
            FEDERATION, method, model=network_of(method), rounds=3, steps=2, evaluate_every=0
        )
    return method, run, undeclared


def test_every_extra_is_declared(trained):
    """Add what a method sends to its ``receives``, with its shape, type and range."""
    _, run, undeclared = trained
    assert not undeclared
    assert not any("rejected" in row for row in run.metrics)


def test_the_described_traffic_is_the_counted_traffic(trained):
    method, run, _ = trained
    tables = [table for table in run.client_tables if table["stage"] == "task"]
    known = sizes(method, run)
    assert [row["stage"] for row in run.metrics[-3:]] == ["task"] * 3
    assert method.about.title
    for direction, description in (("down", method.about.down), ("up", method.about.up)):
        pieces = description.split(", ")
        always = [piece for piece in pieces if not piece.endswith(")")]
        expected = sum(known[piece] for piece in always)
        assert set(tables[-1][f"parameters_{direction}"]) == {expected}
        early = getattr(run.cost, f"parameters_{direction}") - 3 * len(FEDERATION) * expected
        assert (early > 0) == (len(always) < len(pieces))


@pytest.mark.parametrize("spec", SPECS)
def test_the_runner_is_the_fastest_possible(spec):
    method, samples = make_method(spec), example_inputs(FEDERATION)
    network = FunctionalModel(method.adapt(make(network_of(method), (5,), 3, seed=0), samples))
    runner = resolve_runner(network, Settings(), torch.device("cpu"), samples)
    assert runner == ("processes" if method.about.only_with_norms else "vectorised")


def test_composed_methods_send_what_their_parts_send():
    both = make_method("scaffold+fedavgm").about
    assert (both.down, both.up) == ("model, variate", "model, variate")
    assert make_method("fedprox+fedper").about.down == "body"
    assert make_method("fednova+fedprox").about.up == "model, 1 number"
