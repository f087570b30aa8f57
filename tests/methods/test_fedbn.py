"""FedBN: norm layers, found by type, stay on their clients."""

import pytest
import torch
from torch import nn

import unskew as us
from toys import federation_of, small_federation, vector_of
from unskew.composition.parts import ClientSide
from unskew.composition.values import Client
from unskew.methods import make_method
from unskew.methods.fedbn import FedBN
from unskew.models.functional import FunctionalModel
from unskew.models.layout import Layout, flatten

pytestmark = pytest.mark.usefixtures("hooks_called_once")

OPTIONS = {"rounds": 3, "batch_size": 8, "lr": 0.1, "runner": "loop"}


class Oddly(nn.Module):
    """BatchNorm under unusual names, one of them inside the head, and other norms."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 4)
        self.shortcut = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        self.bn_but_no_norm = nn.Linear(4, 4)
        self.layer = nn.LayerNorm(4)
        self.head = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))

    def forward(self, x):
        x = self.first(x)
        return self.head(self.layer(self.bn_but_no_norm(x + self.shortcut(x))))


with torch.random.fork_rng():
    torch.manual_seed(0)
    ODDLY = Oddly()


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
@pytest.mark.parametrize("model", ["mlp:hidden=8", "mlp:hidden=8,norm=layer"])
def test_without_batchnorm_it_is_fedavg_bit_for_bit(federation, runner, model):
    options = OPTIONS | {"runner": runner, "model": model}
    plain, fedbn = (us.train(federation, name, **options) for name in ("fedavg", "fedbn"))
    assert torch.equal(vector_of(plain), vector_of(fedbn))
    assert plain.cost == fedbn.cost
    assert fedbn.last("personal") == plain.last("local")


def names(method, layout):
    stays = ~method.sent_mask(layout)
    return {entry.name for entry in layout if bool(stays[entry.slice].any())}


def test_layers_are_chosen_by_type_not_by_name():
    layout = Layout.of(ODDLY)
    tensors = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    batch = {f"{layer}.{tensor}" for layer in ("shortcut.1", "head.0") for tensor in tensors}
    assert names(make_method("fedbn"), layout) == batch
    assert names(make_method(FedBN(norms="all")), layout) == batch | {"layer.weight", "layer.bias"}


def test_the_proximal_center_of_own_norms_is_their_last_values():
    """The server's norm layers are not used: on a real federation they are not even sent."""
    network = FunctionalModel(with_norm := nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2)))
    layout, method = Layout.of(with_norm), make_method("fedprox+fedbn")
    own = torch.full((int(method.kept(layout).sum()),), 7.0)
    client = Client(0, torch.ones(2, 1), torch.zeros(2, dtype=torch.int64), network, 2)
    received = torch.zeros(layout.size)
    for part in (method, *(each.method for each in make_method("ditto+fedbn").extra_trainings())):
        start = part.prepare(client, {"model": received}, {"kept": own})
        center = start.refs["fedprox/center"]
        assert center.tolist() == [0.0] * 4 + [7.0] * 4


LOG: list = []


class Watched(FedBN, ClientSide):
    """Records the start and the end of every client's training."""

    def finish(self, client, start, trained, state):
        LOG.append((client.id, start.vector.clone(), trained.vector.clone()))
        return super().finish(client, start, trained, state)


def watched(federation, rounds=3, **options):
    LOG.clear()
    run = us.train(federation, Watched(**options), model=ODDLY, **OPTIONS | {"rounds": rounds})
    return run, {(i // len(federation), k): (a, b) for i, (k, a, b) in enumerate(LOG)}


@pytest.mark.parametrize("fallback", ["average", "initial"])
def test_a_client_s_norm_layers_resume_from_its_last_round(federation, fallback):
    _, log = watched(federation, fallback=fallback)
    stays = ~make_method("fedbn").sent_mask(Layout.of(ODDLY))
    for k in range(4):
        for round_ in (1, 2):
            start, before = log[round_, k][0], log[round_ - 1, k][1]
            assert torch.equal(start[stays], before[stays])
            assert torch.equal(start[~stays], log[round_, 0][0][~stays])


def test_a_client_s_norm_layers_depend_on_that_client_alone(federation):
    """With everything else frozen, the data of other clients has no effect."""

    class NormsAlone(FedBN):
        def freezes(self, layout):
            return layout.mask_where(lambda entry: not entry.batch_norm)

    def final(clients):
        run = us.train(federation_of(*clients), NormsAlone(), model=ODDLY, **OPTIONS)
        return {client: state["kept"] for client, state in run.states.items()}

    mine, other, another = (federation.train.client(k) for k in range(3))
    one, two = final([mine, other]), final([mine, another])
    torch.testing.assert_close(one[0], two[0])  # a mean of equal numbers may round
    assert not torch.allclose(one[1], two[1], atol=1e-2)


def test_the_fallback_is_the_average_of_the_clients_layers(federation):
    run, log = watched(federation, rounds=1)
    layout = Layout.of(ODDLY)
    floats = layout.mask_where(lambda entry: entry.batch_norm and entry.dtype == torch.float32)
    ends = torch.stack([log[0, k][1][floats] for k in range(4)]).double()
    weights = torch.from_numpy(federation.train.sizes / federation.train.sizes.sum())
    expected = (weights[:, None] * ends).sum(0).float()
    torch.testing.assert_close(vector_of(run)[floats], expected)
    literal, _ = watched(federation, rounds=1, fallback="initial")
    initial = flatten(ODDLY, layout)
    stays = ~make_method("fedbn").sent_mask(layout)
    assert torch.equal(vector_of(literal)[stays], initial[stays])


def test_traffic_by_hand(federation):
    """Each BatchNorm holds 4 + 4 + 4 + 4 numbers and a counter of eight bytes."""
    size = Layout.of(ODDLY).size
    norms = 2 * (4 * 4 + 1)
    options = OPTIONS | {"model": ODDLY}
    average = us.train(federation, "fedbn", **options).cost
    assert average.parameters_up == 3 * 4 * size
    assert average.parameters_down == 4 * size + 2 * 4 * (size - norms)
    literal = us.train(federation, "fedbn:fallback=initial", **options).cost
    assert literal.parameters_up == literal.parameters_down == 3 * 4 * (size - norms)
    assert literal.bytes_up == 3 * 4 * 4 * (size - norms)


def test_a_new_client_starts_with_the_average_and_is_evaluated_with_it():
    """One client per round: the others are evaluated with the server's layers."""
    run = us.train(small_federation(), "fedbn", model=ODDLY, **OPTIONS | {"rounds": 1, "cohort": 1})
    (trained,) = run.client_tables[0]["client"]
    local, personal = (
        next(t for t in run.client_tables if t["kind"] == level) for level in ("local", "personal")
    )
    for client, a, b in zip(local["client"], local["loss"], personal["loss"], strict=True):
        assert client == trained or a == pytest.approx(b, rel=1e-6)


def test_it_composes_with_a_proximal_term(federation):
    options = OPTIONS | {"model": ODDLY}
    alone = us.train(federation, "fedbn", **options)
    zero = us.train(federation, "fedprox:mu=0+fedbn", **options)
    assert torch.equal(vector_of(alone), vector_of(zero))
    assert alone.cost == zero.cost
