"""Networks of a whole cohort run at once: vmap over stacked parameters equals the loop."""

import pytest
import torch
from torch.func import functional_call, grad_and_value, stack_module_state, vmap
from torch.nn.functional import cross_entropy

from unskew.models import make

CLIENTS, ROWS, CLASSES, TOKENS = 2, 4, 5, 20
STATELESS = [
    ("logistic", (1, 8, 8)),
    ("mlp:hidden=16-8", (1, 8, 8)),
    ("mlp:hidden=16,norm=group", (12,)),
    ("mlp:hidden=16,norm=layer", (12,)),
    ("lenet5", (1, 28, 28)),
    ("lenet5:norm=group", (3, 32, 32)),
    ("feddisk-cnn:norm=layer", (1, 28, 28)),
    ("bilstm:embedding=6,hidden=4", (7,)),
    ("bilstm:embedding=6,hidden=4,pooling=max", (7,)),
]
WITH_BATCH_NORM = [
    ("mlp:hidden=16,norm=batch", (12,)),
    ("lenet5:norm=batch", (1, 28, 28)),
    ("feddisk-cnn", (1, 28, 28)),
    *(
        pytest.param(name, (1, 8, 8), marks=pytest.mark.long)
        for name in ("resnet18", "densenet121", "mobilenetv2")
    ),
]


def cohort(spec, shape):
    """Return the clients' networks and batches, which are the same in every call."""
    generator = torch.Generator().manual_seed(0)
    text = spec.startswith("bilstm")
    nets = [
        make(spec, shape, CLASSES, seed=k, vocabulary=TOKENS if text else None)
        for k in range(CLIENTS)
    ]
    if text:
        x = torch.randint(0, TOKENS, (CLIENTS, ROWS, *shape), generator=generator)
    else:
        x = torch.randn(CLIENTS, ROWS, *shape, generator=generator)
    return nets, x, torch.randint(0, CLASSES, (CLIENTS, ROWS), generator=generator)


def vmapped(nets, x, y):
    """Train-mode loss, gradient and new buffers of all clients in one call."""

    def loss(parameters, buffers, features, labels):
        logits = functional_call(nets[0], (parameters, buffers), (features,))
        return cross_entropy(logits, labels), (logits, buffers)

    parameters, buffers = stack_module_state(nets)
    gradients, (_, (logits, buffers)) = vmap(grad_and_value(loss, has_aux=True))(
        parameters, buffers, x, y
    )
    return logits, gradients, buffers


@pytest.mark.parametrize(("spec", "shape"), STATELESS + WITH_BATCH_NORM)
def test_vmap_equals_the_loop_over_clients(spec, shape):
    # In double precision both must agree closely, even with an ill-conditioned BatchNorm.
    nets, x, y = cohort(spec, shape)
    nets = [net.double().train() for net in nets]
    x = x if spec.startswith("bilstm") else x.double()
    logits, gradients, buffers = vmapped(nets, x, y)
    for k, net in enumerate(nets):
        alone = net(x[k])
        cross_entropy(alone, y[k]).backward()
        torch.testing.assert_close(logits[k], alone)
        for name, tensor in net.named_parameters():
            torch.testing.assert_close(gradients[name][k], tensor.grad, msg=name)
        for name, tensor in net.named_buffers():
            torch.testing.assert_close(buffers[name][k], tensor, msg=name)


@pytest.mark.parametrize(("spec", "shape"), WITH_BATCH_NORM)
def test_batch_norm_statistics_are_updated_per_client(spec, shape):
    nets, x, y = cohort(spec, shape)
    before = {name: tensor.clone() for name, tensor in nets[0].named_buffers()}
    _, _, after = vmapped([net.train() for net in nets], x, y)
    counters = [name for name in after if name.endswith("num_batches_tracked")]
    means = [name for name in after if name.endswith("running_mean")]
    assert counters
    assert all(after[name].tolist() == [1] * CLIENTS for name in counters)
    assert all(not torch.equal(after[name][0], before[name]) for name in means)
    assert all(not torch.equal(after[name][0], after[name][1]) for name in means)


@pytest.mark.parametrize("spec", ["mlp", "lenet5", "feddisk-cnn"])
def test_one_batch_through_many_networks(spec):
    """Evaluation shares the samples and stacks only the networks."""
    nets, x, _ = cohort(spec, (1, 28, 28))
    nets = [net.eval() for net in nets]
    parameters, buffers = stack_module_state(nets)
    with torch.no_grad():
        logits = vmap(
            lambda p, b, features: functional_call(nets[0], (p, b), (features,)),
            in_dims=(0, 0, None),
        )(parameters, buffers, x[0])
        torch.testing.assert_close(logits, torch.stack([net(x[0]) for net in nets]))
