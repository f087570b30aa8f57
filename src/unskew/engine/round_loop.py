"""The round loop: a run executes its stages, a stage its rounds, and every round is recorded.

:func:`run_training` is a run, :class:`StageRun` one of its stages, and :func:`run_round` one round:
draw a cohort, broadcast, train the clients, check their uploads, aggregate.
"""

import copy
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import Diagnostics
from unskew.composition.accepted_sizes import AcceptedSizes
from unskew.composition.values import Beginning, Server, Stage, Tensors
from unskew.engine.attacks import with_attack
from unskew.engine.client import ClientContext
from unskew.engine.cohort import ClientTask, CohortResult, Runner, draw_cohort
from unskew.engine.evaluate import evaluate
from unskew.engine.hook_checks import ServerFailed, server_error_context
from unskew.engine.personal import ON_NODES, ClientModels, fine_tuned
from unskew.engine.placement import to_device
from unskew.engine.private_steps import PrivateStage, check_private
from unskew.engine.progress import RoundCallback, show_progress
from unskew.engine.round_metrics import RoundOutcome, Row, round_row, round_table
from unskew.engine.runners import example_inputs
from unskew.engine.setup import TrainingSetup
from unskew.engine.stage import client_context, rounds_of
from unskew.engine.stage_keys import stage_keys
from unskew.engine.traffic import hidden_from_server, round_traffic
from unskew.engine.upload_checks import accepted_uploads, check_uploads
from unskew.errors import UnskewError, UnskewWarning
from unskew.models.layout import assign, flatten, rows_are_finite
from unskew.runs.checkpoint import Position
from unskew.runs.cost import Traffic, add_up
from unskew.runs.cpu import CPUS
from unskew.runs.folder import RunFolder
from unskew.runs.run import Run
from unskew.runs.sample_weights import weights_table
from unskew.runs.stage_cache import StageCache
from unskew.runs.states import ClientStates, StateStore
from unskew.utils.jsonable import to_jsonable
from unskew.utils.threads import threads, threads_for


def run_training(
    setup: TrainingSetup,
    out: str | Path | None,
    *,
    resume: bool,
    progress: bool | RoundCallback | None,
    notes: Mapping[str, Any] | None = None,
    stage_cache: str | Path | None = None,
) -> Run:
    """Run every stage that is not finished yet, and return the run.

    With ``out`` the run is written to that folder. ``stage_cache`` is a folder of finished
    preparatory stages that several runs share.
    """
    folder = None
    if out is not None:
        # Nodes store client state in files, which must not be ahead of the last checkpoint.
        seconds = setup.settings.checkpoint_seconds if setup.backend.is_local else 0.0
        folder = RunFolder(out, seconds, setup.settings.state_memory)
    position = Position(states=ClientStates(StateStore(memory=setup.settings.state_memory)))
    run = Run(
        method=setup.method.spec,
        network=setup.network_name,
        data=setup.federation.name,
        seed=setup.settings.seed,
        clients=len(setup.federation),
    )
    run.metadata = {**(notes or {}), **setup.metadata()}
    stages, cache = setup.method.stages(), None
    if folder is not None:
        identity = setup.identity()
        # A custom network is identified by its initial weights alone; its forward pass may differ.
        if stage_cache is not None and setup.backend.is_local and not setup.custom_network:
            versions, settings = run.metadata["versions"], setup.settings
            keys = stage_keys(identity, versions, setup.initial_state, settings, stages)
            cache = StageCache(Path(stage_cache), keys)
        end = (len(stages) - 1, rounds_of(stages[-1], setup.settings))
        position = folder.open(identity, run.metadata, resume=resume, cache=cache, end=end)
        run.folder = folder.path
    try:
        if folder is not None:
            run.metrics = folder.metrics()
        for stage in stages[position.stage :]:
            last = stage is stages[-1]
            stage_run = StageRun(setup, stage, run, folder, evaluates=last)
            position = stage_run.run(position, progress)
            if not last:
                # A resumed run may use more rounds, another runner or another version than its
                # key names, so its stages are not cached.
                if folder is not None and cache is not None and not folder.resumed:
                    cache.keep(position.stage, folder.path)
                position = position.after_stage(stage.name)
    finally:
        if folder is not None:
            folder.close()
    _warn_of_idle_rounds(run)
    _warn_of_rejected_clients(run)
    _add_results(run, stage_run, position, folder)
    return run


def _add_results(run: Run, task: "StageRun", position: Position, folder: RunFolder | None) -> None:
    """Add to a run what its last stage, the task, leaves: models, states and tables."""
    assert position.server is not None
    run.model, run.states = task.module(position.server), position.states
    run.client_models = task.client_models(position)
    run.sample_weights = weights_table(position.states)
    if folder is not None:
        run.client_tables = folder.client_tables()
        run.metadata[CPUS] = folder.cpus
        if run.sample_weights is not None:
            folder.write_sample_weights(run.sample_weights)


