"""What a method sends: found out by playing it on a toy federation and looking at the messages.

The same hooks run on Flower nodes, so nothing else leaves a node than what is listed here, its
name, how many samples of which shape it has, and the figures of a reply (loss, steps, accuracy).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor

from unskew.data.federation import Federation
from unskew.engine.backend import LocalBackend
from unskew.engine.client import ClientContext
from unskew.engine.cohort import Result, Runner, Task
from unskew.engine.rounds import sent_up
from unskew.engine.settings import Settings
from unskew.engine.setup import TrainingSetup
from unskew.engine.train import run_training
from unskew.methods import make_method, name_of
from unskew.methods.common.base import Method, Stage
from unskew.models.layout import Layout
from unskew.utils.rng import generator

_MODEL = "mlp:hidden=6,norm=batch"
"""A network with tensors of every kind that methods tell apart."""
_ROUNDS = 2
"""The second round is the first in which clients have a state."""


_COLUMNS = (
    "down besides the model",
    "up besides the model",
    "of the model stays",
    "kept on the node",
    "secure aggregation",
)


@dataclass
class Sends:
    """What one method sends besides its model, and which part of the model stays on the node."""

    method: str
    individual: bool
    """Whether the server must see each node's update, which excludes secure aggregation."""
    needs_samples: bool = False
    """Whether it needs the samples of clients in one place, so that it cannot run on nodes."""
    down: set[str] = field(default_factory=set)
    up: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    """The names of what a node keeps to itself between rounds."""
    stays: set[str] = field(default_factory=set)
    """The kinds of tensors of the model that never leave the node."""

    @property
    def row(self) -> dict[str, str]:
        """What there is to say, for a person to read."""
        if self.needs_samples:
            texts = ["cannot run on nodes: it needs their samples in one place", *[""] * 4]
            return {"method": self.method, **dict(zip(_COLUMNS, texts, strict=True))}
        texts = [_spelled(names) for names in (self.down, self.up, self.stays, self.kept)]
        texts.append("no" if self.individual else "conceivable")
        return {"method": self.method, **dict(zip(_COLUMNS, texts, strict=True))}


def sends(method: str | Method) -> Sends:
    """Play two rounds of every stage of a method and tell what was sent."""
    chosen = make_method(method)
    federation = _toy()
    told = Sends(name_of(chosen), chosen.about.needs_individual_updates)
    gathered = chosen.transform_federation(federation)
    handed, held = chosen.shared_samples(federation, 0)
    if gathered is not federation or handed is not federation or held:
        return replace(told, needs_samples=True)
    settings = Settings(rounds=_ROUNDS, batch_size=8, evaluate_every=0, runner="loop")
    setup = TrainingSetup.of(federation, chosen, _MODEL, settings)
    setup.backend = _Listening(told, chosen.stages())
    run_training(setup, None, resume=False, progress=False)
    return told


class _Listening(LocalBackend):
    """Lets clients train here, and notes what they would be sent and would send."""

    def __init__(self, told: Sends, stages: Sequence[Stage]) -> None:
        self._told, self._stages = told, stages

    def runner(self, context: ClientContext, stage: int, cohort: int) -> Runner:
        """Return a runner that is listened to."""
        up = sent_up(context.method, context.network.layout)
        kinds = _kinds_without(context.network.layout, up)
        if stage == len(self._stages) - 1:
            self._told.stays |= kinds
        elif kinds:
            self._told.stays.add(f"network of {self._stages[stage].name}")
        return _Noting(super().runner(context, stage, cohort), self._told)


class _Noting:
    """A runner that writes down the names of what goes through it."""

    def __init__(self, runner: Runner, told: Sends) -> None:
        self._runner, self._told, self.kind = runner, told, runner.kind

    def train(self, round_: int, tasks: Sequence[Task]) -> Result:
        """Train, and note what was sent either way."""
        result = self._runner.train(round_, tasks)
        for task, finished in zip(tasks, result.finished, strict=True):
            self._told.down |= set(task.payload) - {"model"}
            self._told.up |= set(finished.extras)
            self._told.kept |= set(finished.state)
        return result

    def close(self) -> None:
        """Release what the runner holds."""
        self._runner.close()


def _kinds_without(layout: Layout, sent: Tensor | None) -> set[str]:
    if sent is None:
        return set()
    return {str(entry.kind) for entry in layout if not bool(sent[entry.place].any())}


def _toy() -> Federation:
    """Return a federation that every method accepts: images, all classes everywhere."""
    random = generator(0, "what is sent")
    x = random.random((96, 1, 4, 4)).astype(np.float32)
    y = np.arange(96) % 3
    return Federation.from_arrays(x, y, client=np.arange(96) // 12)


def _spelled(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "-"
