"""The server of a Flower federation: unskew's rounds, with nodes as the clients."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from logging import INFO
from pathlib import Path
from typing import Any, NoReturn

from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from numpy.typing import ArrayLike
from safetensors.torch import load_file, save
from torch import nn

from unskew.composition.method import Method
from unskew.composition.parts import Part
from unskew.data import checks
from unskew.data.preprocessing.declared import declared_columns
from unskew.data.preprocessing.spec import NoPrepare, Prepare, parse_prepare
from unskew.data.targets import TaskName, as_targets
from unskew.engine.round_loop import run_training
from unskew.engine.settings import Settings
from unskew.engine.setup import TrainingSetup, smallest_cohort
from unskew.errors import UnskewError
from unskew.flower.backend import EvaluateFn, FlowerBackend
from unskew.flower.custom_loop import CustomLoopBackend, check_needs_no_client_code, vector_of
from unskew.flower.greeting import Admission, have_numbers_to_predict, is_raw
from unskew.flower.nodes import Nodes
from unskew.flower.preprocessing import FittedNodes, PreprocessingExchange
from unskew.flower.registry import AnonymousNodes, NodeRegistry
from unskew.flower.remote import NodeBackend
from unskew.flower.requirements import check_metrics_of_nodes, check_runs_on_nodes
from unskew.flower.results import as_result
from unskew.flower.round_log import RoundLog, log_start
from unskew.flower.server_view import RemoteFederation
from unskew.flower.uploads import UnusableReply
from unskew.flower.wire import log
from unskew.methods import make_method
from unskew.models.functional import FunctionalModel
from unskew.models.layout import assign, flatten
from unskew.runs.atomic import write_bytes
from unskew.runs.file_names import CHECKPOINTS, RUN
from unskew.runs.json_files import read_json_object
from unskew.runs.ownership import check_run_folder
from unskew.runs.run import Run


class Strategy(FlowerStrategy):
    """Runs any method of unskew on the nodes of a Flower federation.

    ``method``, ``model`` and the ``settings`` (``rounds``, ``participation`` or ``cohort``,
    ``epochs``, ``lr``, ``quorum``, ``seed``, …) are those of :func:`unskew.train`; the quorum is
    half of the nodes by default. The run starts when ``nodes`` nodes are connected, or after
    ``wait`` seconds with a quorum; every round waits up to ``wait`` seconds for its quorum and
    ``timeout`` seconds for replies. ``bound`` rejects uploads that moved more than ``bound`` times
    as far as the median or, of one or two, as in earlier rounds; None accepts any distance.
    A node that reports more than ``size_limit`` times the median number of samples is refused,
    unless ``large_nodes`` names it; None accepts any number.
    ``classes`` is the number of classes, needed if no node has samples of the last class. With
    ``out``, the run is written to that folder with one checkpoint per round, and ``resume``
    continues from the last checkpoint. ``common`` is a pair (x, y) of test samples on the server.

    Nodes with raw tables (:class:`unskew.flower.NodeTable`) are prepared before the first round as
    ``prepare`` says, with what ``columns`` says about their columns, as in
    :meth:`unskew.Federation.from_table`; ``common`` is then a pair of raw rows and labels.

    With ``custom_loop``, nodes run a custom app that replies as Flower's strategies expect: one
    record of arrays, and metrics that include ``num-examples``. Only methods that change nothing
    but the server can run this way.
    """

    def __init__(
        self,
        method: str | Part | Method = "fedavg",
        *,
        model: str | nn.Module | None = None,
        nodes: int = 2,
        wait: float = 60.0,
        timeout: float = 3600.0,
        bound: float | None = 1000.0,
        size_limit: float | None = 10.0,
        large_nodes: Collection[str] = (),
        classes: int | None = None,
        common: tuple[Any, ArrayLike] | None = None,
        prepare: str | Prepare = "federated",
        columns: Mapping[str, Any] | str | None = None,
        custom_loop: bool = False,
        out: str | Path | None = None,
        resume: bool = False,
        **settings: Any,
    ) -> None:
        self.method = make_method(method)
        self._model, self._classes, self._common = model, classes, common
        self._min_nodes, self._wait, self._timeout, self._bound = nodes, wait, timeout, bound
        self._out, self._resume = None if out is None else Path(out), resume
        self._custom_loop = custom_loop
        self._prepare, self._columns = parse_prepare(prepare), declared_columns(columns)
        if isinstance(self._prepare, NoPrepare) or self._prepare.mode == "pooled":
            raise UnskewError(f"prepare: {self._prepare.spec} is not possible on nodes")
        if isinstance(large_nodes, str):
            raise UnskewError(f"large_nodes: give a list of names, not the text {large_nodes!r}")
        self._admission = Admission(size_limit, frozenset(map(str, large_nodes)), classes)
        if resume and out is None:
            raise UnskewError("resume: give out, the folder of the run to resume")
        if out is not None and not resume and (Path(out) / CHECKPOINTS).exists():
            raise UnskewError(f"{out}: it already has a run; set resume or choose another folder")
        if custom_loop:
            check_needs_no_client_code(self.method)
            if not isinstance(model, nn.Module):
                raise UnskewError("model: with custom_loop, give the module that the nodes train")
        self.settings = _validated(settings)
        self.run: Run | None = None
        """The finished run; None before :meth:`start` has returned."""

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
    ) -> Result:
        """Execute the run; arguments given here override those of the constructor.

        ``train_config`` and ``evaluate_config`` are sent to nodes with a custom loop; unskew's app
        takes its settings from the strategy.
        """
        if num_rounds is not None:
            self.settings = self.settings.model_copy(update={"rounds": num_rounds})
        if self._out is not None:
            check_run_folder(self._out)
        self.summary()
        nodes = self._connected(grid, timeout or self._timeout)
        registry = nodes.registry
        fitted = self._prepare_nodes(nodes)
        quorum = self._quorum_of(len(registry.names))  # without nodes that could not be prepared
        nodes = replace(nodes, quorum=quorum)
        settings = self.settings.model_copy(update={"quorum": quorum})
        if self._out is not None:
            registry.save(self._out, resume=False)
        setup = TrainingSetup.of(
            self._federation(registry, fitted), self.method, self._model, settings
        )
        check_metrics_of_nodes(setup.metrics)
        if setup.metrics.computed:
            log(INFO, "unskew: nodes send metrics, not predictions; local and personal metrics are "
                "means over clients")  # fmt: skip
        self._set_initial_weights(initial_arrays, setup)
        configs = [ConfigRecord(dict(each or {})) for each in (train_config, evaluate_config)]
        setup.backend = backend = self._backend(nodes, setup.settings, evaluate_fn, configs)
        log_start(settings, len(registry.names))
        rounds = RoundLog(backend, self.settings.rounds)
        self.run = run_training(setup, self._out, resume=self._resume, progress=rounds)
        result = as_result(self.run, backend.server_metrics)
        rounds.finish(result)
        return result

    def _connected(self, grid: Grid, timeout: float) -> Nodes:
        """Wait for the nodes of the run; a resumed one knows them by their keys."""
        kind = AnonymousNodes if self._custom_loop else NodeRegistry
        registry = kind(grid, self._wait, self._admission)
        if self._resume and self._out is not None:
            registry.restore_keys(self._out)
        quorum = self._fixed_quorum() or half_of(self._min_nodes)
        registry.wait_for_nodes(max(self._min_nodes, quorum), quorum, self._wait)
        if self._resume and self._out is not None:
            registry.save(self._out, resume=True)
        return Nodes(grid, registry, self._quorum_of(len(registry.names)), self._wait, timeout)

    def _backend(
        self,
        nodes: Nodes,
        settings: Settings,
        evaluate_fn: EvaluateFn | None,
        configs: Sequence[ConfigRecord],
    ) -> FlowerBackend:
        """Return what trains and evaluates on the nodes: unskew's app, or their custom one."""
        shared: dict[str, Any] = {
            "nodes": nodes,
            "bound": self._bound,
            "evaluate_fn": evaluate_fn,
        }
        if not self._custom_loop:
            return NodeBackend(
                method=self.method.spec, settings=settings, models_are_kept=True, **shared
            )
        train_config, evaluate_config = configs
        return CustomLoopBackend(
            train_config=train_config,
            evaluate_config=evaluate_config,
            admission=self._admission,
            **shared,
        )

    def _fixed_quorum(self) -> int | None:
        """Return the quorum that is given, or that a resumed run was started with."""
        if "quorum" in self.settings.model_fields_set:
            return self.settings.quorum
        if not self._resume or self._out is None or not (self._out / RUN).is_file():
            return None
        configuration = read_json_object(self._out / RUN).get("configuration")
        quorum = configuration.get("quorum") if isinstance(configuration, dict) else None
        return quorum if isinstance(quorum, int) and quorum > 0 else None

    def _quorum_of(self, nodes: int) -> int:
        """Return the quorum of a round: by default half of the nodes that take part in it."""
        cohort = smallest_cohort(self.method, self.settings, nodes)
        return self._fixed_quorum() or half_of(cohort)

    def _set_initial_weights(self, arrays: ArrayRecord | None, setup: TrainingSetup) -> None:
        """Load the given initial weights; a resumed run loads the ones it started with.

        They are saved because a custom module may have other weights every time it is created.
        """
        layout = FunctionalModel(setup.module).layout
        if arrays is not None:
            try:
                assign(setup.module, layout, vector_of(arrays, layout))
            except UnusableReply as error:
                raise UnskewError(f"initial_arrays: {error}") from None
        if self._out is None:
            return
        path = self._out / "start.safetensors"
        if self._resume and path.is_file():
            assign(setup.module, layout, load_file(path)["start"])
        else:
            write_bytes(path, save({"start": flatten(setup.module, layout)}))

    def summary(self) -> None:
        """Log the name of the strategy; its settings follow once the nodes are known."""
        log(INFO, "Starting unskew's strategy for %s:", self.method.spec)

    def _reject_call(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Reject calls to Flower's per-round hooks, which unskew's rounds do not use."""
        del args, kwargs
        raise UnskewError(
            "strategy: unskew's strategy runs its own rounds, preparatory stages included; call "
            "its start directly, without a wrapper around it"
        )

    configure_train = aggregate_train = configure_evaluate = aggregate_evaluate = _reject_call

    def _prepare_nodes(self, nodes: Nodes) -> FittedNodes | None:
        """Prepare the raw tables of the nodes; None if they have none.

        A resumed run sends what its nodes agreed on, also to nodes that are new.
        """
        if not is_raw(nodes.registry.infos()[0]):
            return None
        assert isinstance(self._prepare, Prepare)
        exchange = PreprocessingExchange(nodes, self._prepare, self.settings.seed)
        fitted = FittedNodes.read(self._out) if self._resume and self._out is not None else None
        if fitted is None:
            fitted = exchange.fit(self._columns)
            exchange.apply(fitted)
            nodes.registry.keep(exchange.clients)
            if self._out is not None:
                fitted.write(self._out)
            return fitted
        if fitted.preprocessing.spec != self._prepare.spec:
            raise UnskewError(
                f"prepare: the run was prepared by {fitted.preprocessing.spec} (got "
                f"{self._prepare.spec}); change it back, or choose another folder"
            )
        exchange.apply(fitted)  # nodes without a reply have it from the first start
        return fitted

    def _federation(self, registry: NodeRegistry, fitted: FittedNodes | None) -> RemoteFederation:
        """Return the federation of the nodes; raise for a method that needs pooled samples."""
        common, infos = None, registry.infos()
        if self._common is not None and fitted is None:
            x, y = self._common
            is_regression = have_numbers_to_predict(infos)
            task: TaskName | None = "regression" if is_regression else None
            targets = as_targets(y, "common[1]", task)
            if targets.dtype.kind == "f" and not is_regression:
                raise UnskewError(
                    "common[1] must hold integer labels, since the nodes report no numbers to "
                    "predict; with custom_loop, evaluate a regression with evaluate_fn"
                )
            common = checks.features(x, "common[0]"), targets
        elif self._common is not None and fitted is not None:
            common = fitted.common(*self._common)
        if fitted is not None:
            infos = [fitted.info(info) for info in infos]
        federation = RemoteFederation.from_info(
            registry.names,
            infos,
            self._classes,
            common,
            None if fitted is None else fitted.preprocessing,
            None if fitted is None else fitted.class_names(self._classes),
        )
        if self._resume and self._out is not None and federation.is_regression:
            federation = replace(federation, target_units=_stored_units(self._out, federation))
        if self._custom_loop:  # its nodes report nothing about their targets
            federation = replace(federation, equal_targets=False)
        check_runs_on_nodes(self.method, federation)
        return federation


def half_of(nodes: int) -> int:
    """Return the smallest number of nodes that is at least half of them."""
    return (nodes + 1) // 2


def _stored_units(out: Path, federation: RemoteFederation) -> tuple[float, float]:
    """Return the units of the target that a run started with: nodes may have joined or left."""
    target = read_json_object(out / RUN).get("target")
    stored = target if isinstance(target, dict) else {}
    center, scale = stored.get("center"), stored.get("scale")
    if not isinstance(center, float) or not isinstance(scale, float):
        return federation.target_center_and_scale
    return center, scale


def _validated(settings: Mapping[str, Any]) -> Settings:
    if settings.get("attack") is not None:
        raise UnskewError("attack: attackers exist only in simulations; remove it on Flower")
    return Settings.validated(settings)
