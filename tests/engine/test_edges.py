"""Edge cases of a run, one per test."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import unskew as us
from toys import federation_of, small_federation
from unskew.aggregation.uploads import Uploads
from unskew.composition.values import Server
from unskew.errors import UnskewError
from unskew.methods import Aspect, make_method
from unskew.methods.krum import Krum

OPTIONS = {"model": "logistic", "rounds": 2, "lr": 0.1, "batch_size": 8}
RNG = np.random.default_rng(0)


def random_client(samples: int):
    return RNG.normal(size=(samples, 4)), RNG.integers(0, 3, samples)


def test_a_composed_method_can_be_sent_to_a_spawned_worker():
    method = make_method("fedprox:mu=0.5+ida")
    again = pickle.loads(pickle.dumps(method))
    assert again == method
    assert again.parts[0].mu == 0.5


@pytest.mark.parametrize("runner", ["vectorised", "loop"])
def test_a_last_client_without_samples_does_not_break_training_accuracy(runner):
    federation = federation_of(random_client(9), random_client(7), random_client(0))
    run = us.train(federation, "intrac", runner=runner, **OPTIONS)
    assert run.metrics[0]["rejected"] == {"2": "it has no samples to train on"}


def test_an_attacked_upload_that_is_not_finite_is_rejected():
    run = us.train(small_federation(), "mean", attack="scale:clients=1,factor=1e39", **OPTIONS)
    assert len(run.metrics[0]["rejected"]) == 1
    assert all(np.isfinite(p.detach().numpy()).all() for p in run.model.parameters())


@pytest.mark.filterwarnings("ignore:.*left the model as it was")
def test_a_new_model_that_is_not_finite_is_discarded():
    class Exploding(us.ServerSide):
        replaces = frozenset({Aspect.SERVER_STEP})

        def step(self, server, vector, uploads):
            return Server(vector * float("inf"))

    run = us.train(small_federation(), Exploding(), **OPTIONS)
    assert "infinite or undefined" in run.metrics[0]["kept_model"]
    assert run.metrics[1].get("rejected") is None


@pytest.mark.filterwarnings("ignore:.*left the model as it was")
def test_a_rule_left_with_too_few_clients_keeps_the_old_model():
    class Fragile(Krum, us.ClientSide):
        def prepare(self, client, start, payload, state):
            bad = client.id == 0
            return replace(start, vector=start.vector * float("nan") if bad else start.vector)

    federation = small_federation(sizes=(8, 8, 8, 8, 8))
    run = us.train(federation, Fragile(f=1), **OPTIONS)
    assert "krum: f=1 needs at least 5 clients" in run.metrics[0]["kept_model"]
    with pytest.raises(UnskewError, match="needs at least 5"):  # without rejections, an error
        us.train(small_federation(), "krum:f=1", **OPTIONS)


def test_the_number_of_classes_is_that_of_the_data_not_of_a_layer():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(8, 3)
            self.body = nn.Linear(5, 8)

        def forward(self, x):
            return self.out(torch.relu(self.body(x)))

    run = us.train(small_federation(), "feddisco", **(OPTIONS | {"model": Odd()}))
    plain = us.train(small_federation(), "fedavg", **(OPTIONS | {"model": Odd()}))
    assert run.cost.parameters_up - plain.cost.parameters_up == 2 * 4 * 3


def test_the_diagnostics_of_the_weights_are_recorded():
    run = us.train(small_federation(), "ida", **OPTIONS)
    table = run.client_tables[0]
    assert len(table["diagnostics"]["distances"]) == 4
    fusion = us.train(small_federation(), "fedfusion", **OPTIONS)
    assert {"allocation", "pi"} <= set(fusion.metrics[0]["diagnostics"])


def test_integer_buffers_can_be_used_as_indices():
    class Permuted(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(5, 3)
            self.register_buffer("indices", torch.tensor([4, 3, 2, 1, 0]))

        def forward(self, x):
            return self.head(x[:, self.indices])

    for runner in ("loop", "vectorised"):
        options = OPTIONS | {"model": Permuted(), "runner": runner}
        assert us.train(small_federation(), **options).rounds == 2


def test_batchnorm_rejects_a_client_of_one_sample_and_trains_the_others():
    federation = federation_of(random_client(9), random_client(1), random_client(8))
    run = us.train(federation, **(OPTIONS | {"model": "mlp:norm=batch"}))
    assert run.metrics[0]["rejected"] == {"1": "it has a single sample, and BatchNorm needs two"}


def test_a_run_that_failed_to_start_does_not_block_its_folder(tmp_path):
    with pytest.raises(UnskewError, match="attack: clients"):
        us.train(small_federation(), out=tmp_path / "r", attack="scale:clients=9", **OPTIONS)
    with pytest.raises(UnskewError, match="krum"):
        us.train(small_federation(), "krum:f=1", out=tmp_path / "r", **OPTIONS)
    assert us.train(small_federation(), "mean", out=tmp_path / "r", **OPTIONS).rounds == 2


def test_a_lost_run_json_never_resumes_the_checkpoint_of_another_run(tmp_path):
    us.train(small_federation(), "fedavg", out=tmp_path / "r", **OPTIONS)
    (tmp_path / "r" / "run.json").unlink()
    for resume in (False, True):
        with pytest.raises(UnskewError, match=r"no run\.json"):
            us.train(small_federation(), "mean", out=tmp_path / "r", resume=resume, **OPTIONS)


class _Frame:
    """Shows itself in several lines, as a DataFrame does."""

    def __repr__(self):
        return "   age\n0   41"


FRAME = _Frame()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: us.train("digits"), r"federation must be a Federation \(got str\); make one"),
        (lambda: us.check(FRAME), r"\(got _Frame\); .* Federation\.from_table$"),
        (lambda: us.diagnose(FRAME), r"\(got _Frame\); .* Federation\.from_table$"),
        (lambda: us.compare(FRAME, "mean"), r"\(got _Frame\); .* Federation\.from_table$"),
        (
            lambda: us.train(small_federation(), model=nn.Linear),
            "model must be a name, a torch module",
        ),
        (lambda: us.train(small_federation(), us.Method), "method must be a name or"),
        (lambda: us.train(small_federation(), resume=True), "resume: there is nothing"),
        (lambda: us.train(small_federation(), quorum=9), "quorum must be at most"),
        (lambda: us.train(small_federation(), rounds=True), "rounds must be a valid integer"),
        (lambda: us.train(small_federation(), rounds="2"), "rounds must be a valid integer"),
        (lambda: us.compare(small_federation(), "mean", seeds=[0, 0]), "seeds must be"),
        (
            lambda: us.train(small_federation(), "fedfusion:normalise=literal+ida", **OPTIONS),
            "normalise=literal",
        ),
    ],
)
def test_wrong_calls_raise_one_line(call, message):
    with pytest.raises(UnskewError, match=message):
        call()


def test_integer_features_and_a_common_test_of_another_type_are_accepted():
    x, y = RNG.integers(0, 9, size=(30, 4)).astype(np.int32), RNG.integers(0, 3, 30)
    common = (x.astype(np.uint8), y)
    federation = us.Federation.from_arrays(x, y, np.arange(30) % 3, common=common, classes=3)
    assert federation.common.x.dtype == federation.train.x.dtype
    assert 0 <= us.train(federation, **OPTIONS).accuracy <= 1


def test_a_cohort_larger_than_the_federation_has_all_clients():
    run = us.train(small_federation(), **(OPTIONS | {"cohort": 99}))
    assert run.metrics[0]["clients"] == 4


def test_a_federation_may_have_one_client():
    x, y = random_client(20)
    alone = us.Federation.from_arrays(x, y, holdout=0.2, classes=3)
    for method in ("fedavg", "ida", "fedsa", "fedfusion", "rfa", "median"):
        assert us.train(alone, method, **OPTIONS).rounds == 2


def test_distances_of_enormous_models_stay_finite():
    uploads = Uploads.of(torch.full((3, 50), 1e37) * torch.tensor([[1.0], [-1.0], [0.5]]))
    weights = make_method("ida").aggregate(Server(torch.zeros(50)), uploads)[1]["weights"]
    assert torch.isfinite(weights).all()
