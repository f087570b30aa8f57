"""The server of a Flower federation: the ordinary rounds, with nodes as the clients."""

from collections.abc import Callable, Iterable, Mapping
from logging import INFO
from pathlib import Path
from typing import Any, NoReturn

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from numpy.typing import ArrayLike
from pydantic import ValidationError
from torch import nn

from unskew.data import checks
from unskew.engine.settings import Settings
from unskew.engine.train import Trainer
from unskew.errors import UnskewError
from unskew.flower.absent import Absent
from unskew.flower.roster import Roster
from unskew.flower.runner import Nodes
from unskew.methods.base import Method
from unskew.methods.table import make_method, name_of
from unskew.runs.folder import RunFolder
from unskew.runs.run import Run
from unskew.spelling import explain


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
        out: str | Path | None = None,
        resume: bool = False,
        **settings: Any,
    ) -> None:
        self.method = make_method(method)
        self._model, self._classes, self._common = model, classes, common
        self._least, self._wait, self._timeout, self._bound = nodes, wait, timeout, bound
        self._out, self._resume = None if out is None else Path(out), resume
        if resume and out is None:
            raise UnskewError("resume: there is nothing to go on from without out, a folder")
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
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Play the run; what is given here takes the place of what the strategy was made with."""
        del initial_arrays, train_config, evaluate_config, evaluate_fn
        settings = self.settings
        if num_rounds is not None:
            settings = settings.model_copy(update={"rounds": num_rounds})
        timeout = self._timeout if timeout is None else timeout
        self.summary()
        roster = Roster(grid, timeout)
        roster.gather(self._least, self._wait)
        if self._out is not None:
            roster.remember(self._out)
        trainer = Trainer.of(self._absent(roster), self.method, self._model, settings)
        name = name_of(self.method)
        trainer.crew = Nodes(grid, roster, name, settings, timeout, self._wait, self._bound)
        folder = None if self._out is None else RunFolder(self._out, checkpoint_seconds=0.0)
        self.run = trainer.run(folder, resume=self._resume, progress=_log_round)
        assert self.run.model is not None
        return Result(arrays=ArrayRecord(self.run.model.state_dict()))

    def summary(self) -> None:
        """Log what will be played."""
        log(INFO, "unskew: %s, %d rounds", name_of(self.method), self.settings.rounds)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Refuse to be played from outside."""
        del server_round, arrays, config, grid
        _plays_itself()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Refuse to be played from outside."""
        del server_round, replies
        _plays_itself()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Refuse to be played from outside."""
        del server_round, arrays, config, grid
        _plays_itself()

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Refuse to be played from outside."""
        del server_round, replies
        _plays_itself()

    def _absent(self, roster: Roster) -> Absent:
        """Return the federation of the nodes; refuse methods that need their samples here."""
        common = None
        if self._common is not None:
            x, y = self._common
            common = checks.features(x, "common[0]"), checks.labels(y, "common[1]")
        federation = Absent.told(roster.names, roster.facts(), self._classes, common)
        gathered = self.method.gather(federation)
        handed, held = self.method.hand_out(federation, self.settings.seed)
        if gathered is not federation or handed is not federation or held:
            raise UnskewError(
                f"method: {name_of(self.method)} needs the samples of other clients in one place, "
                "and on Flower they stay with their nodes; use it in a simulation (unskew train)"
            )
        return federation


def _plays_itself() -> NoReturn:
    raise UnskewError(
        "strategy: unskew's plays its rounds itself, preparatory stages included: call its start; "
        "a wrapper around it has nothing to change"
    )


def _log_round(round_: int, metrics: Mapping[str, Any]) -> None:
    loss = metrics["train_loss"]
    told = "" if loss is None else f", training loss {loss:.4f}"
    why = f"; {metrics['kept_model']}" if "kept_model" in metrics else ""
    log(INFO, "unskew: %s round %d%s%s", metrics["stage"], round_, told, why)


def _checked(settings: Mapping[str, Any]) -> Settings:
    if settings.get("attack") is not None:
        raise UnskewError("attack: attackers are made up in simulations; leave it out on Flower")
    try:
        return Settings(**settings)
    except ValidationError as error:
        raise UnskewError(f"settings: {explain(error, Settings)}") from None
