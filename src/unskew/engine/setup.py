"""The setup of a run: data, method, network and settings, checked before training starts."""

import copy
import platform
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from unskew import __version__
from unskew.composition.method import Method
from unskew.composition.values import Tensors
from unskew.data.federation import Federation
from unskew.data.quality.targets import ONE_VALUE
from unskew.engine.attacks import Attack, make_attack
from unskew.engine.backend import Backend, LocalBackend
from unskew.engine.custom_code import custom_code
from unskew.engine.initial_network import InitialNetwork, NetworkCache, hash_of_weights
from unskew.engine.metrics import NO_METRICS, MetricPlan, plan_metrics, task_of
from unskew.engine.model_factory import is_custom
from unskew.engine.precision import resolve_precision
from unskew.engine.pure_hooks import checking
from unskew.engine.runners import choose_device, example_inputs, resolve_runner
from unskew.engine.settings import Settings, metric_name
from unskew.engine.stage import client_context, rounds_of, settings_of
from unskew.errors import UnskewError
from unskew.models.functional import FunctionalModel, Model
from unskew.models.goals import CLASSIFY
from unskew.runs.cpu import CPUS, cpu_kind
from unskew.runs.metadata import density_metadata, federation_metadata
from unskew.utils.threads import threads_for

_ROUNDS_CHECKED = 20
"""How many of the first rounds are checked for a quorum that their clients can never reach."""


