"""FeSEM, CFL and FedGroup: special cases, one round by hand, and the groups they find."""

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unskew as us
from toys import opposed, vector_of
from unskew.aggregation.bipartition import bipartition, cosines
from unskew.aggregation.centers import distances_to_centers, further_seeds, k_means
from unskew.aggregation.uploads import Uploads
from unskew.composition.values import Beginning
from unskew.methods import make_method
from unskew.methods.cfl import CFL
from unskew.methods.fedgroup import FedGroup, decomposed_cosines
from unskew.methods.fesem import FeSEM
from unskew.models.layout import Layout

OPTIONS = {"model": "mlp:hidden=8", "rounds": 3, "batch_size": 8, "lr": 0.1}
SPLITS = "cfl:wait=1,eps1=5,eps2=0.01"


def clusters(run) -> list:
    return [t["diagnostics"]["cluster"] for t in run.client_tables if t["kind"] == "round"]


def initial_server(method, start):
    return method.begin(Beginning(torch.tensor(start), Layout.flat(len(start))))


@pytest.mark.parametrize("cohort", [4, 2])
@pytest.mark.parametrize("method", ["fesem:models=1", "cfl:eps2=1e9,wait=0", "fedgroup:models=1"])
def test_one_model_is_fedavg_bit_for_bit(federation, method, cohort):
    options = OPTIONS | {"cohort": cohort}
    one, plain = (us.train(federation, each, **options) for each in (method, "fedavg"))
    assert torch.equal(vector_of(one), vector_of(plain))
    assert one.cost == plain.cost


def test_one_center_with_equal_weights_is_the_mean(federation):
    one, mean = (us.train(federation, each, **OPTIONS) for each in ("fesem:models=1+mean", "mean"))
    assert torch.equal(vector_of(one), vector_of(mean))


