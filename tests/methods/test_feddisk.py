import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import unskew as us
from toys import federation_of, small_federation
from unskew.aggregation.uploads import Uploads
from unskew.composition.method import own_server
from unskew.composition.values import Client, Server, Start
from unskew.data.opposites import opposites
from unskew.errors import UnskewError, UnskewWarning
from unskew.methods import make_method
from unskew.methods.feddisk.federated import FederatedDensity, learned_density
from unskew.methods.feddisk.held_out import held_out, training_weights
from unskew.methods.feddisk.local import LocalDensity
from unskew.methods.feddisk.method import FedDisk
from unskew.methods.feddisk.weights import weights_from
from unskew.models.functional import FunctionalModel
from unskew.models.layout import Layout, flatten
from unskew.models.made import MADESpec
from unskew.report.page import page_text
from unskew.runs.runs import Runs

QUICK = "density_rounds=7,local_rounds=3,ratio_rounds=3,hidden=8,global_samples=64,ratio_hidden=10"
ESTIMATORS = ("generative", "classifier", "loglik", "oracle")


@pytest.fixture
def binary():
    """Unequal clients with binary features."""
    data = small_federation()
    clients = [data.train.client(k) for k in range(len(data))]
    return federation_of(*((np.asarray(x > 0, np.float32), y) for x, y in clients))


def quietly(federation, method, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnskewWarning)
        return us.train(federation, method, model="logistic", batch_size=8, **settings)


# Weights.


def test_equal_densities_give_weights_of_one():
    assert weights_from(torch.zeros(7), clip=10).values.tolist() == [1.0] * 7
    assert weights_from(torch.full((7,), -3.2), clip=10).values.tolist() == [1.0] * 7


def test_weights_by_hand():
    # Ratios 1/2, 1/2, 2, 5: the mean is 2, so the weights are 1/4, 1/4, 1, 5/2, with mean one.
    found = weights_from(torch.tensor([0.5, 0.5, 2.0, 5.0]).log(), clip=10)
    assert found.values.tolist() == pytest.approx([0.25, 0.25, 1, 2.5])
    assert found.effective == pytest.approx(16 / (4 * (0.0625 + 0.0625 + 1 + 6.25)))
    assert found.coverage == 1.0
    # Clipped to [1/2, 2] they are 1/2, 1/2, 1, 2, rescaled to mean one.
    assert weights_from(torch.tensor([0.5, 0.5, 2.0, 5.0]).log(), clip=2).values.tolist() == (
        pytest.approx([0.5, 0.5, 1, 2])
    )


def test_without_mean_one_weights_are_the_clipped_ratios():
    ratios = torch.tensor([0.1, 0.5, 2.0, 5.0])
    assert weights_from(ratios.log(), clip=4, mean_one=False).values.tolist() == (
        pytest.approx([0.25, 0.5, 2, 4])
    )
    assert weights_from(torch.tensor([1e4]), clip=4, mean_one=False).values.tolist() == [4]


def test_coverage_is_the_share_of_the_global_mass_that_a_client_covers():
    # q is uniform on two values, p is uniform on four: on q's values p/q is 1/2.
    assert weights_from(torch.tensor([0.5, 0.5]).log(), clip=10).coverage == pytest.approx(0.5)


@given(st.lists(st.floats(-40, 40), min_size=1, max_size=30), st.floats(1.5, 100))
def test_weights_are_positive_with_mean_one(log_ratio, clip):
    found = weights_from(torch.tensor(log_ratio), clip)
    assert float(found.values.double().mean()) == pytest.approx(1, abs=1e-5)
    assert bool((found.values > 0).all())
    assert 0 < found.effective <= 1 + 1e-9
    assert 0 <= found.coverage <= 1


def test_weighted_losses_of_a_client_are_those_of_the_global_distribution():
    # Three values, samples in exactly the shares of q: the weighted mean is the mean under p.
    q, p = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])
    x = np.repeat([0, 1, 2], (q * 8).astype(int))
    loss = np.array([1.0, 10.0, 100.0])
    weights = weights_from(torch.from_numpy(np.log(p / q)[x]), clip=10).values.double().numpy()
    assert (weights * loss[x]).mean() == pytest.approx((p * loss).sum())


# Validation.


def test_held_out_samples_are_the_same_every_time_and_have_no_weight():
    held = held_out(3, 40, 0.15)
    assert int(held.sum()) == 6
    assert torch.equal(held, held_out(3, 40, 0.15))
    assert not torch.equal(held, held_out(4, 40, 0.15))
    weights = training_weights(held)
    assert float(weights.mean()) == pytest.approx(1)
    assert bool((weights[held] == 0).all())
    assert not bool(held_out(0, 3, 0.15).any())
    assert not bool(held_out(0, 100, 0.0).any())


