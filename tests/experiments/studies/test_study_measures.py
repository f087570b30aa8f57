"""Measures of papers, with values that can be checked by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from unskew.errors import UnskewError
from unskew.experiments.studies.measures import (
    Exchange,
    communication_cost,
    effective_rounds,
    exchange_of,
    parameter_bias,
    rounds_to,
    rounds_to_best,
    seconds_per_round,
    two_phase_cost,
    worst_clients,
)
from unskew.experiments.studies.values import RUN_MEASURES
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten
from unskew.runs.run import Run


def test_the_papers_costs_of_femnist():
    """Tables I and II give 907 million for FedROD and 112 million for FedDisk."""
    assert communication_cost(447_000, 1015) == 907_410_000
    assert two_phase_cost([(614_000, 15), (447_000, 105)]) == 112_290_000


def test_the_two_phase_form_of_a_run_splits_its_rounds():
    assert Exchange(614_000, 15, 447_000).cost(120) == 112_290_000


def test_effective_rounds_of_the_paper_femnist():
    """FedDisk needs 105 rounds to reach FedROD's best, and 15 before; rivals reach theirs."""
    curves = {
        "FedDisk": ([100, 105, 200], [0.50, 0.57, 0.78]),
        "FedROD": ([500, 1015, 1500], [0.55, 0.57, 0.56]),
        "FedAvg": ([500, 1100, 1500], [0.50, 0.55, 0.55]),
    }
    found = effective_rounds(curves, "FedDisk", {"FedDisk": 15})
    assert found == {"FedDisk": 120, "FedROD": 1015, "FedAvg": 1100}


def test_a_method_that_never_reaches_its_rivals_has_no_effective_rounds():
    found = effective_rounds({"a": ([1, 2], [0.1, 0.2]), "b": ([1, 2], [0.3, 0.2])}, "a")
    assert math.isnan(found["a"])
    assert found["b"] == 1


def curve_of(levels: dict[int, dict[str, float]]) -> Run:
    rows = [
        {"stage": "task", "round": round_, **{k: {"accuracy": v} for k, v in each.items()}}
        for round_, each in levels.items()
    ]
    return Run(method="fedavg", network="mlp", data="toys", seed=0, clients=1, metrics=rows)


def test_the_last_ten_rounds_are_rounds_not_evaluations():
    run = curve_of({round_: {"global": round_ / 100} for round_ in range(2, 21, 2)})
    assert RUN_MEASURES["global-last10"](run) == pytest.approx(16)  # rounds 12, 14, 16, 18 and 20
    assert math.isnan(RUN_MEASURES["global-last10"](curve_of({})))


def test_outputs_are_those_of_several_models_or_the_global_one():
    assert RUN_MEASURES["outputs"](curve_of({1: {"global": 0.1, "outputs": 0.4}})) == 40
    assert RUN_MEASURES["outputs"](curve_of({1: {"global": 0.1}})) == 10


def test_a_method_without_rivals_counts_to_its_best():
    assert effective_rounds({"a": ([1, 2, 3], [0.1, 0.4, 0.4])}, "a") == {"a": 2}


def test_an_unknown_method_is_an_error():
    with pytest.raises(UnskewError, match="ours"):
        effective_rounds({"a": ([1], [0.1])}, "b")


def test_gaps_in_a_curve_are_ignored():
    assert rounds_to_best(([1, 2, 3], [math.nan, 0.2, 0.1])) == 2
    assert math.isnan(rounds_to_best(([1], [math.nan])))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.floats(0, 1))
def test_the_round_found_is_the_first_to_reach_the_target(values, target):
    found = rounds_to((range(1, len(values) + 1), values), target)
    if math.isnan(found):
        assert max(values) < target
    else:
        assert values[int(found) - 1] >= target
        assert all(value < target for value in values[: int(found) - 1])


def row(stage, sent, clients=2, seconds=1.0, received=None):
    down = sent if received is None else received
    traffic = {"parameters_up": sent * clients, "parameters_down": down * clients}
    return {"stage": stage, "clients": clients, "traffic": traffic, "seconds": seconds}


def run_of(*metrics, tables=()):
    return Run("m", "n", "d", 0, 2, metrics=list(metrics), client_tables=list(tables))


def test_rounds_without_models_are_not_counted():
    run = run_of(row("density", 500), row("density", 500), row("ratio", 4), row("task", 100))
    assert exchange_of(run) == Exchange(500, 2, 100)


def test_downloads_count_like_uploads():
    exchange = exchange_of(run_of(row("task", 100, received=300)))
    assert exchange.cost(3) == (100 + 300) * 3


def test_a_model_received_once_does_not_count_in_every_round():
    once = run_of(row("task", 100, received=900), *(row("task", 100) for _ in range(4)))
    assert exchange_of(once) == Exchange(0, 0, 100)


def test_time_per_round_is_the_median_of_the_task():
    run = run_of(row("density", 9, seconds=50.0), *(row("task", 9, seconds=s) for s in (1, 2, 90)))
    assert seconds_per_round(run) == 2.0
    assert math.isnan(seconds_per_round(run_of()))


def test_bias_counts_means_deviations_shifts_and_scales_of_norm_layers():
    network = FunctionalModel(nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1)))
    one = flatten(network.module, network.layout)
    other = one.clone()
    for entry in network.layout:
        if entry.name == "0.weight":
            other[entry.slice] += 100.0  # not a normalisation parameter
        elif entry.name.endswith("running_var"):
            other[entry.slice] = 9.0  # a deviation of 3 against 1
        elif entry.name.endswith("running_mean"):
            other[entry.slice] = 4.0  # against 0
    assert parameter_bias(one, other, network.layout) == pytest.approx((2 + 4 + 0 + 0) / 4)


def test_a_network_without_norm_layers_has_no_bias():
    network = FunctionalModel(nn.Linear(2, 1))
    vector = torch.zeros(network.layout.size)
    assert math.isnan(parameter_bias(vector, vector, network.layout))


def test_the_worst_clients_are_sorted_by_index():
    table = {"kind": "local", "client": [2, 5, 7, 9], "accuracy": [0.9, 0.1, 0.5, 0.2]}
    metrics = {**row("task", 9), "local": {"accuracy": 0.4}}
    assert worst_clients(run_of(metrics, tables=[table]), 2) == [5, 9]
