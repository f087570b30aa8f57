"""One node among seven sends each value out of range: it is rejected, and nobody else is."""

import warnings

import numpy as np
import pytest
import torch

from every_method import ON_NODES
from marks import long_after, long_but
from unskew.methods import make_method

grids = pytest.importorskip("grids")

from bad_values import (  # noqa: E402
    BAD,
    MEASURED,
    TRAIN,
    bad_forms,
    bad_numbers,
    declared,
    model_of,
    sending,
    silent,
)

OPTIONS = {"rounds": 2, "lr": 0.1, "batch_size": 8, "evaluate_every": 0}
SPECS = ON_NODES | {
    "bulyan": "bulyan:f=0",  # f=1 needs all seven nodes
    "fedcluster": "fedcluster:groups=2",
}
WITH_VALUES = [
    name for name, spec in SPECS.items() if set(declared(make_method(spec))) != {"train_loss"}
]


def run_with(spec, spoil):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return grids.run_on_grid(grids.seven_clients(), spec, spoil=spoil, **OPTIONS).run


def assert_only_the_bad_node_is_affected(spec, name, value):
    # The loss and the accuracy are metrics, which have no shape or type of their own.
    forms = bad_numbers(value) if name in MEASURED else bad_forms(value)
    without = run_with(spec, silent(name))
    affected = [row["round"] for row in without.metrics if "missing" in row]
    assert affected, f"{spec} never sends {name}"
    for form, change in forms.items():
        run = run_with(spec, sending(name, change))
        rejected = [row["round"] for row in run.metrics if "rejected" in row]
        assert rejected == affected, (name, form)
        for row in run.metrics:
            assert list(row.get("rejected", {})) in ([], [BAD]), (name, form, row["rejected"])
            assert all(
                why.startswith(f"{BAD}: ") and name in why
                for why in row.get("rejected", {}).values()
            ), (form, row["rejected"])
            assert "kept_model" not in row
        assert torch.equal(model_of(run), model_of(without)), (name, form)


@pytest.mark.parametrize("method", long_but(("fednova",), WITH_VALUES))
def test_every_declared_value_is_checked(method):
    spec = SPECS[method]
    for name, value in declared(make_method(spec)).items():
        if name != "train_loss":
            assert_only_the_bad_node_is_affected(spec, name, value)


@pytest.mark.parametrize(
    "method", long_after(2, ["scaffold", "ida", "fedavg", "ifca:models=2", "fedavgm"])
)
def test_an_undefined_model_has_the_effect_of_no_reply(method):
    def undefined(node, kind, reply):
        if (node, kind) == (BAD, TRAIN):
            arrays = reply.content.array_records["arrays"]
            arrays["model"] = grids.Array(arrays["model"].numpy() * np.float32("nan"))
        return reply

    run, without = run_with(method, undefined), run_with(method, silent("train_loss"))
    assert [list(row["rejected"]) for row in run.metrics] == [[BAD]] * 2
    assert torch.equal(model_of(run), model_of(without))


def test_bulyan_keeps_the_model_when_a_node_of_seven_is_missing():
    run = run_with("bulyan:f=1", silent("train_loss"))
    assert all("bulyan" in row["kept_model"] for row in run.metrics)


@pytest.mark.long
@pytest.mark.parametrize("method", SPECS)
def test_the_training_loss_is_checked_for_every_method(method):
    value = declared(make_method(SPECS[method]))["train_loss"]
    assert_only_the_bad_node_is_affected(SPECS[method], "train_loss", value)