class StageRun:
    """Runs the rounds of one stage."""

    def __init__(
        self,
        setup: TrainingSetup,
        stage: Stage,
        run: Run,
        folder: RunFolder | None,
        *,
        evaluates: bool,
    ) -> None:
        context = client_context(
            stage,
            setup.module,
            setup.federation,
            setup.settings,
            setup.device,
            last=evaluates,
        )
        self._rounds = rounds_of(stage, context.settings)
        private = None
        if stage.privacy is not None:
            check_private(context.method, context.network)
            sizes = setup.federation.train.sizes
            private = PrivateStage.of(
                stage.privacy, stage.name, sizes, context.settings, self._rounds
            )
        same_network = evaluates and context.network.module is setup.module
        self._context = replace(
            context,
            attack=setup.attack,
            attackers=setup.attackers,
            private=private,
            bound=setup.backend.bound,
            runner=setup.runner if same_network and setup.backend.is_local else None,
        )
        self._backend = setup.backend
        self._context.network.goal.check(setup.federation)
        self._stage, self._run, self._folder = stage, run, folder
        self._evaluation_context = replace(self._context, metrics=setup.metrics)
        self._initial_state = setup.initial_state
        # A setup whose network is a copy of a shared one is made for this run alone.
        self._owns_module = setup.initial_network is not None
        stage.method.check(self._context.network, example_inputs(setup.federation))
        self._evaluates = evaluates

    def module(self, server: Server) -> nn.Module:
        """Return a module with the server's weights, ready to use."""
        module = self._context.network.module
        if not self._owns_module:
            module = copy.deepcopy(module)
        module = module.to("cpu")
        assign(module, self._context.network.layout, self._context.method.model(server))
        return module.eval()

    def client_models(self, position: Position) -> ClientModels:
        """Return the models that clients use; those of remote clients stay there."""
        layout = self._context.network.layout
        found = ClientModels.of(self._context.method, layout, position)
        return found if self._backend.is_local else found.elsewhere(ON_NODES)

    def run(self, position: Position, progress: bool | RoundCallback | None) -> Position:
        """Run the rounds from ``position`` to the end of the stage; return the position there."""
        context = self._context
        if position.server is None:
            vector = flatten(context.network.module, context.network.layout)
            server = context.in_round(0).method.begin(
                Beginning(
                    vector=vector,
                    layout=context.network.layout,
                    earlier=position.earlier,
                    num_clients=len(context.federation),
                    seed=context.settings.seed,
                )
            )
            server = replace(server, state={**server.state, **self._initial_state})
            position = replace(position, server=server)
        if self._is_over(position):
            return position
        cohort = context.settings.cohort_size(len(context.federation))
        # A loop over the clients, worker processes, the cohort as one matrix, or Flower nodes.
        runner = self._backend.runner(context, position.stage, cohort)
        label = f"{self._run.method} {self._stage.name}".removesuffix(" task")
        try:
            with (
                threads(threads_for(cohort * context.network.layout.size)),
                show_progress(progress, label, self._rounds, position.round) as on_round,
            ):
                while not self._is_over(position):
                    position = self._run_round(position, runner, on_round)
        finally:
            runner.close()
            if self._folder is not None:  # also after Ctrl-C, so that no complete round is lost
                self._folder.checkpoint()
        assert position.server is not None
        vector = to_device(position.server.vector, torch.device("cpu"))
        return replace(position, server=replace(position.server, vector=vector))

    def _is_over(self, position: Position) -> bool:
        assert position.server is not None
        return position.round >= self._rounds or self._context.method.is_done(position.server)

    def _run_round(self, position: Position, runner: Runner, on_round: RoundCallback) -> Position:
        assert position.server is not None
        started = time.perf_counter()
        server, new_states, outcome = run_round(
            self._context,
            runner,
            position.round,
            position.server,
            position.states,
            position.accepted,
        )
        position = position.after_round(server, new_states, outcome.sizes)
        if self._evaluates and self._backend.is_local and self._is_over(position):
            position = replace(position, tuned=fine_tuned(self._context, position))
        metrics, tables = to_jsonable(self._metrics_and_tables(position, outcome))
        metrics["seconds"] = round(time.perf_counter() - started, 6)
        self._run.metrics.append(metrics)
        if self._folder is not None:
            self._folder.write(metrics, tables, position)
        elif isinstance(self._run.client_tables, list):
            self._run.client_tables.extend(tables)
        on_round(position.round, metrics)
        return position

    def _metrics_and_tables(
        self, position: Position, outcome: RoundOutcome
    ) -> tuple[Row, list[Row]]:
        """Return the round's row of metrics and its client tables.

        They hold evaluation results if this round is evaluated.
        """
        row = round_row(self._stage.name, position.round, outcome)
        preprocessing = self._context.federation.preprocessing
        if preprocessing is not None and (position.stage, position.round) == (0, 1):
            # What clients and server sent before the first round counts in it.
            sent = Traffic(**vars(preprocessing.sent))
            row["preprocessing"] = sent.to_dict()
            row["traffic"] = add_up([outcome.total, sent]).to_dict()
        if self._context.private is not None:
            row["privacy"] = self._context.private.spent(position.round)
        tables = [round_table(self._stage.name, position.round, outcome)]
        every = self._context.settings.evaluate_every
        due = every and (position.round % every == 0 or self._is_over(position))
        if self._evaluates and due:
            backend = self._backend
            levels, scores = evaluate(
                self._evaluation_context.in_round(position.round - 1),
                position,
                backend.evaluate_on_clients,
                backend.evaluate_on_server,
            )
            row.update(levels)
            tables += scores
        return row, tables


