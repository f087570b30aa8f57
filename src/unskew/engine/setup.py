"""What a run is made of: data, method, network and settings, checked before anything trains."""

import hashlib
import platform
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from unskew import __version__
from unskew.data.federation import Federation
from unskew.engine.attacks import Attack, make_attack
from unskew.engine.backend import Backend, LocalBackend
from unskew.engine.custom_code import custom_code_hash
from unskew.engine.model_factory import check_scores, is_custom, make_module
from unskew.engine.runners import choose_device, example, resolve_runner
from unskew.engine.settings import Settings
from unskew.engine.threads import threads_for
from unskew.errors import UnskewError
from unskew.methods import name_of
from unskew.methods.common.base import Method, Tensors
from unskew.models.functional import FunctionalModel, Model
from unskew.models.goals import CLASSIFY
from unskew.models.layout import flatten
from unskew.runs.facts import density_facts, federation_facts

_ROUNDS_LOOKED_AT = 20
"""So many rounds are looked at for a quorum that their clients could never make."""


@dataclass(eq=False)
class TrainingSetup:
    """Everything a run is made of, checked: its data, method, network and settings."""

    federation: Federation
    method: Method
    network_name: str
    module: nn.Module
    settings: Settings
    device: torch.device
    attack: Attack | None
    bad: frozenset[int]
    held: Tensors
    """What the server holds from the start."""
    own_network: bool = False
    """Whether the network is the user's."""
    backend: Backend = field(default_factory=LocalBackend)

    @staticmethod
    def of(
        federation: Federation,
        method: Method,
        model: Model | None,
        settings: Settings,
    ) -> "TrainingSetup":
        """Check what was asked and lay everything out for it."""
        if federation.train.samples == 0:
            raise UnskewError("federation: nobody has a sample to train on")
        federation = method.transform_federation(federation)
        cohort = _fewest_in_a_round(method, settings, len(federation))
        if settings.quorum > cohort:
            raise UnskewError(
                f"quorum must be at most the clients of a round, {cohort} (got {settings.quorum})"
            )
        attack = None if settings.attack is None else make_attack(settings.attack)
        bad = frozenset[int]()
        if attack is not None:
            bad = attack.bad(len(federation), settings.seed)
            federation = attack.on_data(federation, settings.seed)
        federation, held = method.shared_samples(federation, settings.seed)
        held = {**held, **method.initial_state(len(federation), settings.seed)}
        name, module = make_module(federation, model, settings.seed)
        device = choose_device(settings)
        module = module.to(device)
        if is_custom(model) and federation.has_samples:
            check_scores(module, example(federation).to(device), federation.classes)
        if method.needs_train_accuracy and FunctionalModel(module).goal is not CLASSIFY:
            raise UnskewError(f"method: {name_of(method)} needs accuracies, and {name} has none")
        return TrainingSetup(
            federation, method, name, module, settings, device, attack, bad, held, is_custom(model)
        )

    def identity(self) -> dict[str, Any]:
        """Return what must agree for a run to be resumed."""
        network = FunctionalModel(self.module)
        start = flatten(self.module, network.layout)
        code = custom_code_hash(self.method, self.module if self.own_network else None)
        return {
            **({} if code is None else {"code": code}),
            "method": name_of(self.method),
            "network": self.network_name,
            "layout": network.layout.fingerprint,
            "start": hashlib.sha256(start.numpy().tobytes()).hexdigest()[:16],
            "data": self.federation.fingerprint,
            "arithmetic": self._arithmetic(),
            "settings": self.settings.training_identity(),
        }

    @cached_property
    def runner(self) -> str:
        """The name of the runner that suits the network, or that the settings name."""
        network = FunctionalModel(self.module)
        return resolve_runner(network, self.settings, self.device, example(self.federation))

    @property
    def keeps_to_one_core(self) -> bool:
        """Whether the run computes in one thread of one process, so that others fit beside it."""
        settings = self.settings
        size = FunctionalModel(self.module).layout.size
        alone = (
            self.runner != "pool" or settings.worker_count == 1
        ) and settings.engine == "unskew"
        numbers = settings.cohort_size(len(self.federation)) * size
        return self.device.type == "cpu" and alone and threads_for(numbers) == 1

    def _arithmetic(self) -> str:
        """Return in which order sums are taken."""
        vectorised = self.backend.is_local and self.runner == "vectorised"
        return "vectorised" if vectorised else "per client"

    def facts(self) -> dict[str, Any]:
        """Return what the run remembers of how it was set up."""
        densities = [stage for stage in self.method.stages() if stage.learns_density]
        budgets = [stage.privacy for stage in densities]
        bound = density_facts(self.federation, budgets) if densities else {}
        return {
            **bound,
            "configuration": self.settings.model_dump(),
            "federation": repr(self.federation),
            **({"own_network": True} if self.own_network else {}),
            "data": federation_facts(self.federation),
            "versions": {
                "unskew": __version__,
                "torch": torch.__version__,
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
        }


def _fewest_in_a_round(method: Method, settings: Settings, clients: int) -> int:
    """Return how many clients the smallest of the first rounds has; a method may name who may."""
    named = (
        method.candidates(clients, round_, settings.seed)
        for round_ in range(min(settings.rounds, _ROUNDS_LOOKED_AT))
    )
    sizes = [clients if among is None else len(among) for among in named]
    return min(settings.cohort_size(size) for size in sizes)
