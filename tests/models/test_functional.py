import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from unskew.models.functional import Batch, FunctionalModel
from unskew.models.layout import flatten


def cnn() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)
    )


def split(network: FunctionalModel) -> tuple[torch.Tensor, torch.Tensor]:
    vector = flatten(network.module, network.layout)
    return vector[: network.layout.trainable], vector[network.layout.trainable :]


@pytest.mark.parametrize("training", [True, False])
def test_the_function_equals_the_module(training):
    module, x = cnn().train(training), torch.randn(6, 1, 4, 4)
    network = FunctionalModel(module)
    weights, rest = split(network)
    assert torch.equal(network(weights, network.copy_buffers(rest), x), module(x))


def test_the_function_depends_on_its_arguments_not_on_the_module():
    network, x = FunctionalModel(nn.Linear(2, 2)), torch.randn(3, 2)
    weights = torch.tensor([1.0, 0, 0, 1, 10, 20])
    assert torch.allclose(network(weights, {}, x), x + torch.tensor([10.0, 20]))


def test_tied_weights_are_one_argument():
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    module[1].weight = module[0].weight
    network = FunctionalModel(module)
    doubled = network(torch.tensor([2.0, 0, 0, 2]), {}, torch.ones(1, 2))
    assert doubled.tolist() == [[4, 4]]


class Scaling(nn.Module):
    """A module with a method besides ``forward``."""

    def __init__(self) -> None:
        super().__init__()
        self.once = nn.Linear(1, 1, bias=False)
        self.twice = nn.Linear(1, 1, bias=False)

    def forward(self, x):
        return self.twice(self.once(x))

    def both(self, x, shift):
        return self.once(x), self.twice(self.once(x)) + shift


@pytest.mark.parametrize("tied", [False, True])
def test_a_method_can_be_called_with_given_weights(tied):
    module = Scaling()
    if tied:  # then ``functional_call`` is used, which is slower
        module.twice.weight = module.once.weight
    network = FunctionalModel(module)
    x, weights = torch.ones(2, 1), torch.full((network.layout.size,), 3.0)
    before = module.once.weight
    first, second = network.run(weights, {}, x, torch.tensor(1.0), call="both")
    assert (first.tolist(), second.tolist()) == ([[3], [3]], [[10], [10]])
    assert network.run(weights, {}, x).tolist() == [[9], [9]]
    assert module.once.weight is before


def test_training_changes_copied_buffers_which_can_be_written_back():
    network = FunctionalModel(cnn().train())
    weights, rest = split(network)
    before = rest.clone()
    buffers = network.copy_buffers(rest)
    network(weights, buffers, torch.randn(6, 1, 4, 4))
    assert torch.equal(rest, before)
    network.write_buffers(buffers, rest)
    assert rest[-1] == 1  # one batch
    assert not torch.equal(rest[:-1], before[:-1])
    assert network.module[1].num_batches_tracked == 0


def test_floating_buffers_are_views_and_counters_are_integers():
    network = FunctionalModel(cnn())
    rest = torch.zeros(5)
    buffers = network.buffers_of(rest)
    assert list(buffers) == ["1.running_mean", "1.running_var", "1.num_batches_tracked"]
    buffers["1.running_var"].fill_(3)
    assert rest.tolist() == [0, 0, 3, 3, 0]
    assert buffers["1.num_batches_tracked"].dtype == torch.int64


def test_buffers_of_many_clients_have_a_leading_dimension():
    network = FunctionalModel(cnn())
    rest = torch.arange(10.0).view(2, 5)
    buffers = network.buffers_of(rest)
    assert buffers["1.running_var"].tolist() == [[2, 3], [7, 8]]
    assert buffers["1.num_batches_tracked"].tolist() == [4, 9]


def test_losses_are_cross_entropy_of_each_sample():
    network = FunctionalModel(nn.Linear(4, 3))
    weights, x, y = torch.randn(15), torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    losses = network.losses(weights, {}, Batch(x, y, torch.ones(5)))
    expected = F.cross_entropy(network(weights, {}, x), y, reduction="none")
    torch.testing.assert_close(losses, expected)


def test_losses_are_finite_for_extreme_logits():
    network = FunctionalModel(nn.Linear(1, 2, bias=False))
    batch = Batch(torch.tensor([[1.0]]), torch.tensor([1]), torch.ones(1))
    assert network.losses(torch.tensor([1000.0, 0.0]), {}, batch).tolist() == [1000.0]


def test_bytes_become_numbers_from_zero_to_one():
    x = torch.from_numpy(np.array([[0, 51, 255]], np.uint8))
    inputs = FunctionalModel(nn.Linear(3, 2)).inputs(x)
    assert inputs.dtype == torch.float32
    torch.testing.assert_close(inputs, torch.tensor([[0.0, 0.2, 1.0]]))
    assert x.tolist() == [[0, 51, 255]]


def test_tokens_become_indices():
    network = FunctionalModel(nn.Embedding(5, 2))
    inputs = network.inputs(torch.tensor([[1, 4]], dtype=torch.int32))
    assert inputs.dtype == torch.int64
    assert network(torch.arange(10.0), {}, inputs).tolist() == [[[2, 3], [8, 9]]]


def test_floats_are_not_converted():
    x = torch.randn(2, 3)
    assert FunctionalModel(nn.Linear(3, 2)).inputs(x) is x


@pytest.mark.parametrize("channels", [1, 3])
def test_images_for_convolutions_are_converted_to_channels_last(channels):
    x = torch.randint(0, 255, (2, channels, 4, 4), dtype=torch.uint8)
    inputs = FunctionalModel(nn.Conv2d(channels, 2, 3)).inputs(x)
    assert inputs.stride()[1] == 1
    torch.testing.assert_close(inputs, x / 255)


def test_only_batchnorm_couples_samples():
    assert FunctionalModel(cnn()).couples_samples
    assert not FunctionalModel(nn.Sequential(nn.Linear(2, 4), nn.GroupNorm(2, 4))).couples_samples