@pytest.mark.parametrize(
    ("history", "done"),
    [
        ([5, 4, 3, 2, 1, 0], False),
        ([5, 4, 3, 1, 2, 3], True),
        ([3, 1, 2, 3], False),
        ([5, 4, 3, 1, 3, 2], False),
    ],
)
def test_a_density_stops_after_rises_in_a_row(history, done):
    best = torch.ones(1)
    state = {"history": torch.tensor(history, dtype=torch.float64), "best": best}
    server = Server(torch.zeros(1), state)
    assert FederatedDensity().is_done(server) is done
    assert bool(learned_density(server)[0]) is (history[-1] > min(history))


# The method.


def test_weights_of_one_are_fedavg_bit_for_bit(binary):
    plain = quietly(binary, "fedavg", rounds=3)
    method = FedDisk(estimator="oracle", exact=lambda _, x: torch.zeros(len(x)))
    weighted = quietly(binary, method, rounds=3)
    for one, other in zip(plain.model.parameters(), weighted.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_local_density_that_equals_the_global_one_has_ratio_one():
    network = FunctionalModel(MADESpec(hidden="6").build((5,), 2))
    vector = flatten(network.module, network.layout)
    x = torch.randint(0, 2, (9, 5)).float()
    client = Client(0, x, torch.zeros(9, dtype=torch.int64), network, 2)
    start = Start(vector, vector, {"density": vector.clone()})
    ratio = LocalDensity(sets_weights=True).log_ratio(client, vector, start)
    assert ratio.tolist() == [0.0] * 9


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_stages_give_the_same_weights_in_every_runner(binary, estimator):
    method = f"feddisk:estimator={estimator},{QUICK}"
    loop, together = (
        quietly(binary, method, rounds=1, runner=runner) for runner in ("loop", "vectorised")
    )
    assert [row["stage"] for row in loop.metrics] == [row["stage"] for row in together.metrics]
    for k in range(len(binary)):
        one, other = (run.states[k]["feddisk/sample_weights"] for run in (loop, together))
        assert len(one) == binary.train.sizes[k]
        assert float(one.mean()) == pytest.approx(1, abs=1e-5)
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-4)


def test_what_stages_send_is_counted_and_weights_are_not(binary):
    method = f"feddisk:estimator=classifier,{QUICK}"
    found = quietly(binary, method, rounds=2)
    made = sum(p.numel() for p in MADESpec(hidden="8").build((5,), 3).parameters())
    by_stage = {}
    for row in found.metrics:
        by_stage.setdefault(row["stage"], []).append(row["traffic"])
    clients = len(binary)
    for traffic in by_stage["density"]:
        assert traffic["parameters_down"] == clients * made
        assert traffic["parameters_up"] == clients * (made + 2)  # loss and number of samples
    # The finished density is sent once; clients report only their diagnostics.
    down = [traffic["parameters_down"] for traffic in by_stage["local density"]]
    assert down == [clients * made] + [0] * (len(down) - 1)
    assert {t["parameters_up"] for t in by_stage["local density"]} == {clients * 2}
    assert {t["parameters_up"] for t in by_stage["ratio"]} == {clients * 4}
    head = 5 * 3 + 3
    assert {t["parameters_up"] for t in by_stage["task"]} == {clients * head}


@pytest.mark.parametrize("estimator", ["classifier", "generative"])
def test_a_run_stopped_in_a_stage_resumes_bit_for_bit(binary, tmp_path, estimator):
    method = f"feddisk:estimator={estimator},{QUICK}"
    whole = quietly(binary, method, rounds=2)

    class Stop(Exception):
        pass

    count = 0

    def stop(round_, metrics):
        nonlocal count
        count += 1
        if metrics["stage"] == "ratio" and round_ == 2:
            raise Stop

    with pytest.raises(Stop):
        quietly(binary, method, rounds=2, out=tmp_path, progress=stop, checkpoint_seconds=0)
    again = quietly(binary, method, rounds=2, out=tmp_path, resume=True)
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("other", ["fedprox:mu=0.1", "ida", "fedadam"])
def test_weights_enter_any_method(binary, other):
    alone = quietly(binary, other, rounds=2)
    both = quietly(binary, f"feddisk:{QUICK}+{other}", rounds=2)
    assert both.method.endswith(f"+{other}")
    first, second = (nn.utils.parameters_to_vector(r.model.parameters()) for r in (alone, both))
    assert not torch.equal(first, second)
    assert "feddisk/sample_weights" in both.states[0]


