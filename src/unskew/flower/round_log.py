"""What the server writes to Flower's log: the start, every round, and a summary at the end."""

import time
from collections.abc import Mapping
from logging import INFO, WARNING
from typing import Any

from flwr.serverapp.strategy import Result

from unskew.engine.settings import Settings
from unskew.flower.backend import FlowerBackend
from unskew.flower.wire import log

_LEVELS = ("global", "local", "personal")


class RoundLog:
    """Logs each round as Flower's strategies do: replies, losses and evaluation."""

    def __init__(self, backend: FlowerBackend, rounds: int) -> None:
        self._backend, self._rounds = backend, rounds
        self._started = time.monotonic()

    def __call__(self, round_: int, metrics: Mapping[str, Any]) -> None:
        """Log one round, given its row of metrics."""
        stage = metrics["stage"]
        of = f"/{self._rounds}" if stage == "task" else f" of stage {stage}"
        log(INFO, "")
        log(INFO, "[ROUND %d%s]", round_, of)
        failures = {**metrics.get("rejected", {}), **metrics.get("missing", {})}
        received = metrics["clients"] - len(failures)
        log(INFO, "aggregate_train: Received %d results and %d failures", received, len(failures))
        for outcome in ("rejected", "missing"):
            for why in metrics.get(outcome, {}).values():
                log(WARNING, "\t├── %s: %s", outcome, why)
        if metrics["train_loss"] is not None:
            log(INFO, "\t└──> training loss: %.4f", metrics["train_loss"])
        if "kept_model" in metrics:
            log(WARNING, "\t└──> %s", metrics["kept_model"])
        levels = {level: metrics[level] for level in _LEVELS if level in metrics}
        if levels:
            answered, asked = self._backend.evaluated
            log(
                INFO,
                "aggregate_evaluate: Received %d results and %d failures",
                answered,
                asked - answered,
            )
            if metrics.get("not_evaluated"):
                absent = ", ".join(metrics["not_evaluated"])
                log(WARNING, "\t├── means over nodes are without %s", absent)
            for level, measured in levels.items():
                log(INFO, "\t└──> %s: %s", level, _text(measured))

    def finish(self, result: Result) -> None:
        """Log how long the run took, and its final results."""
        log(INFO, "")
        log(INFO, "Strategy execution finished in %.2fs", time.monotonic() - self._started)
        log(INFO, "")
        log(INFO, "Final results:")
        for line in str(result).splitlines():
            log(INFO, "\t%s", line)


def log_start(settings: Settings, nodes: int) -> None:
    """Log how many rounds there are, and how many nodes take part in each."""
    cohort = settings.cohort_size(nodes)
    log(INFO, "\t├──> %d rounds", settings.rounds)
    log(INFO, "\t└──> %d of %d nodes per round, quorum %d", cohort, nodes, settings.quorum)
    if cohort < 2 <= nodes:
        log(
            WARNING,
            "unskew: participation %g of %d nodes is one node per round, whose model becomes the "
            "global one; Flower's own strategies take at least two: set cohort=2",
            settings.participation or cohort / nodes,
            nodes,
        )


def _text(measured: Mapping[str, Any]) -> str:
    first = {name: value for name, value in measured.items() if name in ("accuracy", "loss")}
    judged = next(iter(measured), "loss")
    shown = {judged: measured.get(judged), **first} if first else measured
    return ", ".join(f"{name} {value:.4f}" for name, value in shown.items() if value is not None)
