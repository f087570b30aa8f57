"""Which runner suits a network, and on which device."""

import torch
from torch import nn

from unskew.engine.client import Workshop
from unskew.engine.cohort import Runner
from unskew.engine.loop import Loop
from unskew.engine.pool import Pool
from unskew.engine.settings import Settings
from unskew.engine.vectorised import Vectorised
from unskew.errors import UnskewError
from unskew.network import Network

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


def suits_vectorising(network: Network) -> bool:
    """Tell whether a network is small and made only of layers that batch well over clients."""
    leaves = [part for part in network.module.modules() if not list(part.children())]
    return network.layout.size <= _MOST_PARAMETERS and all(
        isinstance(leaf, _BATCHES_WELL) for leaf in leaves
    )


def resolve_runner(network: Network, settings: Settings, device: torch.device) -> str:
    """Return the runner's name: the one asked for, or the one that suits the network."""
    if settings.runner == "pool" and device.type != "cpu":
        raise UnskewError("runner: 'pool' works on the cpu; use 'vectorised' or 'loop' there")
    if settings.runner != "auto":
        return settings.runner
    if suits_vectorising(network):
        return "vectorised"
    return "pool" if device.type == "cpu" else "loop"


def make_runner(shop: Workshop, cohort: int) -> Runner:
    """Return the runner for a workshop; a pool of one worker is the plain loop."""
    name = resolve_runner(shop.network, shop.settings, shop.device)
    if name == "vectorised":
        return Vectorised(shop)
    workers = min(shop.settings.worker_count, cohort)
    if name == "pool" and workers > 1:
        return Pool(shop, workers, cohort)
    return Loop(shop)
