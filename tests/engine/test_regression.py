"""Regression through the engine: losses, networks, methods, and a reference."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from torch import nn

import unskew as us
from unskew.engine.model_factory import make_module
from unskew.methods import METHODS
from unskew.models.functional import Batch, FunctionalModel
from unskew.models.regression import ScaledLinear, make_loss

OPTIONS = {"model": "mlp:hidden=8", "rounds": 3, "batch_size": 8, "lr": 0.2, "progress": False}


def sites(clients=3, samples=40, features=4, holdout=0.25):
    """Sites with a linear target in units far from 1, and images-free features."""
    random = np.random.default_rng(0)
    x = random.random((clients * samples, features)).astype(np.float32)
    y = 500 + 40 * x @ np.arange(1, features + 1) + random.normal(size=len(x))
    client = np.repeat(np.arange(clients), samples)
    return us.Federation.from_arrays(x, y, client, holdout=holdout)


def test_losses_by_hand():
    error = torch.tensor([0.5, -2.0])
    assert make_loss("mse").of(error).tolist() == [0.125, 2.0]
    assert make_loss("huber").of(error).tolist() == [0.125, 1.5]
    assert make_loss("huber:delta=2").of(error).tolist() == [0.125, 2.0]


def test_a_network_predicts_in_units_of_the_target_and_its_loss_has_none():
    federation = sites()
    name, module = make_module(federation, None, seed=0)
    center, scale = federation.target_center_and_scale
    assert (name, module.head.out_features) == ("mlp", 1)
    network = FunctionalModel(module)
    x, y = (torch.from_numpy(part) for part in federation.train.client(0))
    predicted = module(x)[:, 0].detach()
    raw = nn.functional.linear(module.body(x), module.head.weight, module.head.bias)[:, 0].detach()
    torch.testing.assert_close(predicted, center + scale * raw)
    vector = torch.cat([each.detach().flatten() for each in module.parameters()])
    losses = network.losses(vector, {}, Batch(x, y, torch.ones(len(y))))
    torch.testing.assert_close(losses, 0.5 * ((predicted - y) / scale) ** 2)


def test_units_of_the_target_do_not_change_the_training():
    """Degrees Celsius or kelvin, metres or kilometres: the same loss in every round."""
    federation = sites()
    scaled = us.Federation.from_arrays(
        federation.train.x, 1000 * federation.train.y - 7, federation.train.owners()
    )
    plain = us.Federation.from_arrays(
        federation.train.x, federation.train.y, federation.train.owners()
    )
    first, second = (us.train(each, **OPTIONS) for each in (plain, scaled))
    losses = [[row["train_loss"] for row in run.metrics] for run in (first, second)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_a_regression_is_judged_by_its_rmse_and_reports_mae_and_r2():
    federation = sites()
    run = us.train(federation, **OPTIONS)
    assert (run.metric.name, run.level) == ("rmse", "local")
    local = run.metrics[-1]["local"]
    assert next(iter(local)) == "rmse"
    with torch.no_grad():
        errors = run.model(torch.from_numpy(federation.test.x))[:, 0].numpy() - federation.test.y
    assert local["pooled_rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-5)
    assert local["pooled_mae"] == pytest.approx(np.abs(errors).mean(), rel=1e-5)
    assert local["rmse_max"] >= local["rmse"] >= local["pooled_mae"] / 2
    assert run.table().columns[2:] == ["local rmse", "worst client", "personal", "mae", "r2"]
    assert np.isnan(run.accuracy)
    assert run.metadata["target"]["center"] == pytest.approx(federation.train.y.mean())


def test_the_loss_can_be_set():
    federation = sites()
    losses = ("huber:delta=0.5", "huber:delta=100", None)
    huber, wide, mse = (us.train(federation, loss=loss, **OPTIONS) for loss in losses)
    assert huber.metrics[0]["train_loss"] < mse.metrics[0]["train_loss"]
    assert wide.metrics[0]["train_loss"] == mse.metrics[0]["train_loss"]
    with pytest.raises(us.UnskewError, match="did you mean 'huber'"):
        us.train(federation, loss="hubert", **OPTIONS)
    classes = us.Federation.from_arrays(np.zeros((4, 2)), [0, 1, 0, 1])
    with pytest.raises(us.UnskewError, match="loss: mse is for a regression"):
        us.train(classes, loss="mse", **OPTIONS)


@pytest.mark.parametrize("runner", ["loop", "vectorised", "processes"])
def test_all_runners_train_a_regression(runner):
    loop = us.train(sites(), runner="loop", **OPTIONS)
    run = us.train(sites(), runner=runner, workers=1, **OPTIONS)
    assert run.last("local", "rmse") == pytest.approx(loop.last("local", "rmse"), rel=1e-4)


class Squeezed(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return 500 + 100 * self.head(x)[:, 0]


def test_a_custom_network_returns_one_number_per_sample():
    run = us.train(sites(), **OPTIONS | {"model": Squeezed, "rounds": 10})
    assert not isinstance(run.model.head, ScaledLinear)
    assert run.last("local", "r2") > 0.5
    with pytest.raises(us.UnskewError, match="one number per sample"):
        us.train(sites(), **OPTIONS | {"model": nn.Linear(4, 2)})


def test_methods_that_rebuild_the_network_keep_its_units():
    run = us.train(sites(), "moon", **OPTIONS)
    assert isinstance(run.model.head, ScaledLinear)
    assert run.last("local", "r2") > -1  # the mean alone has 0; a model without units, under -100


@pytest.mark.parametrize(
    "method", ["feddisco", "fedntd", "fedrod", "fedgen", "intrac", "ida+intrac", "fedma"]
)
def test_methods_that_need_classes_refuse_a_regression_in_one_line(method):
    with pytest.raises(us.UnskewError, match="needs classes, and the target is a quantity"):
        us.train(sites(), method, **OPTIONS)


@pytest.mark.parametrize(
    "method",
    [
        "ida",
        "fedsa",
        "fedma:head=samples",
        pytest.param("fedfusion", marks=pytest.mark.long),
        pytest.param(
            "feddisk:density_rounds=2,local_rounds=2,ratio_rounds=2", marks=pytest.mark.long
        ),
        pytest.param("latent:vae_rounds=2", marks=pytest.mark.long),
    ],
)
def test_methods_without_classes_train_a_regression(method):
    run = us.train(sites(), method, **OPTIONS | {"rounds": 10})
    assert run.last("local", "r2") > 0.5


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_a_regression_or_names_itself(method):
    federation, options = sites(clients=7, samples=12), OPTIONS | {"rounds": 2}
    need_classes = {
        *("ccvr", "fedas", "feddisco", "fedgen", "fedlc", "fedma", "fedntd", "fedpac", "fedproto"),
        *("fedrod", "fedrs", "intrac"),
    }
    if method in need_classes:
        with pytest.raises(us.UnskewError, match=f"{method} needs classes"):
            us.train(federation, method, **options)
    else:
        run = us.train(federation, method, **options)
        level = "local" if run.has_global_model else "personal"
        assert np.isfinite(run.last(level, "rmse"))


def test_partition_bins_and_attacks_work_with_numbers():
    run = us.train(sites(), attack="labels:clients=1", **OPTIONS)
    assert np.isfinite(run.last("local", "rmse"))


def test_a_target_of_a_comparison_may_be_an_error():
    runs = us.compare(sites(), "fedavg,mean", seeds=1, target=80.0, **OPTIONS)
    table = runs.table(80.0)
    assert table.columns[1] == "local rmse"
    assert "rounds to 80" in table.columns
    assert all(summary.reached == 1 for summary in runs.summaries(80.0))


@pytest.mark.long
def test_diabetes_by_site_matches_pooled_ridge_regression():
    """Linear regression on four sites by age against ridge regression on all their samples."""
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True, scaled=False)
    x = (x - x.mean(0)) / x.std(0)
    site = np.argsort(np.argsort(x[:, 0], kind="stable")) * 4 // len(y)
    gaps, noise = [], []
    for seed in range(3):
        federation = us.Federation.from_arrays(x, y, site, holdout=0.25, seed=seed)
        run = us.train(
            federation, model="linear", rounds=60, lr=0.1, lr_decay=0.95, seed=seed, progress=False
        )
        ridge = Ridge(alpha=1.0).fit(federation.train.x, federation.train.y)
        errors = ridge.predict(federation.test.x) - federation.test.y
        rmse = np.sqrt(np.mean(errors**2))
        gaps.append(run.last("local", "pooled_rmse") - rmse)
        noise.append(rmse)
    assert np.abs(gaps).max() < np.std(noise, ddof=1), (gaps, noise)
    assert np.abs(gaps).max() < 0.01 * np.mean(noise), (gaps, noise)
