"""Training a federation: stages, rounds, evaluation, checkpoints."""

import copy
import hashlib
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import nn

from unskew import __version__
from unskew.attacks import Attack, make_attack
from unskew.data.federation import Federation
from unskew.engine.choose import choose_device, example, make_runner, resolve_runner
from unskew.engine.client import Workshop
from unskew.engine.cohort import Runner
from unskew.engine.private import PrivateStage
from unskew.engine.record import Line, evaluate, round_line, round_table
from unskew.engine.rounds import RoundOutcome, play_round
from unskew.engine.settings import Settings
from unskew.engine.threads import threads, threads_for
from unskew.errors import UnskewError
from unskew.goals import CLASSIFY
from unskew.layout import assign, flatten
from unskew.methods.base import Method, Server, Stage, Tensors
from unskew.methods.table import make_method, name_of
from unskew.models import default_for, make
from unskew.network import Network
from unskew.plain import plain
from unskew.progress import Watcher, watching
from unskew.rng import stream, torch_seeded
from unskew.runs.checkpoint import Position
from unskew.runs.facts import density_facts, federation_facts
from unskew.runs.folder import RunFolder
from unskew.runs.run import Run
from unskew.runs.sample_weights import weights_table
from unskew.runs.states import States, StateStore
from unskew.spelling import explain


