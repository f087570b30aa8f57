"""One stage of a run: its network, settings and number of rounds."""

import torch
from torch import nn

from unskew.composition.values import Stage
from unskew.data.federation import Federation
from unskew.engine.client import ClientContext
from unskew.engine.precision import compute_dtype
from unskew.engine.runners import example_inputs
from unskew.engine.settings import Settings
from unskew.models.functional import FunctionalModel
from unskew.models.goals import CLASSIFY
from unskew.models.regression import with_goal
from unskew.utils.rng import stream, torch_seeded


def client_context(
    stage: Stage,
    module: nn.Module,
    federation: Federation,
    settings: Settings,
    device: torch.device,
    *,
    last: bool,
) -> ClientContext:
    """Return what the clients of a stage need to train, given the run's network and settings.

    It depends on its arguments alone, so a server and its remote clients build the same one.
    """
    with torch_seeded(settings.seed, f"network of {stage.name}"):
        if stage.network is not None:
            module = stage.network(module, federation.shape, federation.classes)
        network = FunctionalModel(module)
        inputs = network.inputs(example_inputs(federation))
        module = stage.method.adapt(module.to("cpu"), inputs).to(device)
        if network.goal is not CLASSIFY and not hasattr(module, "goal"):
            module = with_goal(module, network.goal)  # a method may have built a new module
    if not last:
        settings = settings_of(stage, settings)
    network = FunctionalModel(module, compute_dtype(settings))
    return ClientContext(stage.method, network, federation, settings, device)


def rounds_of(stage: Stage, settings: Settings) -> int:
    """Return the maximum number of rounds of a stage."""
    return stage.rounds or settings.rounds


def settings_of(stage: Stage, settings: Settings) -> Settings:
    """Return the settings of a preparatory stage, with a seed derived from the stage's name.

    It is computed in float32, since what it learns are densities and encodings, and its gradients
    are not clipped: the clipping norm suits the task's.
    """
    seed = int(stream(settings.seed, f"stage {stage.name}")) >> 1
    return settings.changed({"seed": seed, "precision": "float32", "clip": None, **stage.settings})