@dataclass(eq=False)
class TrainingSetup:
    """Everything a run needs, checked: its data, method, network and settings."""

    federation: Federation
    method: Method
    network_name: str
    module: nn.Module
    settings: Settings
    device: torch.device
    attack: Attack | None
    attackers: frozenset[int]
    initial_state: Tensors
    """The tensors that the server holds before the first round."""
    custom_network: bool = False
    """Whether the network is user-defined."""
    metrics: MetricPlan = NO_METRICS
    """What is computed from predictions, and what the run is judged by."""
    backend: Backend = field(default_factory=LocalBackend)
    initial_network: InitialNetwork | None = None
    """The network that ``module`` is an unchanged copy of, if runs share it."""

    @staticmethod
    def of(
        federation: Federation,
        method: Method,
        model: Model | None,
        settings: Settings,
        networks: NetworkCache | None = None,
    ) -> "TrainingSetup":
        """Check the requested run and return its setup.

        With ``networks`` the network is taken from that cache.
        """
        if federation.train.samples == 0:
            raise UnskewError("federation: no client has a sample to train on")
        checked = checking(method)
        federation = checked.transform_federation(federation)
        cohort = smallest_cohort(method, settings, len(federation))
        if settings.quorum > cohort:
            raise UnskewError(
                f"quorum must be at most the clients of a round, {cohort} (got {settings.quorum})"
            )
        attack = None if settings.attack is None else make_attack(settings.attack)
        attackers = frozenset[int]()
        if attack is not None:
            attackers = attack.attackers(len(federation), settings.seed)
            federation = attack.on_data(federation, settings.seed)
        federation, initial_state = checked.shared_samples(federation, settings.seed)
        device = choose_device(settings)
        settings = settings.model_copy(update={"device": str(device)})
        initial = (InitialNetwork if networks is None else networks.of)(
            federation, model, settings.seed, device, settings.loss
        )
        setup = TrainingSetup(
            federation=federation,
            method=method,
            network_name=initial.name,
            module=initial.module if networks is None else initial.copy(),
            settings=settings,
            device=device,
            attack=attack,
            attackers=attackers,
            initial_state=initial_state,
            custom_network=is_custom(model),
            initial_network=None if networks is None else initial,
        )
        if federation.is_regression and method.parts_for_classes:
            needing = method.parts_for_classes[0].name
            raise UnskewError(
                f"method: {needing} needs classes, and the target is a quantity; use another "
                "method, or set task if the target has classes"
            )
        if method.needs_train_accuracy and setup.network.goal is not CLASSIFY:
            raise UnskewError(
                f"method: {method.spec} needs accuracies, and {initial.name} has none"
            )
        setup._check_target()
        if setup.network.layout.is_frozen:
            raise UnskewError(
                f"model: every parameter of {initial.name} is frozen (requires_grad_(False)), so "
                "nothing can be trained"
            )
        setup._set_precision()
        setup._plan_metrics()
        return setup

    def _check_target(self) -> None:
        """Raise if the network cannot learn the target."""
        predicts, name = self.network.goal.predicts, self.network_name
        if predicts == "values" and not self.federation.is_regression:
            raise UnskewError(f"model: {name} predicts numbers, and the target has classes")
        if predicts == "classes" and self.federation.is_regression:
            raise UnskewError(f"model: {name} predicts classes, and the target is a quantity")
        if predicts != "neither" and self.federation.has_one_target:
            raise UnskewError(str(ONE_VALUE))

    def _set_precision(self) -> None:
        """Set the precision that the network is trained in."""
        if self.settings.precision != "float32":
            samples = example_inputs(self.federation)
            precision = resolve_precision(self.network, self.settings, self.device, samples)
            self.settings = self.settings.model_copy(update={"precision": precision})

    def _plan_metrics(self) -> None:
        """Set the metrics, which the settings then name in one way."""
        settings, federation = self.settings, self.federation
        self.metrics = plan_metrics(
            settings.metrics,
            settings.metric,
            task_of(self.network.goal, federation.classes),
            federation.classes,
            self.network_name,
        )
        names = {"metrics": self.metrics.specs, "metric": metric_name(settings.metric)}
        self.settings = settings.model_copy(update=names)

    @cached_property
    def network(self) -> FunctionalModel:
        """The run's network as a function, before methods adapt it."""
        return FunctionalModel(self.module)

    def identity(self) -> dict[str, Any]:
        """Return what must be the same for a run to be resumed."""
        layout = self.network.layout
        shared = self.initial_network
        functions = [each.compute for each in self.metrics.computed]
        module = self.module if self.custom_network else None
        code = custom_code(self.method, module, functions)
        return {
            **({"code": code} if code else {}),
            "method": self.method.spec,
            "network": self.network_name,
            "layout": layout.fingerprint,
            "start": shared.start_hash if shared else hash_of_weights(self.module, layout),
            "data": self.federation.fingerprint,
            "arithmetic": self._arithmetic(),
            "settings": self.settings.training_identity(),
        }

    @cached_property
    def runner(self) -> str:
        """The name of the runner: the one in the settings, or the one that suits the network."""
        samples = example_inputs(self.federation)
        if self.initial_network is not None:
            return self.initial_network.runner(self.settings, samples)
        return resolve_runner(self.network, self.settings, self.device, samples)

    @property
    def uses_one_core(self) -> bool:
        """Whether the run computes in one thread of one process, so that runs can be parallel."""
        settings = self.settings
        one_process = (
            self.runner != "processes" or settings.worker_count == 1
        ) and settings.engine == "unskew"
        numbers = settings.cohort_size(len(self.federation)) * self.network.layout.size
        return self.device.type == "cpu" and one_process and threads_for(numbers) == 1

    def _arithmetic(self) -> str:
        """Name the order in which sums are taken, which decides the bits of a result."""
        vectorised = self.backend.is_local and self.runner == "vectorised"
        return "vectorised" if vectorised else "per client"

    def _stage_rounds(self) -> list[list[str | int]]:
        """Return the name and the maximum number of rounds of each stage."""
        *before, last = self.method.stages()
        rounds = [rounds_of(each, settings_of(each, self.settings)) for each in before]
        rounds.append(rounds_of(last, self.settings))
        return [[each.name, n] for each, n in zip((*before, last), rounds, strict=True)]

    def _models(self) -> dict[str, bool]:
        """Return which models the task has to judge: a trained global one, personal ones."""
        stage = self.method.stages()[-1]
        if not stage.method.may_personalize:
            return {"global": True, "personal": False}
        module, cpu = copy.deepcopy(self.module), torch.device("cpu")
        context = client_context(stage, module, self.federation, self.settings, cpu, last=True)
        layout = context.network.layout
        return {
            "global": stage.method.has_global_model(layout),
            "personal": stage.method.has_personal_models(layout),
        }

    def _no_effect(self) -> dict[str, str]:
        """Return why the method does the same as without one of its parts, if that is known."""
        affected = any(part.about.only_with_norms for part in self.method.parts)
        if affected and not any(entry.batch_norm for entry in self.network.layout.entries):
            return {"no_effect": "this network has no BatchNorm"}
        return {}

    def _target_metadata(self) -> dict[str, Any]:
        if not self.federation.is_regression:
            return {}
        center, scale = self.federation.target_center_and_scale
        return {"target": {"center": center, "scale": scale}}

    def metadata(self) -> dict[str, Any]:
        """Return the metadata that the run records about its setup."""
        densities = [stage for stage in self.method.stages() if stage.learns_density]
        budgets = [stage.privacy for stage in densities]
        bound = density_metadata(self.federation, budgets) if densities else {}
        return {
            **bound,
            **self.metrics.to_dict(),
            **self._target_metadata(),
            "configuration": self.settings.model_dump(mode="json"),
            "stages": self._stage_rounds(),
            "federation": repr(self.federation),
            **({"custom_network": True} if self.custom_network else {}),
            **self._no_effect(),
            "models": self._models(),
            "data": federation_metadata(self.federation),
            **input_metadata(self.federation),
            CPUS: [cpu_kind()],
            "versions": {
                "unskew": __version__,
                "torch": torch.__version__,
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
        }


def input_metadata(federation: Federation) -> dict[str, Any]:
    """Return what a predictor must know: the samples' format, and how raw rows are prepared."""
    preprocessing, words = federation.preprocessing, federation.vocabulary
    metadata: dict[str, Any] = {
        "inputs": {
            "shape": list(federation.shape),
            "dtype": federation.train.x.dtype.name,
            "words": None if words is None else len(words),
            "classes": federation.classes,
        }
    }
    if preprocessing is not None:
        metadata["preprocessing"] = preprocessing.to_json()
    return metadata


def smallest_cohort(method: Method, settings: Settings, clients: int) -> int:
    """Return the size of the smallest cohort of the first rounds.

    It differs from round to round where the method restricts who may take part.
    """
    candidates = (
        method.candidates(clients, round_, settings.seed)
        for round_ in range(min(settings.rounds, _ROUNDS_CHECKED))
    )
    sizes = [clients if among is None else len(among) for among in candidates]
    return min(settings.cohort_size(size) for size in sizes)
