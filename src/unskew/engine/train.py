"""Training a federation: stages, rounds, evaluation, checkpoints."""

import hashlib
import platform
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import nn

from unskew import __version__
from unskew.data.federation import Federation
from unskew.engine.attacks import Attack, make_attack
from unskew.engine.backend import Backend, LocalBackend
from unskew.engine.custom_code import custom_code_hash
from unskew.engine.model_factory import check_scores, is_own, make_module
from unskew.engine.progress import Watcher
from unskew.engine.runners import choose_device, example, resolve_runner
from unskew.engine.settings import Settings
from unskew.engine.stage import StageRun, rounds_of
from unskew.engine.stage_keys import stage_keys
from unskew.engine.threads import threads_for
from unskew.errors import UnskewError, UnskewWarning
from unskew.methods.common.base import Method, Tensors
from unskew.methods.common.registry import make_method, name_of
from unskew.models.functional import FunctionalModel, Model
from unskew.models.goals import CLASSIFY
from unskew.models.layout import flatten
from unskew.runs.checkpoint import Position
from unskew.runs.facts import density_facts, federation_facts
from unskew.runs.folder import RunFolder
from unskew.runs.run import Run
from unskew.runs.sample_weights import weights_table
from unskew.runs.stage_cache import StageCache
from unskew.runs.states import ClientStates, StateStore
from unskew.utils.specs import explain

_ROUNDS_LOOKED_AT = 20
"""So many rounds are looked at for a quorum that their clients could never make."""


def train(
    federation: Federation,
    method: str | Method = "fedavg",
    *,
    model: Model | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | Watcher | None = None,
    notes: Mapping[str, Any] | None = None,
    stages: str | Path | None = None,
    **settings: Any,
) -> Run:
    """Train one model on a federation and return what happened.

    ``method`` is a spelling such as ``"fedprox:mu=0.01"`` or a method object; ``model`` a name
    (see ``unskew models``), a module of yours, from whose weights every seed starts, a function
    that makes one, whose weights are then the seed's, or None for one that suits the data.
    ``settings`` are the fields of :class:`unskew.engine.settings.Settings`: ``rounds``,
    ``participation`` or ``cohort``, ``epochs`` or ``steps``, ``batch_size``, ``lr``,
    ``evaluate_every`` (0: never), ``seed``, ``workers`` and so on. With ``out`` the run is written
    to a folder as it goes, and with ``resume`` it goes on from the folder's last checkpoint, bit
    for bit. ``notes`` join what the run remembers in ``run.facts``, and change nothing. ``stages``
    is a folder that several runs share: what one has learned before the task, such as a density,
    another that would learn the same takes from there.
    """
    if not isinstance(federation, Federation):
        raise UnskewError(f"federation must be a Federation (got {federation!r}); see us.load")
    if resume and out is None:
        raise UnskewError("resume: there is nothing to go on from without out, the run's folder")
    if stages is not None and out is None:
        raise UnskewError("stages: there is nothing to share without out, the run's folder")
    try:
        checked = Settings(**settings)
    except ValidationError as error:
        raise UnskewError(f"settings: {explain(error, Settings)}") from None
    trainer = TrainingRun.of(federation, make_method(method), model, checked)
    folder = None
    if out is not None:
        # What nodes keep is in their files: they must not be ahead of the last checkpoint.
        seconds = checked.checkpoint_seconds if checked.engine == "unskew" else 0.0
        folder = RunFolder(out, seconds, checked.state_memory)
    if checked.engine == "flower-ray":
        return _on_ray()(trainer, folder, resume=resume, progress=progress, notes=notes)
    # Of a module no more is known than its first weights: what it does with them may differ.
    shared = None if stages is None or is_own(model) else Path(stages)
    return trainer.run(folder, resume=resume, progress=progress, notes=notes, shared=shared)


def _on_ray() -> Callable[..., Run]:
    try:
        from unskew.flower.ray import train_on_ray  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as error:
        if error.name not in ("flwr", "ray"):
            raise
        raise UnskewError(
            'engine: flower-ray needs Flower and Ray; pip install "unskew[flower-ray]"'
        ) from None
    return train_on_ray


def keeps_to_one_core(
    federation: Federation, method: Method, model: Model | None, settings: Settings
) -> bool:
    """Tell whether a run computes in one thread of one process, so that others fit beside it."""
    trainer = TrainingRun.of(federation, method, model, settings)
    network = FunctionalModel(trainer.module)
    runner = resolve_runner(network, settings, trainer.device, example(federation))
    numbers = settings.cohort_size(len(federation)) * network.layout.size
    alone = (runner != "pool" or settings.worker_count == 1) and settings.engine == "unskew"
    return trainer.device.type == "cpu" and alone and threads_for(numbers) == 1