@pytest.mark.parametrize("method", ["fesem:models=2", SPLITS, "fedgroup:models=2,mix=0.1"])
def test_vectorised_equals_the_loop(federation, method):
    runs = [us.train(federation, method, runner=r, **OPTIONS) for r in ("loop", "vectorised")]
    assert clusters(runs[0]) == clusters(runs[1])
    torch.testing.assert_close(vector_of(runs[0]), vector_of(runs[1]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "method", ["fesem:models=2", "cfl:wait=1,eps1=0.15,eps2=0.3", "fedgroup:models=2"]
)
def test_clients_that_contradict_each_other_are_separated(method, tmp_path):
    options = {"model": "logistic", "lr": 0.5, "evaluate_every": 10, "out": tmp_path / "run"}
    us.train(opposed(), method, rounds=4, **options)
    run = us.train(opposed(), method, rounds=10, resume=True, **options)
    last = clusters(run)[-1]
    assert last[0] == last[2] != last[1] == last[3]
    assert run.last("personal") > 0.9
    assert run.last("local") < 0.6
    straight = us.train(opposed(), method, **(options | {"rounds": 10, "out": None}))
    assert torch.equal(vector_of(run), vector_of(straight))


# FeSEM.


def test_fesem_by_hand():
    """Seeds: 7 is nearest the mean 5, and 0 is farthest from it."""
    method = make_method(FeSEM(models=2))
    uploads = Uploads.of(torch.tensor([[0.0], [2.0], [11.0], [7.0]]), samples=[1, 3, 1, 1])
    server, diagnostics = method.aggregate(initial_server(method, [0.0]), uploads)
    assert diagnostics["cluster"].tolist() == [1, 1, 0, 0]
    assert server.state["fesem/models"].flatten().tolist() == [9.0, 1.5]
    assert server.vector.item() == 4.0  # (4 * 1.5 + 2 * 9) / 6
    far = Uploads.of(torch.tensor([[8.0], [100.0]]), clients=[0, 1])
    moved, diagnostics = method.aggregate(server, far)
    assert diagnostics["cluster"].tolist() == [0, 0]  # both are nearest to the centre at 9
    assert moved.state["fesem/models"].flatten().tolist() == [54.0, 1.5]  # the other stays


def test_unused_centers_start_at_different_uploads():
    method = make_method(FeSEM(models=3))
    server = initial_server(method, [0.0])
    for client, place in enumerate((1.0, 1.0, 5.0, 9.0)):
        uploads = Uploads.of(torch.tensor([[place]]), clients=[client])
        server, _ = method.aggregate(server, uploads)
    assert server.state["fesem/cluster"].tolist() == [0, 0, 1, 2]
    assert server.state["fesem/models"].flatten().tolist() == [1.0, 5.0, 9.0]


@given(seed=st.integers(0, 1000), models=st.integers(1, 4), clients=st.integers(1, 7))
def test_a_round_never_raises_the_objective(seed, models, clients):
    noise = torch.Generator().manual_seed(seed)
    stack = torch.randn(clients, 3, generator=noise)
    samples = torch.randint(1, 9, (clients,), generator=noise).double()
    method = make_method(FeSEM(models=models))
    server, diagnostics = method.aggregate(
        initial_server(method, [0.0] * 3), Uploads.of(stack, samples=samples)
    )

    def objective(server, cluster):
        centers = server.state["fesem/models"][cluster]
        return float((samples * (stack - centers).double().square().sum(1)).sum())

    before = objective(server, diagnostics["cluster"])
    moved, again = method.aggregate(server, Uploads.of(stack, samples=samples))
    assert objective(moved, again["cluster"]) <= before + 1e-5


def test_seeds_are_rows_and_differ():
    rows = torch.tensor([[0.0], [0.0], [1.0], [5.0]])
    seeds = further_seeds(rows, rows[:0], 9)
    assert seeds.flatten().tolist() == [1.0, 5.0, 0.0]
    distances = distances_to_centers(rows, seeds)
    assert distances[0].tolist() == [1.0, 25.0, 0.0]


def test_k_means_finds_separated_groups():
    rows = torch.tensor([[0.0], [10.0], [0.5], [10.5], [20.0]]).double()
    groups = k_means(rows, 3).tolist()
    assert groups[0] == groups[2]
    assert groups[1] == groups[3]
    assert len(set(groups)) == 3


# CFL.


@given(seed=st.integers(0, 500), clients=st.integers(2, 6))
def test_the_bipartition_has_the_smallest_similarity_across(seed, clients):
    rows = torch.randn(clients, 3, generator=torch.Generator().manual_seed(seed)).double()
    similarity = cosines(rows)

    def across(part):
        rest = [k for k in range(clients) if k not in part]
        return float(similarity[list(part)][:, rest].max())

    parts = [p for size in range(1, clients) for p in combinations(range(clients), size)]
    marked = bipartition(similarity)
    assert 0 < int(marked.sum()) * 2 <= clients
    found = tuple(marked.nonzero().flatten().tolist())
    assert across(found) == pytest.approx(min(map(across, parts)), abs=1e-9)


@pytest.mark.parametrize(
    "updates", [torch.eye(3), torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 0, 0]]), torch.zeros(2, 3)]
)
def test_equally_dissimilar_updates_are_split_too(updates):
    marked = bipartition(cosines(updates.double()))
    assert 0 < int(marked.sum()) * 2 <= len(updates)


def split(part, stack, samples=None):
    method = make_method(part)
    server, diagnostics = method.aggregate(
        initial_server(method, [0.0, 0.0]), Uploads.of(stack, samples=samples)
    )
    return server.state["cfl/models"].tolist(), diagnostics["cluster"].tolist()


