"""Probes, with values that can be checked by hand."""

import math

import numpy as np
import pytest
import torch

from unskew.data.sources import source
from unskew.experiments.studies.case_data import open_case_data, subsample
from unskew.experiments.studies.library import open_study
from unskew.experiments.studies.probes.choices import main_peaks, off_peak
from unskew.experiments.studies.probes.client_models import train_client_models
from unskew.experiments.studies.probes.codes import half_even
from unskew.experiments.studies.probes.dispersion import relative_spread
from unskew.experiments.studies.probes.features import frechet, measure_features, mixture_statistics
from unskew.experiments.studies.study import StudyData


def test_relative_spread_is_the_distance_from_the_mean_over_its_norm():
    """Models (2, 0) and (4, 0): the mean is 3 long, and each is 1 away."""
    assert relative_spread(torch.tensor([[2.0, 0.0], [4.0, 0.0]])) == pytest.approx(1 / 3)
    assert math.isnan(relative_spread(torch.tensor([[1.0], [-1.0]])))


def test_the_main_peak_is_where_most_clients_are():
    column = np.array([[0.0], [0.01], [-0.01], [0.0], [5.0]])
    assert abs(main_peaks(column)[0]) < 0.5
    assert off_peak(np.array([1.0]), column) > off_peak(np.array([0.0]), column)


def test_equal_clients_have_no_distance_from_the_peak():
    assert math.isnan(off_peak(np.array([1.0]), np.ones((3, 1))))


def test_frechet_distance_of_normal_samples():
    """Means 3 apart and deviations 1 and 2: 9 + (2 - 1)^2 = 10."""
    grid = np.linspace(-1, 1, 201)[:, None]
    unit = grid / grid.std(ddof=1)
    assert frechet(unit, 2 * unit + 3) == pytest.approx(10.0)
    assert frechet(unit, unit) == pytest.approx(0.0, abs=1e-9)


def test_moments_of_a_mixture():
    """Half N(0, 1), half N(2, 1): mean 1, variance 1 + 1."""
    shares = np.array([[0.5, 0.5]])
    mean, variance = mixture_statistics(np.array([[0.0], [2.0]]), np.ones((2, 1)), shares)
    assert mean[0, 0] == 1.0
    assert variance[0, 0] == 2.0


def test_half_of_the_clients_are_even():
    federation = half_even(source("digits"), 0.5, 0)
    counts = federation.train.label_counts(10)
    shares = counts / counts.sum(1, keepdims=True)
    assert len(federation) == 4
    assert abs(shares[0] - shares[1]).max() < 0.06
    assert abs(shares[2] - shares[3]).max() > 0.1


def test_a_subsample_keeps_the_order_and_depends_on_the_seed():
    whole = source("digits")
    one, same, other = (subsample(whole, 100, 50, seed) for seed in (0, 0, 1))
    assert (len(one.y_train), len(one.y_test)) == (100, 50)
    assert np.array_equal(one.x_train, same.x_train)
    assert not np.array_equal(one.x_train, other.x_train)
    assert len(subsample(whole, 10**6, None, 0).y_train) == len(whole.y_train)


def test_the_data_of_a_case_is_subsampled_and_partitioned():
    federation = open_case_data(StudyData(name="digits", clients=4, samples=80, holdout=0.25), 0)
    assert len(federation) == 4
    assert federation.train.samples + federation.test.samples == 80


def test_client_models_are_kept_and_their_average_is_the_global_one():
    case = open_study("fedsa-parameters", "smoke").cases[0]
    federation = open_case_data(case.data, 0)
    models = train_client_models(case, federation, 0, (1, 3))
    assert models.stacks[1].shape == (6, models.layout.size)
    sizes = torch.from_numpy(federation.train.sizes).float()
    mean = (sizes[:, None] * models.stacks[3]).sum(0) / sizes.sum()
    first = next(iter(models.layout))
    trained = dict(models.module.named_parameters())[first.name].detach().flatten()
    assert torch.allclose(mean[first.slice], trained, atol=1e-5)


@pytest.mark.long
def test_features_are_sampled_in_three_ways():
    result = measure_features(open_study("fedfusion-distribution", "smoke").cases[0], 0)
    assert set(result.values) == {"FedFusion", "averaged statistics", "clients' statistics"}
    assert all(value["frechet"] >= 0 for value in result.values.values())
    assert len(result.drawing["x"]) == 4 * 60
