"""The precision of training: the type in which the layers of a network compute."""

import torch
from torch import Tensor

from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.models.functional import CONVOLUTIONS, FunctionalModel

_WIDE = 16
"""Input channels from which a convolution gains from shorter numbers (benchmarks/rounds.py)."""
_LARGE = 1_000_000
"""Parameters from which a network without such a convolution does."""


def compute_dtype(settings: Settings) -> torch.dtype | None:
    """Return the type of a network's layers in training, for a resolved precision."""
    return torch.bfloat16 if settings.precision == "bf16" else None


def resolve_precision(
    network: FunctionalModel, settings: Settings, device: torch.device, samples: Tensor
) -> str:
    """Return ``float32`` or ``bf16``: the requested one or, for ``auto``, the faster one.

    Small networks are as fast or faster in float32: converting their numbers takes as long as
    shorter ones save. A network that cannot be computed in bf16 is found by trying it.
    """
    if settings.precision == "float32":
        return "float32"
    if settings.precision == "auto":
        gains = _gains(network) and has_bf16(device)
        suits = gains and _problem(network, device, samples) is None
        return "bf16" if suits else "float32"
    problem = _problem(network, device, samples)
    if problem is not None:
        raise UnskewError(f"precision: bf16 does not suit this network ({problem}); use float32")
    return "bf16"


def _gains(network: FunctionalModel) -> bool:
    convolutions = [part for part in network.module.modules() if isinstance(part, CONVOLUTIONS)]
    wide = any(part.in_channels >= _WIDE for part in convolutions)
    return wide or network.layout.size >= _LARGE


def has_bf16(device: torch.device) -> bool:
    """Return whether a device multiplies bf16 numbers in hardware."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return False


def _problem(network: FunctionalModel, device: torch.device, samples: Tensor) -> str | None:
    """Return why a network cannot be trained in bf16, or None if it can."""
    if network.goal.predicts == "neither":
        return "it learns a density, whose loss needs float32"
    trial = FunctionalModel(network.module, torch.bfloat16)
    trainable = network.layout.trainable
    vector = torch.zeros(network.layout.size, device=device)
    trial.module.train()
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            inputs = trial.inputs(samples.to(device))
            trial(vector[:trainable], trial.copy_buffers(vector[trainable:]), inputs)
    except RuntimeError as error:
        return str(error).partition("\n")[0].partition(". ")[0]
    return None