@dataclass(eq=False)
class TrainingRun:
    """A run that is about to be played: its data, method, network and settings."""

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
    ) -> "TrainingRun":
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
        if is_own(model) and federation.has_samples:
            check_scores(module, example(federation).to(device), federation.classes)
        if method.wants_train_accuracy and FunctionalModel(module).goal is not CLASSIFY:
            raise UnskewError(f"method: {name_of(method)} needs accuracies, and {name} has none")
        return TrainingRun(
            federation, method, name, module, settings, device, attack, bad, held, is_own(model)
        )

    def run(
        self,
        folder: RunFolder | None,
        *,
        resume: bool,
        progress: bool | Watcher | None,
        notes: Mapping[str, Any] | None = None,
        shared: Path | None = None,
    ) -> Run:
        """Play every stage that is not yet played; ``shared`` is where those of others are kept."""
        position = Position(states=ClientStates(StateStore(memory=self.settings.state_memory)))
        run = Run(
            method=name_of(self.method),
            network=self.network_name,
            data=self.federation.name,
            seed=self.settings.seed,
            clients=len(self.federation),
        )
        run.facts = {**(notes or {}), **self._facts()}
        stages, common = self.method.stages(), None
        if folder is not None:
            identity = self._identity()
            if shared is not None and self.backend.here:
                versions, own = run.facts["versions"], self.settings
                keys = stage_keys(identity, versions, self.held, own, stages)
                common = StageCache(shared, keys)
            end = (len(stages) - 1, rounds_of(stages[-1], self.settings))
            position = folder.open(identity, run.facts, resume=resume, common=common, end=end)
            run.folder = folder.path
        try:
            if folder is not None:
                run.metrics, run.client_tables = folder.metrics(), folder.client_tables()
            for stage in stages[position.stage :]:
                last = stage is stages[-1]
                play = StageRun(self, stage, run, folder, evaluates=last)
                position = play.run(position, progress)
                if not last:
                    # A run may be resumed with more rounds, another runner or version, and then
                    # its stage is not what the key says.
                    if folder is not None and common is not None and not folder.resumed:
                        common.keep(position.stage, folder.path)
                    position = position.after_stage(stage.name)
        finally:
            if folder is not None:
                folder.close()
        assert position.server is not None
        _warn_of_idle_rounds(run)
        _warn_of_rejected_clients(run)
        run.model, run.states = play.module(position.server), position.states
        run.sample_weights = weights_table(position.states)
        if folder is not None and run.sample_weights is not None:
            folder.write_sample_weights(run.sample_weights)
        return run

    def _identity(self) -> dict[str, Any]:
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
            "arithmetic": self._arithmetic(network),
            "settings": self.settings.training_identity(),
        }

    def _arithmetic(self, network: FunctionalModel) -> str:
        """Say in which order sums are taken."""
        if not self.backend.here:
            return "per client"
        runner = resolve_runner(network, self.settings, self.device, example(self.federation))
        return "vectorised" if runner == "vectorised" else "per client"

    def _facts(self) -> dict[str, Any]:
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


def _warn_of_idle_rounds(run: Run) -> None:
    """Tell of rounds that left the model as it was: their figures look like any other's."""
    idle = [row for row in run.metrics if "kept_model" in row]
    if idle:
        reasons = Counter(why for row in idle for why in row.get("rejected", {}).values())
        often = f" (most often: {reasons.most_common(1)[0][0]})" if reasons else ""
        warnings.warn(
            f"{run.method}, seed {run.seed}: {len(idle)} of {len(run.metrics)} rounds left the "
            f"model as it was: {idle[-1]['kept_model']}{often}",
            UnskewWarning,
            stacklevel=2,
        )


def _warn_of_rejected_clients(run: Run) -> None:
    """Tell of clients whose uploads were left out while the rounds went on without them."""
    rows = [row for row in run.metrics if "kept_model" not in row]
    times = Counter(client for row in rows for client in row.get("rejected", {}))
    if times:
        worst, count = times.most_common(1)[0]
        reason = next(r["rejected"][worst] for r in rows if worst in r.get("rejected", {}))
        others = f", and {len(times) - 1} others less often" if len(times) > 1 else ""
        warnings.warn(
            f"{run.method}, seed {run.seed}: {count} {'round' if count == 1 else 'rounds'} went on "
            f"without client {worst}{others}: {reason}",
            UnskewWarning,
            stacklevel=2,
        )
