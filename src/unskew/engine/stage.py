"""One stage of a run: its network, its settings, its rounds."""

from typing import TYPE_CHECKING

import torch
from torch import nn

from unskew.data.federation import Federation
from unskew.engine.client import ClientContext
from unskew.engine.runners import example
from unskew.engine.settings import Settings
from unskew.methods.common.base import Stage
from unskew.models.functional import FunctionalModel
from unskew.utils.rng import stream, torch_seeded

if TYPE_CHECKING:
    pass


def client_context(
    stage: Stage,
    module: nn.Module,
    federation: Federation,
    settings: Settings,
    device: torch.device,
    *,
    last: bool,
) -> ClientContext:
    """Return what trains the clients of a stage, given the run's network and settings.

    The server of a federation and its clients, wherever they are, come to the same by it.
    """
    with torch_seeded(settings.seed, f"network of {stage.name}"):
        if stage.network is not None:
            module = stage.network(module, federation.shape, federation.classes)
        inputs = FunctionalModel(module).inputs(example(federation))
        module = stage.method.adapt(module.to("cpu"), inputs).to(device)
    own = settings if last else settings_of(stage, settings)
    return ClientContext(stage.method, FunctionalModel(module), federation, own, device)


def rounds_of(stage: Stage, settings: Settings) -> int:
    """Return how many rounds a stage has at most."""
    return stage.rounds or settings.rounds


def settings_of(stage: Stage, settings: Settings) -> Settings:
    """Return the settings of a preparatory stage, whose random numbers are its own."""
    seed = int(stream(settings.seed, f"stage {stage.name}")) >> 1
    return settings.changed({"seed": seed, **stage.settings})
