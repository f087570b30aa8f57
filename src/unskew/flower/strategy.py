"""The server of a Flower federation: the ordinary rounds, with nodes as the clients."""

from collections.abc import Mapping
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

from unskew.data import checks
from unskew.engine.settings import Settings
from unskew.engine.setup import TrainingSetup
from unskew.engine.train import run_training
from unskew.errors import UnskewError
from unskew.flower.backend import EvaluateFn, FlowerBackend
from unskew.flower.custom_loop import CustomLoopBackend, refuse_if_client_matters, vector_of
from unskew.flower.nodes import Nodes
from unskew.flower.registry import AnonymousNodes, NodeRegistry
from unskew.flower.remote import NodeBackend
from unskew.flower.requirements import refuse_if_it_gathers
from unskew.flower.results import as_result
from unskew.flower.server_view import RemoteFederation
from unskew.flower.uploads import Unusable
from unskew.flower.wire import log
from unskew.methods import make_method, name_of
from unskew.methods.common.base import Method
from unskew.models.functional import FunctionalModel
from unskew.models.layout import assign, flatten
from unskew.runs.atomic import write_bytes
from unskew.runs.file_names import CHECKPOINTS
from unskew.runs.folder import RunFolder
from unskew.runs.run import Run


class Strategy(FlowerStrategy):
    """Plays any method of the table with the nodes of a Flower federation.

    ``method`` and ``model`` are as in :func:`unskew.train`, and so are the ``settings``
    (``rounds``, ``participation`` or ``cohort``, ``epochs``, ``lr``, ``quorum``, ``seed``, …).
    ``nodes`` is how many nodes the run waits for before it begins, for ``wait`` seconds at most;
    a round waits as long for its quorum, and ``timeout`` seconds for answers. ``bound`` refuses an
    upload that moved so many times further than the median; None refuses none for that.
    ``classes`` is needed where no node has samples of the last class. With ``out`` the run is
    written to a folder, with a checkpoint a round, and ``resume`` goes on from the last one.
    ``common`` are test samples of the server's own, a pair (x, y).

    With ``own_loop`` nodes run an app of their own that answers as Flower's own strategies expect
    (one record of arrays, metrics with ``num-examples``); then methods that only change what the
    server does can be played.
    """

    def __init__(
        self,
        method: str | Method = "fedavg",
        *,
        model: str | nn.Module | None = None,
        nodes: int = 2,
        wait: float = 60.0,
        timeout: float = 3600.0,
        bound: float | None = 1000.0,
        classes: int | None = None,
        common: tuple[ArrayLike, ArrayLike] | None = None,
        own_loop: bool = False,
        out: str | Path | None = None,
        resume: bool = False,
        **settings: Any,
    ) -> None:
        self.method = make_method(method)
        self._model, self._classes, self._common = model, classes, common
        self._least, self._wait, self._timeout, self._bound = nodes, wait, timeout, bound
        self._out, self._resume = None if out is None else Path(out), resume
        self._own_loop = own_loop
        if resume and out is None:
            raise UnskewError("resume: there is nothing to go on from without out, a folder")
        if out is not None and not resume and (Path(out) / CHECKPOINTS).exists():
            raise UnskewError(f"{out}: there is a run already; resume it, or choose another folder")
        if own_loop:
            refuse_if_client_matters(self.method)
            if not isinstance(model, nn.Module):
                raise UnskewError("model: give the module that nodes with their own loop train")
        self.settings = _checked(settings)
        self.run: Run | None = None
        """What happened, once it has."""

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
        """Play the run; what is given here takes the place of what the strategy was made with.

        The configurations go to nodes that run their own loop; unskew's app takes its settings
        from the strategy.
        """
        if num_rounds is not None:
            self.settings = self.settings.model_copy(update={"rounds": num_rounds})
        self.summary()
        roster = (AnonymousNodes if self._own_loop else NodeRegistry)(grid, self._wait)
        quorum = self.settings.quorum
        roster.wait_for_nodes(max(self._least, quorum), quorum, self._wait)
        if self._out is not None:
            roster.remember(self._out, resume=self._resume)
        setup = TrainingSetup.of(self._absent(roster), self.method, self._model, self.settings)
        self._begin_from(initial_arrays, setup)
        parts: dict[str, Any] = {
            "nodes": Nodes(grid, roster, quorum, self._wait, timeout or self._timeout),
            "bound": self._bound,
            "measure": evaluate_fn,
        }
        backend: FlowerBackend
        if self._own_loop:
            configs = [ConfigRecord(dict(each or {})) for each in (train_config, evaluate_config)]
            backend = CustomLoopBackend(
                train_config=configs[0], evaluate_config=configs[1], **parts
            )
        else:
            backend = NodeBackend(method=name_of(self.method), settings=self.settings, **parts)
        setup.backend = backend
        folder = None if self._out is None else RunFolder(self._out, checkpoint_seconds=0.0)
        self.run = run_training(setup, folder, resume=self._resume, progress=_log_round)
        return as_result(self.run, backend.told)

    def _begin_from(self, arrays: ArrayRecord | None, setup: TrainingSetup) -> None:
        """Let training begin from given weights; a resumed run begins where it began before.

        A module of the user's own may have other weights each time it is made.
        """
        layout = FunctionalModel(setup.module).layout
        if arrays is not None:
            try:
                assign(setup.module, layout, vector_of(arrays, layout))
            except Unusable as error:
                raise UnskewError(f"initial_arrays: {error}") from None
        if self._out is None:
            return
        path = self._out / "start.safetensors"
        if self._resume and path.is_file():
            assign(setup.module, layout, load_file(path)["start"])
        else:
            write_bytes(path, save({"start": flatten(setup.module, layout)}))

    def summary(self) -> None:
        """Log what will be played."""
        log(INFO, "unskew: %s, %d rounds", name_of(self.method), self.settings.rounds)

    def plays_itself(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse to be played from outside, round by round."""
        del args, kwargs
        raise UnskewError(
            "strategy: unskew's plays its rounds itself, preparatory stages included: call its "
            "start; a wrapper around it has nothing to change"
        )

    configure_train = aggregate_train = configure_evaluate = aggregate_evaluate = plays_itself

    def _absent(self, roster: NodeRegistry) -> RemoteFederation:
        """Return the federation of the nodes; refuse methods that need their samples here."""
        common = None
        if self._common is not None:
            x, y = self._common
            common = checks.features(x, "common[0]"), checks.labels(y, "common[1]")
        federation = RemoteFederation.told(roster.names, roster.facts(), self._classes, common)
        refuse_if_it_gathers(self.method, federation)
        return federation


def _log_round(round_: int, metrics: Mapping[str, Any]) -> None:
    loss = metrics["train_loss"]
    told = "" if loss is None else f", training loss {loss:.4f}"
    why = f"; {metrics['kept_model']}" if "kept_model" in metrics else ""
    log(INFO, "unskew: %s round %d%s%s", metrics["stage"], round_, told, why)


def _checked(settings: Mapping[str, Any]) -> Settings:
    if settings.get("attack") is not None:
        raise UnskewError("attack: attackers are made up in simulations; leave it out on Flower")
    return Settings.validated(settings)
