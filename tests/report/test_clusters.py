"""Every method that clusters clients reports the clusters, and the report draws them."""

import numpy as np
import pytest

import unskew as us
from reports import FEDERATION, made_run
from toys import opposed
from unskew.report.charts.clusters import cluster_charts
from unskew.runs.runs import Runs

OPTIONS = {"model": "mlp:hidden=8", "rounds": 4, "batch_size": 8, "lr": 0.1}


def cluster_map(run) -> np.ndarray:
    """Clients x rounds, NaN where a cell is empty."""
    (chart,) = cluster_charts(Runs([run]))
    (map_,) = chart.data["maps"]
    assert map_["method"] == run.method
    return np.array(map_["values"], dtype=float)


@pytest.mark.parametrize(
    "method",
    ["ifca:models=2", "fesem:models=2", "fedgroup:models=2", "cfl:wait=1,eps1=5,eps2=0.01"],
)
def test_methods_with_several_models_separate_opposed_clients(method):
    last = cluster_map(us.train(opposed(), method, **OPTIONS))[:, -1]
    assert set(last[[0, 2]]).isdisjoint(
        last[[1, 3]]
    )  # CFL continues to split, so 0 and 2 may be separated too


def test_the_groups_of_fedcluster_alternate():
    run = us.train(FEDERATION, "fedcluster:groups=3,order=fixed", **OPTIONS | {"rounds": 6})
    shown = cluster_map(run)
    for k, row in enumerate(shown):
        assert len(set(row[~np.isnan(row)])) == 1, k
        assert np.flatnonzero(~np.isnan(row)).tolist() == [int(np.nanmin(row)) + i for i in (0, 3)]


def test_models_are_reported_instead_of_the_groups_of_a_composed_method():
    run = us.train(opposed(), "ifca:models=2+fedcluster:groups=1", **OPTIONS)
    assert set(cluster_map(run)[:, -1]) == {0, 1}


@pytest.mark.parametrize("method", ["fedfusion:components=2,steps=2", "fedfusion:steps=2+ida"])
def test_fedfusion_reports_the_main_component_of_each_client(method):
    run = us.train(FEDERATION, method, **OPTIONS | {"model": "mlp:hidden=8,norm=batch"})
    assert not np.isnan(cluster_map(run)).any()


def test_fedsa_reports_clusters_of_the_whole_model():
    run = us.train(FEDERATION, "fedsa:scope=model,macro=2", **OPTIONS)
    assert set(np.unique(cluster_map(run)[~np.isnan(cluster_map(run))])) <= {0, 1}
    assert cluster_charts(Runs([us.train(FEDERATION, "fedsa", **OPTIONS)])) == []


def test_clients_in_no_cluster_have_empty_cells_and_long_runs_are_thinned_out():
    run = made_run("fedsa")
    for round_ in range(1, 1001):
        diagnostics = {"cluster": [0, 1, -1, 1]}
        run.client_tables.append(
            {"kind": "round", "stage": "task", "round": round_, "client": [0, 1, 2, 3]}
            | {"weight": [None] * 4, "diagnostics": diagnostics}
        )
    shown = cluster_map(run)
    assert shown.shape == (4, 200)
    assert np.isnan(shown[2]).all()
    assert np.unique(shown[3]).tolist() == [1]
    assert len(cluster_charts(Runs([run]))[0].table.rows) == 3000
