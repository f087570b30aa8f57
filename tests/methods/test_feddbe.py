"""FedDBE: its term by hand, the common mean, and the personal vector against its formula."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import unskew as us
from toys import federation_of, vector_of
from unskew.composition.values import Step
from unskew.methods import make_method
from unskew.methods.common.features import features_of
from unskew.methods.feddbe import FedDBE
from unskew.models import make
from unskew.models.functional import Batch, ForwardPass, FunctionalModel
from unskew.models.two_heads import TwoHeads

pytestmark = pytest.mark.usefixtures("hooks_called_once")

QUICK = {"model": "mlp:hidden=6", "rounds": 3, "batch_size": 8, "lr": 0.1}
WIDTH = 6


def test_the_term_by_hand():
    """Features 3 and 5 minus the shift 1 have the mean 3; the running mean of 0 and 3 is 0.75."""
    part = FedDBE(kappa=8.0, momentum=0.25)
    module = part.adapt(make("mlp:hidden=1", (2,), 2, seed=0), torch.zeros(2, 2))
    network = FunctionalModel(module)
    shift = next(entry for entry in network.layout if entry.name == "body.shift")
    weights = torch.zeros(network.layout.trainable)
    weights[shift.slice] = 1.0
    batch = Batch(torch.zeros(3, 2), torch.zeros(3), torch.tensor([0.5, 0.5, 0.0]))
    forward_pass = ForwardPass(torch.zeros(3, 2), torch.tensor([[3.0], [5.0], [9.0]]))
    step = Step(network, weights, {}, batch, forward_pass)
    refs = {"mean": torch.zeros(1), "common": torch.tensor([0.25]), "strength": torch.tensor(8.0)}
    assert part.next_refs(step, refs)["mean"].tolist() == [0.75]
    assert part.loss_term(step, refs).item() == pytest.approx(8 / 2 * 0.5**2)


def test_the_common_mean_is_that_of_the_first_round(federation):
    """It is weighted by samples, leaves out the shift, and does not change any more."""
    found, common = [], []

    class Watched(FedDBE):
        def finish(self, client, start, trained, state):
            finished = super().finish(client, start, trained, state)
            if client.round == 0:
                at = next(e for e in client.network.layout if e.name == "body.shift").slice
                found.append(features_of(client, trained.vector) - trained.vector[at])
                assert trained.vector[at].any()
            return finished

        def conclude(self, before, after, uploads, diagnostics):
            after, more = super().conclude(before, after, uploads, diagnostics)
            common.append(after.state["common"])
            return after, more

    us.train(federation, Watched(), **QUICK)
    torch.testing.assert_close(common[0], torch.cat(found).mean(0))
    assert torch.equal(common[0], common[2])


def test_the_shift_stays_on_its_client(federation):
    run = us.train(federation, "feddbe", **QUICK)
    shifts = [run.states[k]["kept"] for k in range(4)]
    assert all(len(each) == WIDTH and each.any() for each in shifts)
    assert not dict(run.model.named_parameters())["body.shift"].any()
    losses = [run.curve(level, "loss")[1][-1] for level in ("personal", "local")]
    assert losses[0] != losses[1]


def test_the_term_brings_means_together(federation):
    """A strong term: the clients' mean features are nearer to the common one."""
    spread = {}
    for kappa in (0.0, 20.0):
        seen = []

        class Watched(FedDBE):
            def finish(self, client, start, trained, state, seen=seen):
                if client.round == 5:
                    at = next(e for e in client.network.layout if e.name == "body.shift").slice
                    seen.append(features_of(client, trained.vector).mean(0) - trained.vector[at])
                return super().finish(client, start, trained, state)

        us.train(federation, Watched(kappa=kappa), **QUICK | {"rounds": 6, "epochs": 3})
        spread[kappa] = float(torch.stack(seen).var(0).sum())
    assert spread[20.0] < spread[0.0] / 2


def test_the_shift_follows_its_formula():
    """A linear classifier of x + s_k: W and b are averaged, s_k is not."""
    rng = np.random.default_rng(1)
    clients = [(rng.normal(size=(n, 4)), rng.integers(0, 3, n)) for n in (6, 9)]
    options = {"model": "logistic", "batch_size": 1000, "steps": 3, "lr": 0.2}
    start = us.train(federation_of(*clients), "fedavg", rounds=1, **options | {"lr": 1e-30})
    model, shifts = vector_of(start).double(), [torch.zeros(4).double(), torch.zeros(4).double()]
    for _ in range(3):
        rows = []
        for k, (x, y) in enumerate(clients):
            leaf = torch.cat([shifts[k], model]).requires_grad_()
            for _ in range(3):
                logits = (torch.tensor(x) + leaf[:4]) @ leaf[4:16].view(3, 4).T + leaf[16:]
                slope = torch.autograd.grad(F.cross_entropy(logits, torch.tensor(y)), leaf)[0]
                leaf = (leaf - 0.2 * slope).detach().requires_grad_()
            shifts[k] = leaf[:4].detach()
            rows.append(leaf[4:].detach())
        model = sum(rows) / 2
    run = us.train(federation_of(*clients), "feddbe:kappa=0+mean", rounds=3, **options)
    torch.testing.assert_close(vector_of(run)[4:].double(), model)
    for k in (0, 1):
        torch.testing.assert_close(run.states[k]["kept"].double(), shifts[k])


def test_fedrod_s_two_heads_share_the_shifted_body():
    example = torch.zeros(2, 2)
    two = make_method("fedrod").adapt(make("mlp:hidden=6", (2,), 3, seed=0), example)
    before = two.state_dict()
    shifted = FedDBE().adapt(two, example)
    assert isinstance(shifted, TwoHeads)
    after = shifted.state_dict()
    assert after["body.shift"].shape == (6,)
    assert torch.equal(after["head.weight"], before["head.weight"])
