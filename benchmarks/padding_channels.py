"""How much faster padding channels make a step of LeNet-5.

    python -m benchmarks.padding_channels

Alternates between steps of the network, padded to 8 and to 16 channels, and of the same network
with plain convolutions, in one thread. Only the ratio of the medians is meaningful.
"""

import time
from collections.abc import Callable
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from benchmarks.tutorial_networks import without_padding_channels
from unskew.engine.memory import keep_freed_memory
from unskew.engine.tracing import Trace
from unskew.models import make
from unskew.models.functional import channels_last
from unskew.models.layers import ChannelPaddedConv2d

SHAPE, BATCH, TURNS, STEPS = (1, 28, 28), 32, 15, 40


def padded(lanes: int) -> nn.Module:
    """Return LeNet-5 with the channels of its first convolution padded to a multiple of lanes."""
    network: nn.Module = make("lenet5", SHAPE, 10)
    for layer in network.modules():
        if isinstance(layer, ChannelPaddedConv2d):
            layer.LANES = lanes
    return network


def traced(network: nn.Module, x: Tensor, y: Tensor) -> Callable[[], object]:
    """Return a training step as workers run it: traced, with the weights in one flat vector."""
    shapes = {name: value.shape for name, value in network.named_parameters()}
    weights = nn.utils.parameters_to_vector(network.parameters()).detach()

    def gradient(flat: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        leaf = flat.detach().requires_grad_()
        parts = torch.split(leaf, [shape.numel() for shape in shapes.values()])
        named = {
            name: part.view(shape)
            for (name, shape), part in zip(shapes.items(), parts, strict=True)
        }
        loss = F.cross_entropy(functional_call(network, named, (x,)), y)
        return torch.autograd.grad(loss, [leaf])

    recording = Trace(gradient, (weights, x, y))
    return lambda: recording(weights, x, y)


def milliseconds(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - started) / STEPS * 1e3


def main() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    x, y = channels_last(torch.rand(BATCH, *SHAPE)), torch.randint(10, (BATCH,))
    steps = {
        "8 channels, two of them padding": traced(padded(8), x, y),
        "16 channels, ten of them padding": traced(padded(16), x, y),
        "6 channels": traced(without_padding_channels(make("lenet5", SHAPE, 10)), x, y),
    }
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(TURNS):
        for name, step in steps.items():
            times[name].append(milliseconds(step))
    print("| first convolution | ms per traced step (median) | fastest | ratio |")
    print("|---|---:|---:|---:|")
    plain = median(times["6 channels"])
    for name, each in times.items():
        print(f"| {name} | {median(each):.2f} | {min(each):.2f} | {median(each) / plain:.2f} |")


if __name__ == "__main__":
    main()