def test_clients_with_disjoint_samples_cause_a_warning():
    patterns = np.eye(3, 6, dtype=np.float32)
    apart = federation_of(*((np.tile(row, (40, 1)), [k] * 40) for k, row in enumerate(patterns)))
    with pytest.warns(UnskewWarning, match="cover less than half"):
        us.train(apart, "feddisk:estimator=oracle,ratio_rounds=30,ratio_lr=0.01,ratio_decay=0",
                 model="logistic", rounds=1)  # fmt: skip


def test_unsuitable_data_is_rejected():
    data = small_federation()  # normal features
    with pytest.raises(UnskewError, match="between 0 and 1"):
        us.train(data, "feddisk", model="logistic", rounds=1)


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_client_without_samples_is_rejected_by_name(binary, estimator, runner):
    clients = [binary.train.client(k) for k in range(len(binary))]
    nothing = np.empty((0, 5), np.float32), np.empty(0, np.int64)
    method = f"feddisk:estimator={estimator},{QUICK}"
    run = quietly(federation_of(*clients, nothing), method, rounds=1, runner=runner)
    assert run.metrics[-1]["rejected"] == {"4": "it has no samples to train on"}


def test_a_round_without_held_out_samples_does_not_stop_the_search_for_the_best():
    part, layout = FederatedDensity(), Layout.of(nn.Linear(1, 1, bias=False))
    method, server = make_method(part), Server(torch.zeros(1))
    for number, loss in enumerate([5.0, None, 3.0, 4.0, 8.0]):
        sent = torch.tensor([0.0, 0.0] if loss is None else [2 * loss, 2.0])
        uploads = Uploads.of(torch.full((1, 1), number + 1.0), samples=[1], layout=layout)
        uploads = replace(uploads, extras={"feddisk/validation": [sent]})
        server, _ = method.aggregate(server, uploads)
    assert server.state["feddisk/history"].tolist() == [5, 3, 4, 8]
    assert learned_density(own_server(server, part)).tolist() == [2.0]  # the model whose loss was 3


def test_a_client_with_one_sample_takes_part():
    x = np.eye(4, dtype=np.float32)
    data = federation_of((x[:1], [0]), (np.tile(x, (5, 1)), [0, 1, 2, 1] * 5))
    found = quietly(data, f"feddisk:estimator=classifier,{QUICK}", rounds=1)
    assert found.states[0]["feddisk/sample_weights"].tolist() == [1.0]


# A federation where weighting must help: see docs/methods/feddisk.md for ten seeds.

TASK = {"model": "logistic", "rounds": 4, "steps": 300, "batch_size": 2000, "lr": 0.5}


@pytest.mark.long
def test_weights_recover_what_averaging_loses_on_opposite_densities():
    case = opposites(seed=0)

    def exact(k, x):
        return torch.from_numpy(case.log_ratio(k, x.numpy()))

    def loss(data, method):
        run = us.train(data, method, evaluate_every=4, **TASK)
        return run.last("global", "loss"), run

    average, _ = loss(case.federation, "fedavg")
    pooled, _ = loss(case.pooled, "fedavg")
    oracle, _ = loss(case.federation, FedDisk(estimator="oracle", exact=exact))
    assert average - pooled > 0.015
    assert average - oracle > 0.8 * (average - pooled)
    for estimator in ("generative", "loglik"):
        learned, run = loss(case.federation, f"feddisk:estimator={estimator}")
        assert average - learned > 0.7 * (average - oracle)
        for k in (0, 1):
            estimated = run.states[k]["feddisk/sample_weights"].log().numpy()
            truth = case.log_ratio(k, case.federation.train.client(k)[0])
            assert np.corrcoef(estimated, truth)[0, 1] > 0.8


@pytest.mark.parametrize("share", [0.5, 0.9, 1.0])
def test_the_exact_ratio_is_that_of_the_mixture_to_the_client(share):
    """The ratio is 1 if clients are alike, and at least a half: the client is half of the mixture.

    Its mean over the client's own samples is 1, the mass of the mixture.
    """
    case = opposites(seed=0, share=share, samples=20_000)
    for k in (0, 1):
        ratio = np.exp(case.log_ratio(k, case.federation.train.client(k)[0]))
        assert ratio.min() >= 0.5
        assert ratio.mean() == pytest.approx(1, abs=0.1)
    if share == 0.5:
        assert np.allclose(ratio, 1)


def test_the_report_shows_the_diagnostics_of_densities(binary, tmp_path):
    run = quietly(binary, f"feddisk:{QUICK}", rounds=1, out=tmp_path / "run")
    kappa = binary.train.sizes / binary.train.samples
    assert run.metadata["densities"]["kappa_max"] == pytest.approx(kappa.max())
    page = page_text(Runs([run]), None, None)
    assert f"{kappa.max():.3g} for the largest of 4 clients" in page
    assert "No budget" in page
    assert "Densities and privacy" not in page_text(
        Runs([quietly(binary, "fedavg", rounds=1)]), None, None
    )
