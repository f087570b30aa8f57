"""The choice of a runner and of a device."""

import os

import torch
from torch import Tensor, nn
from torch.func import vmap

from unskew.data.federation import Federation
from unskew.engine.client import ClientContext, Loop
from unskew.engine.cohort import Runner
from unskew.engine.placement import is_accelerator, to_device, to_tensor
from unskew.engine.process_pool import ProcessPool
from unskew.engine.settings import Settings
from unskew.engine.vectorised import Vectorised
from unskew.errors import UnskewError
from unskew.models.functional import FunctionalModel

_BATCHES_WELL = (
    nn.Linear,
    nn.Flatten,
    nn.Identity,
    nn.LayerNorm,
    nn.ReLU,
    nn.LeakyReLU,
    nn.ELU,
    nn.GELU,
    nn.SiLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.Softplus,
)
_MAX_PARAMETERS = 1_000_000
"""Above this, arithmetic takes most of a step's time, and vectorising gains nothing."""


def choose_device(settings: Settings) -> torch.device:
    """Return the requested device; raise if it is not available.

    A GPU has a number, as in the device of its tensors.
    """
    if settings.device == "cpu":
        return torch.device("cpu")
    # Asking for GPUs must not start CUDA: a process that has started it cannot be forked.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    name = settings.device
    if name == "auto":
        name = next((each for each, available in found.items() if available), "cpu")
    device = torch.device(name)
    if device.type == "cpu":
        return device
    if not found[device.type] or (device.index or 0) >= max(1, torch.cuda.device_count()):
        raise UnskewError(f"device: {settings.device!r} is not available here; use 'cpu' or 'auto'")
    if device.type == "cuda" and device.index is None:
        chosen = torch.cuda.current_device() if torch.cuda.is_initialized() else 0
        return torch.device("cuda", chosen)
    return device


def suits_vectorising(network: FunctionalModel, samples: Tensor, device: torch.device) -> bool:
    """Return whether a network gains from training a cohort as one matrix, and runs under vmap.

    On a CPU, small networks gain whose layers all batch well. On an accelerator all do, except
    with BatchNorm, which clients of unequal size would not allow. Whether a network runs under
    vmap is tried on samples, since custom code may branch or be random.
    """
    if is_accelerator(device):
        gains = not network.couples_samples
    else:
        leaves = [part for part in network.module.modules() if not list(part.children())]
        small = network.layout.size <= _MAX_PARAMETERS
        gains = small and all(isinstance(leaf, _BATCHES_WELL) for leaf in leaves)
    if not gains:
        return False
    network.module.train()
    rows = torch.zeros(2, network.layout.size, device=device)
    trainable = network.layout.trainable
    inputs = network.inputs(to_device(samples, device)).expand(2, *samples.shape)
    try:
        vmap(network)(rows[:, :trainable], network.copy_buffers(rows[:, trainable:]), inputs)
    except Exception:  # a custom module may raise anything, and processes may still run it
        return False
    return True


def example_inputs(federation: Federation) -> Tensor:
    """Return two samples to try a network on."""
    return to_tensor(federation.train.x[:2])


def resolve_runner(
    network: FunctionalModel, settings: Settings, device: torch.device, samples: Tensor
) -> str:
    """Return the runner's name: the one in the settings, or the one that suits the network."""
    if settings.runner == "processes" and is_accelerator(device):
        raise UnskewError("runner: 'processes' works on the cpu; use 'vectorised' or 'loop' there")
    if settings.runner != "auto":
        return settings.runner
    if suits_vectorising(network, samples, device):
        return "vectorised"
    return "loop" if is_accelerator(device) else "processes"


def make_runner(context: ClientContext, cohort: int) -> Runner:
    """Return the runner for a context; a single worker process is the sequential loop."""
    name = context.runner or resolve_runner(
        context.network, context.settings, context.device, example_inputs(context.federation)
    )
    if name == "vectorised":
        return Vectorised(context)
    workers = min(context.settings.worker_count, cohort)
    if name == "processes" and workers > 1:
        return ProcessPool(context, workers, cohort)
    return Loop(context)