def train(
    federation: Federation,
    method: str | Method = "fedavg",
    *,
    model: str | nn.Module | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | Watcher | None = None,
    notes: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Run:
    """Train one model on a federation and return what happened.

    ``method`` is a spelling such as ``"fedprox:mu=0.01"`` or a method object; ``model`` a name
    (see ``unskew models``), a module of yours, or None for one that suits the data. ``settings``
    are the fields of :class:`unskew.engine.settings.Settings`: ``rounds``, ``participation`` or
    ``cohort``, ``epochs`` or ``steps``, ``batch_size``, ``lr``, ``evaluate_every`` (0: never),
    ``seed``, ``workers`` and so on. With ``out`` the run is written to a folder as it goes, and
    with ``resume`` it goes on from the folder's last checkpoint, bit for bit. ``notes`` join what
    the run remembers in ``run.facts``, and change nothing.
    """
    if not isinstance(federation, Federation):
        raise UnskewError(f"federation must be a Federation (got {federation!r}); see us.load")
    if resume and out is None:
        raise UnskewError("resume: there is nothing to go on from without out, the run's folder")
    try:
        checked = Settings(**settings)
    except ValidationError as error:
        raise UnskewError(f"settings: {explain(error, Settings)}") from None
    trainer = _Trainer.of(federation, make_method(method), model, checked)
    folder = None
    if out is not None:
        folder = RunFolder(out, checked.checkpoint_seconds, checked.state_memory)
    return trainer.run(folder, resume=resume, progress=progress, notes=notes or {})


def keeps_to_one_core(
    federation: Federation, method: Method, model: str | nn.Module | None, settings: Settings
) -> bool:
    """Tell whether a run computes in one thread of one process, so that others fit beside it."""
    trainer = _Trainer.of(federation, method, model, settings)
    network = Network(trainer.module)
    runner = resolve_runner(network, settings, trainer.device, example(federation))
    numbers = settings.cohort_size(len(federation)) * network.layout.size
    alone = runner != "pool" or settings.worker_count == 1
    return trainer.device.type == "cpu" and alone and threads_for(numbers) == 1


@dataclass(eq=False)
class _Trainer:
    federation: Federation
    method: Method
    network_name: str
    module: nn.Module
    settings: Settings
    device: torch.device
    attack: Attack | None
    bad: frozenset[int]
    held: Tensors
    """What the server holds of the samples that the method handed out."""

    @staticmethod
    def of(
        federation: Federation,
        method: Method,
        model: str | nn.Module | None,
        settings: Settings,
    ) -> "_Trainer":
        if federation.train.samples == 0:
            raise UnskewError("federation: nobody has a sample to train on")
        federation = method.gather(federation)
        cohort = settings.cohort_size(len(federation))
        if settings.quorum > cohort:
            raise UnskewError(
                f"quorum must be at most the clients of a round, {cohort} (got {settings.quorum})"
            )
        attack = None if settings.attack is None else make_attack(settings.attack)
        bad = frozenset[int]()
        if attack is not None:
            bad = attack.bad(len(federation), settings.seed)
            federation = attack.on_data(federation, settings.seed)
        federation, held = method.hand_out(federation, settings.seed)
        name, module = _make_module(federation, model, settings.seed)
        device = choose_device(settings)
        module = module.to(device)
        if method.wants_train_accuracy and Network(module).goal is not CLASSIFY:
            raise UnskewError(f"method: {name_of(method)} needs accuracies, and {name} has none")
        return _Trainer(federation, method, name, module, settings, device, attack, bad, held)

    def run(
        self,
        folder: RunFolder | None,
        *,
        resume: bool,
        progress: bool | Watcher | None,
        notes: Mapping[str, Any],
    ) -> Run:
        """Play every stage that is not yet played."""
        position = Position(states=States(StateStore(memory=self.settings.state_memory)))
        run = Run(
            method=name_of(self.method),
            network=self.network_name,
            data=self.federation.name,
            seed=self.settings.seed,
            clients=len(self.federation),
        )
        run.facts = {**notes, **self._facts()}
        if folder is not None:
            position = folder.open(self._identity(), run.facts, resume=resume)
            run.folder = folder.path
            run.metrics, run.client_tables = folder.metrics(), folder.client_tables()
        stages = self.method.stages()
        try:
            for stage in stages[position.stage :]:
                last = stage is stages[-1]
                play = _StagePlay(self, stage, run, folder, evaluates=last)
                position = play.run(position, progress)
                if not last:
                    position = position.after_stage(stage.name)
        finally:
            if folder is not None:
                folder.close()
        assert position.server is not None
        run.model, run.states = play.module(position.server), position.states
        run.sample_weights = weights_table(position.states)
        if folder is not None and run.sample_weights is not None:
            folder.write_sample_weights(run.sample_weights)
        return run

    def _identity(self) -> dict[str, Any]:
        """Return what must agree for a run to be resumed."""
        network = Network(self.module)
        layout = [f"{entry.name} {entry.shape} {entry.kind}" for entry in network.layout]
        start = flatten(self.module, network.layout)
        runner = resolve_runner(network, self.settings, self.device, example(self.federation))
        return {
            "method": name_of(self.method),
            "network": self.network_name,
            "layout": hashlib.sha256("\n".join(layout).encode()).hexdigest()[:16],
            "start": hashlib.sha256(start.numpy().tobytes()).hexdigest()[:16],
            "data": self.federation.fingerprint,
            "arithmetic": "vectorised" if runner == "vectorised" else "per client",
            "settings": self.settings.training_identity(),
        }

    def _facts(self) -> dict[str, Any]:
        densities = [stage for stage in self.method.stages() if stage.learns_density]
        budgets = [stage.privacy for stage in densities]
        bound = density_facts(self.federation, budgets) if densities else {}
        return {
            **bound,
            "configuration": self.settings.model_dump(),
            "federation": repr(self.federation),
            "data": federation_facts(self.federation),
            "versions": {
                "unskew": __version__,
                "torch": torch.__version__,
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
        }


class _StagePlay:
    """Plays the rounds of one stage."""

    def __init__(
        self,
        trainer: _Trainer,
        stage: Stage,
        run: Run,
        folder: RunFolder | None,
        *,
        evaluates: bool,
    ) -> None:
        module = trainer.module
        with torch_seeded(trainer.settings.seed, f"network of {stage.name}"):
            if stage.network is not None:
                shape, classes = trainer.federation.shape, trainer.federation.classes
                module = stage.network(trainer.module, shape, classes)
            inputs = Network(module).inputs(example(trainer.federation))
            module = stage.method.adapt(module.to("cpu"), inputs).to(trainer.device)
        settings = trainer.settings if evaluates else _settings_of(stage, trainer.settings)
        self._rounds = stage.rounds or settings.rounds
        private = None
        if stage.privacy is not None:
            sizes = trainer.federation.train.sizes
            private = PrivateStage.of(stage.privacy, stage.name, sizes, settings, self._rounds)
        self._shop = Workshop(
            stage.method,
            Network(module),
            trainer.federation,
            settings,
            trainer.device,
            trainer.attack,
            trainer.bad,
            private,
        )
        self._shop.network.goal.check(trainer.federation)
        self._stage, self._run, self._folder, self._held = stage, run, folder, trainer.held
        stage.method.check(self._shop.network, example(trainer.federation))
        self._evaluates = evaluates

    def module(self, server: Server) -> nn.Module:
        """Return a new module with the server's weights, ready to use."""
        module = copy.deepcopy(self._shop.network.module).to("cpu")
        assign(module, self._shop.network.layout, self._shop.method.model(server))
        return module.eval()

    def run(self, position: Position, progress: bool | Watcher | None) -> Position:
        """Play from where ``position`` is to the stage's last round, and return that position."""
        shop = self._shop
        if position.server is None:
            vector = flatten(shop.network.module, shop.network.layout)
            server = shop.method.begin(vector, shop.network.layout, position.earlier)
            server = replace(server, slots={**server.slots, **self._held})
            position = replace(position, server=server)
        if self._is_over(position):
            return position
        cohort = shop.settings.cohort_size(len(shop.federation))
        runner = make_runner(shop, cohort)
        label = f"{self._run.method} {self._stage.name}".removesuffix(" task")
        try:
            with (
                threads(threads_for(cohort * shop.network.layout.size)),
                watching(progress, label, self._rounds, position.round) as watcher,
            ):
                while not self._is_over(position):
                    position = self._play(position, runner, watcher)
        finally:
            runner.close()
            if self._folder is not None:  # also after Ctrl-C: the last whole round is not lost
                self._folder.checkpoint()
        return position

    def _is_over(self, position: Position) -> bool:
        assert position.server is not None
        return position.round >= self._rounds or self._shop.method.is_done(position.server)

    def _play(self, position: Position, runner: Runner, watcher: Watcher) -> Position:
        assert position.server is not None
        started = time.perf_counter()
        server, states, outcome = play_round(
            self._shop, runner, position.round, position.server, position.states
        )
        position = position.after_round(server, states)
        metrics, tables = plain(self._record(position, outcome))
        metrics["seconds"] = round(time.perf_counter() - started, 6)
        self._run.metrics.append(metrics)
        self._run.client_tables.extend(tables)
        if self._folder is not None:
            self._folder.write(metrics, tables, position)
        watcher(position.round, metrics)
        return position

    def _record(self, position: Position, outcome: RoundOutcome) -> tuple[Line, list[Line]]:
        """Return the round's line of metrics and its tables of clients."""
        line = round_line(self._stage.name, position.round, outcome)
        if self._shop.private is not None:
            line["privacy"] = self._shop.private.spent(position.round)
        tables = [round_table(self._stage.name, position.round, outcome)]
        every = self._shop.settings.evaluate_every
        due = every and (position.round % every == 0 or self._is_over(position))
        if self._evaluates and due:
            levels, scores = evaluate(self._shop, position)
            line.update(levels)
            tables += scores
        return line, tables


def _settings_of(stage: Stage, settings: Settings) -> Settings:
    """Return the settings of a preparatory stage, whose random numbers are its own."""
    seed = int(stream(settings.seed, f"stage {stage.name}")) >> 1
    return settings.changed({"seed": seed, **stage.settings})


def _make_module(
    federation: Federation, model: str | nn.Module | None, seed: int
) -> tuple[str, nn.Module]:
    if model is not None and not isinstance(model, str | nn.Module):
        raise UnskewError(f"model must be a name or a torch module, not {model!r}")
    if isinstance(model, nn.Module):
        return type(model).__name__, copy.deepcopy(model)
    words = None if federation.vocabulary is None else len(federation.vocabulary)
    name = model or default_for(federation.shape, federation.classes, words)
    return name, make(name, federation.shape, federation.classes, seed=seed, vocabulary=words)
