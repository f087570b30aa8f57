"""Which runner suits a network, and on which device."""

import torch
from torch import Tensor, nn
from torch.func import vmap

from unskew.data.federation import Federation
from unskew.engine.client import ClientContext, to_tensor
from unskew.engine.cohort import Runner
from unskew.engine.loop import Loop
from unskew.engine.pool import ProcessPool
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
_MOST_PARAMETERS = 1_000_000
"""Above this, a step's time goes into the arithmetic itself, and vectorising gains nothing."""


def choose_device(settings: Settings) -> torch.device:
    """Return the device asked for, or complain that it is not there."""
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if settings.device == "auto":
        return torch.device(next(name for name in ("cuda", "mps", "cpu") if there[name]))
    if not there[settings.device]:
        raise UnskewError(f"device: {settings.device!r} is not available here; use 'cpu' or 'auto'")
    return torch.device(settings.device)


def suits_vectorising(network: FunctionalModel, samples: Tensor, device: torch.device) -> bool:
    """Tell whether a network is small, made only of layers that batch well, and runs under vmap.

    The last is tried on a few samples: a module's own code may draw random numbers, or branch.
    """
    leaves = [part for part in network.module.modules() if not list(part.children())]
    small = network.layout.size <= _MOST_PARAMETERS
    if not small or not all(isinstance(leaf, _BATCHES_WELL) for leaf in leaves):
        return False
    network.module.train()
    rows = torch.zeros(2, network.layout.size, device=device)
    trainable = network.layout.trainable
    inputs = network.inputs(samples.to(device)).expand(2, *samples.shape)
    try:
        vmap(network)(rows[:, :trainable], network.own_buffers(rows[:, trainable:]), inputs)
    except Exception:  # whatever a user's module raises: the pool may still run it
        return False
    return True


def example(federation: Federation) -> Tensor:
    """Return a few samples to try a network on."""
    return to_tensor(federation.train.x[:2])


def resolve_runner(
    network: FunctionalModel, settings: Settings, device: torch.device, samples: Tensor
) -> str:
    """Return the runner's name: the one asked for, or the one that suits the network."""
    if settings.runner == "pool" and device.type != "cpu":
        raise UnskewError("runner: 'pool' works on the cpu; use 'vectorised' or 'loop' there")
    if settings.runner != "auto":
        return settings.runner
    if suits_vectorising(network, samples, device):
        return "vectorised"
    return "pool" if device.type == "cpu" else "loop"


def make_runner(context: ClientContext, cohort: int) -> Runner:
    """Return the runner for a workshop; a pool of one worker is the plain loop."""
    name = resolve_runner(
        context.network, context.settings, context.device, example(context.federation)
    )
    if name == "vectorised":
        return Vectorised(context)
    workers = min(context.settings.worker_count, cohort)
    if name == "pool" and workers > 1:
        return ProcessPool(context, workers, cohort)
    return Loop(context)
