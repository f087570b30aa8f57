"""One stage of a run: its network, its settings, its rounds."""

import copy
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from unskew.data.federation import Federation
from unskew.engine.client import ClientContext
from unskew.engine.cohort import Runner
from unskew.engine.private_steps import PrivateStage
from unskew.engine.progress import Watcher, watching
from unskew.engine.round_metrics import Row, evaluate, round_line, round_table
from unskew.engine.rounds import RoundOutcome, run_round
from unskew.engine.runners import example
from unskew.engine.settings import Settings
from unskew.engine.threads import threads, threads_for
from unskew.methods.common.base import Server, Stage
from unskew.models.functional import FunctionalModel
from unskew.models.layout import assign, flatten
from unskew.runs.checkpoint import Position
from unskew.runs.folder import RunFolder
from unskew.runs.run import Run
from unskew.utils.jsonable import plain
from unskew.utils.rng import stream, torch_seeded

if TYPE_CHECKING:
    from unskew.engine.train import TrainingRun


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


class StageRun:
    """Plays the rounds of one stage."""

    def __init__(
        self,
        trainer: "TrainingRun",
        stage: Stage,
        run: Run,
        folder: RunFolder | None,
        *,
        evaluates: bool,
    ) -> None:
        context = client_context(
            stage,
            trainer.module,
            trainer.federation,
            trainer.settings,
            trainer.device,
            last=evaluates,
        )
        self._rounds = rounds_of(stage, context.settings)
        private = None
        if stage.privacy is not None:
            sizes = trainer.federation.train.sizes
            private = PrivateStage.of(
                stage.privacy, stage.name, sizes, context.settings, self._rounds
            )
        self._context = replace(context, attack=trainer.attack, bad=trainer.bad, private=private)
        self._backend = trainer.backend
        self._context.network.goal.check(trainer.federation)
        self._stage, self._run, self._folder, self._held = stage, run, folder, trainer.held
        stage.method.check(self._context.network, example(trainer.federation))
        self._evaluates = evaluates

    def module(self, server: Server) -> nn.Module:
        """Return a new module with the server's weights, ready to use."""
        module = copy.deepcopy(self._context.network.module).to("cpu")
        assign(module, self._context.network.layout, self._context.method.model(server))
        return module.eval()

    def run(self, position: Position, progress: bool | Watcher | None) -> Position:
        """Play from where ``position`` is to the stage's last round, and return that position."""
        context = self._context
        if position.server is None:
            vector = flatten(context.network.module, context.network.layout)
            server = context.method.begin(vector, context.network.layout, position.earlier)
            server = replace(server, slots={**server.slots, **self._held})
            position = replace(position, server=server)
        if self._is_over(position):
            return position
        cohort = context.settings.cohort_size(len(context.federation))
        runner = self._backend.runner(context, position.stage, cohort)
        label = f"{self._run.method} {self._stage.name}".removesuffix(" task")
        try:
            with (
                threads(threads_for(cohort * context.network.layout.size)),
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
        return position.round >= self._rounds or self._context.method.is_done(position.server)

    def _play(self, position: Position, runner: Runner, watcher: Watcher) -> Position:
        assert position.server is not None
        started = time.perf_counter()
        server, states, outcome = run_round(
            self._context, runner, position.round, position.server, position.states
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

    def _record(self, position: Position, outcome: RoundOutcome) -> tuple[Row, list[Row]]:
        """Return the round's line of metrics and its tables of clients."""
        line = round_line(self._stage.name, position.round, outcome)
        if self._context.private is not None:
            line["privacy"] = self._context.private.spent(position.round)
        tables = [round_table(self._stage.name, position.round, outcome)]
        every = self._context.settings.evaluate_every
        due = every and (position.round % every == 0 or self._is_over(position))
        if self._evaluates and due:
            levels, scores = evaluate(self._context, position, self._backend.own_tests)
            line.update(levels)
            tables += scores
        return line, tables


def settings_of(stage: Stage, settings: Settings) -> Settings:
    """Return the settings of a preparatory stage, whose random numbers are its own."""
    seed = int(stream(settings.seed, f"stage {stage.name}")) >> 1
    return settings.changed({"seed": seed, **stage.settings})