def test_cfl_splits_only_where_the_mean_update_is_small_and_clients_still_move():
    stack = torch.tensor([[3.0, 1.0], [-3.0, 0.0], [3.0, -1.0], [-3.0, 0.0]])
    assert split(CFL(wait=0, eps1=0.1, eps2=2), stack) == ([[3, 0], [-3, 0]], [0, 1, 0, 1])
    assert split(CFL(wait=1, eps1=0.1, eps2=2), stack)[1] == [0, 0, 0, 0]
    assert split(CFL(wait=0, eps1=0.1, eps2=4), stack)[1] == [0, 0, 0, 0]
    assert split(CFL(wait=0, eps1=0.1, eps2=2), stack, [9, 1, 9, 1])[1] == [0, 0, 0, 0]
    # The largest cosine across is -3 / sqrt(10): sqrt((1 + 0.949) / 2) = 0.987.
    assert split(CFL(wait=0, eps1=0.1, eps2=2, gamma=0.98), stack)[1] == [0, 1, 0, 1]
    assert split(CFL(wait=0, eps1=0.1, eps2=2, gamma=0.99), stack)[1] == [0, 0, 0, 0]


def test_an_absent_member_stays_with_the_larger_part():
    method = make_method(CFL(wait=1, eps1=0.5, eps2=0.5))
    server = initial_server(method, [0.0])
    server, _ = method.aggregate(server, Uploads.of(torch.zeros(4, 1)))
    uploads = Uploads.of(torch.tensor([[1.0], [-2.0], [1.0]]), clients=[0, 1, 2])
    server, _ = method.aggregate(server, uploads)
    assert server.state["cfl/cluster"].tolist() == [0, 1, 0, 0]
    assert server.state["cfl/models"].flatten().tolist() == [1.0, -2.0]


# FedGroup.


def test_decomposed_cosines_are_those_with_the_singular_vectors():
    updates = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)).double()
    unit = updates / updates.norm(dim=1, keepdim=True)
    directions = torch.linalg.svd(unit, full_matrices=False).Vh[:3]
    expected = (unit @ directions.T).abs().sort(1).values
    features = decomposed_cosines(updates, 3).abs().sort(1).values
    torch.testing.assert_close(features, expected)


@given(factors=st.lists(st.floats(1e-3, 1e3), min_size=6, max_size=6))
def test_scaling_an_update_changes_no_group(factors):
    updates = torch.randn(6, 9, generator=torch.Generator().manual_seed(1)).double()
    scaled = updates * torch.tensor(factors).double()[:, None]
    groups = [k_means(decomposed_cosines(each, 2), 2) for each in (updates, scaled)]
    assert torch.equal(groups[0], groups[1])


def test_a_new_client_is_grouped_before_it_is_averaged():
    method = make_method(FedGroup(models=2))
    server = initial_server(method, [1.0, 1.0])
    first = torch.tensor([[3.0, 1.0], [1.0, 3.0], [5.0, 1.0]])
    server, diagnostics = method.aggregate(server, Uploads.of(first))
    right, up = diagnostics["cluster"].tolist()[:2]
    assert diagnostics["cluster"].tolist() == [right, up, right]
    assert server.state["fedgroup/models"][right].tolist() == [4.0, 1.0]
    assert method.broadcast(server, 0)["model"].tolist() == [4.0, 1.0]
    assert method.broadcast(server, 7)["model"].tolist() == [1.0, 1.0]  # the start
    both = Uploads.of(torch.tensor([[9.0, 2.0], [1.5, 9.0]]), clients=[0, 7])
    server, diagnostics = method.aggregate(server, both)
    assert diagnostics["cluster"].tolist() == [right, up]
    assert diagnostics["weights"].tolist() == [1.0, 0.0]
    assert server.state["fedgroup/models"][[right, up]].tolist() == [[9.0, 2.0], [1.0, 3.0]]
    assert method.broadcast(server, 7)["model"].tolist() == [1.0, 3.0]


def test_groups_mix_by_the_formula():
    stack = torch.tensor([[4.0, 3.0], [0.0, -2.0]])

    def models_of(part):
        method = make_method(part)
        server, _ = method.aggregate(initial_server(method, [0.0, 0.0]), Uploads.of(stack))
        return server.state["fedgroup/models"]

    own, models = models_of(FedGroup(models=2)), models_of(FedGroup(models=2, mix=0.5))
    for g, other in ((0, 1), (1, 0)):
        share = 0.5 / own[other].norm()  # the groups' lengths are 5 and 2
        torch.testing.assert_close(models[g], (own[g] + share * own[other]) / (1 + share))