def run_round(
    context: ClientContext,
    runner: Runner,
    round_: int,
    server: Server,
    states: Mapping[int, Tensors],
    accepted: AcceptedSizes,
) -> tuple[Server, dict[int, Tensors], RoundOutcome]:
    """Run one round; return the server, the clients' new states, and the outcome.

    ``states`` are those of all clients, and ``accepted`` the sizes of what was accepted in earlier
    rounds. A rejected client keeps its previous state, since whatever corrupted its model may have
    corrupted its new state too. Where the previous model is kept, so are all states: server and
    clients must agree on what happened.
    """
    context = context.in_round(round_)
    tasks, result = _train_cohort(context, runner, round_, server, states)
    cohort = [task.client for task in tasks]
    samples = result.samples
    if samples is None:
        samples = context.federation.train.sizes[cohort].tolist()
    checked = check_uploads(context, round_, tasks, result, samples, accepted)
    rejected = checked.rejected
    outcome = RoundOutcome(
        clients=cohort,
        samples=samples,
        train_loss=[trained.loss for trained in result.trained],
        steps=[trained.steps for trained in result.trained],
        traffic=round_traffic(context.method, context.network.layout, tasks, result),
        rejected=rejected,
        missing=result.missing,
    )
    if checked.undecided:
        reason = (
            "two clients disagree, and nothing tells which one is wrong; the previous model is kept"
        )
        return server, {}, replace(outcome, kept_model=reason)
    uploads = accepted_uploads(context, round_, server, result, outcome)
    if uploads is None:
        reason = f"fewer than {context.settings.quorum} usable uploads; the previous model is kept"
        return server, {}, replace(outcome, kept_model=reason)
    try:
        updated, diagnostics = _aggregated(context, round_, server, uploads)
    except ServerFailed:
        raise
    except UnskewError as error:
        if not rejected:
            raise
        reason = f"after rejections, {error}; the previous model is kept"
        return server, {}, replace(outcome, kept_model=reason)
    outcome = replace(outcome, diagnostics=diagnostics)
    if not bool(rows_are_finite(updated.vector)):
        reason = "the new model has infinite or undefined numbers; the previous one is kept"
        return server, {}, replace(outcome, kept_model=reason)
    new_states = {
        k: finished.state
        for k, finished in zip(cohort, result.finished, strict=True)
        if finished.state and k not in rejected
    }
    return updated, new_states, replace(outcome, sizes=checked.sizes)


def _train_cohort(
    context: ClientContext,
    runner: Runner,
    round_: int,
    server: Server,
    states: Mapping[int, Tensors],
) -> tuple[list[ClientTask], CohortResult]:
    """Draw the cohort of a round, broadcast to it and train it; attackers change their uploads."""
    method, settings, clients = context.method, context.settings, len(context.federation)
    among = method.candidates(clients, round_, settings.seed)
    cohort = draw_cohort(settings, clients, round_, among)
    with server_error_context(round_, "broadcast"):
        payloads = {k: method.broadcast(server, k) for k in cohort}
    tasks = [ClientTask(k, payloads[k], states.get(k, {})) for k in cohort]
    result = runner.train(round_, tasks)
    if context.attack is not None:
        layout = context.network.layout
        result = with_attack(result, cohort, layout, context.attack, context.attackers)
    return tasks, result


def _aggregated(
    context: ClientContext, round_: int, server: Server, uploads: Uploads
) -> tuple[Server, Diagnostics]:
    """Aggregate the uploads; coordinates that the server does not see stay as they were."""
    with server_error_context(round_, "aggregate"):
        updated, diagnostics = context.method.aggregate(server, uploads)
    hidden = hidden_from_server(context.method, context.network.layout)
    if hidden is not None:  # a mean of equal values may differ from them in the last digit
        vector = torch.where(hidden, server.vector, updated.vector)
        updated = replace(updated, vector=vector)
    return updated, diagnostics


def _warn_of_idle_rounds(run: Run) -> None:
    """Warn of rounds that kept the previous model, which their metrics alone do not show."""
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
    """Warn of clients whose uploads were left out of rounds that were aggregated without them."""
    rows = [row for row in run.metrics if "kept_model" not in row]
    times = Counter(client for row in rows for client in row.get("rejected", {}))
    if times:
        worst, count = times.most_common(1)[0]
        reason = next(r["rejected"][worst] for r in rows if worst in r.get("rejected", {}))
        others = f", and {len(times) - 1} others less often" if len(times) > 1 else ""
        warnings.warn(
            f"{run.method}, seed {run.seed}: {count} {'round' if count == 1 else 'rounds'} "
            f"continued without client {worst}{others}: {reason}",
            UnskewWarning,
            stacklevel=2,
        )
