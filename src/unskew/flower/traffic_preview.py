"""What a method sends, found by running it on a toy federation and inspecting the messages.

The same hooks run on Flower nodes, so nothing leaves a node except what is listed here, its name,
the number and shape of its samples, and the metrics of a reply (loss, steps, accuracy).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from flwr.app import RecordDict
from torch import Tensor

from unskew.composition.method import Method
from unskew.composition.values import Stage
from unskew.data.federation import Federation
from unskew.engine.backend import LocalBackend
from unskew.engine.client import ClientContext
from unskew.engine.cohort import ClientTask, CohortResult, Runner
from unskew.engine.round_loop import run_training
from unskew.engine.settings import Settings
from unskew.engine.setup import TrainingSetup
from unskew.engine.traffic import sent_up
from unskew.errors import UnskewError
from unskew.flower.leaving import categories_of
from unskew.flower.node import reply_of_round
from unskew.flower.policy import CATEGORIES, Category
from unskew.flower.requirements import needs_pooled_samples
from unskew.flower.sent_log import size_of, values_of
from unskew.methods import make_method
from unskew.models.layout import Layout
from unskew.utils.rng import generator

_MODEL = "mlp:hidden=6,norm=batch"
"""A network with tensors of every kind that methods distinguish."""
_ROUNDS = 2
"""Clients have a state from the second round on."""
_SETTINGS = Settings(rounds=_ROUNDS, batch_size=8, evaluate_every=0, runner="loop")
_CLIENTS = 10
"""How many clients of a large federation are trained in a round."""

_COLUMNS = (
    "sent down besides the model",
    "sent up besides the model",
    "model parts that stay",
    "state on the node",
    "secure aggregation",
    "leaves",
)

_SECURE_AGGREGATION = {True: "no", False: "conceivable", None: "not declared"}


@dataclass
class TrafficPreview:
    """What a method sends besides its model, and which parts of the model stay on the node."""

    method: str
    needs_individual_updates: bool | None
    """Whether the server must see each node's update, which rules out secure aggregation; None: the
    method does not declare it."""
    needs_samples: bool = False
    """Whether the method needs pooled samples, so that it cannot run on nodes."""
    down: set[str] = field(default_factory=set)
    """The names of the tensors sent to nodes besides the model."""
    up: set[str] = field(default_factory=set)
    """The names of the tensors sent to the server besides the model."""
    state: set[str] = field(default_factory=set)
    """The names of the tensors that a node keeps between rounds."""
    local_parts: set[str] = field(default_factory=set)
    """The kinds of tensors of the model that never leave the node."""
    leaves: set[Category] = field(default_factory=set)
    """The categories, as in a site's policy, of what leaves the node."""
    messages: dict[tuple[str, str, int], dict[str, str | int]] = field(default_factory=dict)
    """Every form of a message that leaves a node, as the node's log has it."""

    @property
    def row(self) -> dict[str, str]:
        """The table row for this method."""
        if self.needs_samples:
            texts = ["cannot run on nodes: it needs their samples in one place", *[""] * 5]
            return {"method": self.method, **dict(zip(_COLUMNS, texts, strict=True))}
        texts = [_joined(names) for names in (self.down, self.up, self.local_parts, self.state)]
        texts.append(_SECURE_AGGREGATION[self.needs_individual_updates])
        texts.append(", ".join(each for each in CATEGORIES if each in self.leaves))
        return {"method": self.method, **dict(zip(_COLUMNS, texts, strict=True))}


def preview_messages(
    method: str | Method, federation: Federation, model: str | None
) -> list[dict[str, str | int]]:
    """Train a network on a federation, with few steps; return a row per form of a message."""
    cohort = min(1.0, _CLIENTS / len(federation))
    settings = Settings(
        rounds=_ROUNDS, steps=1, participation=cohort, evaluate_every=0, runner="loop"
    )
    preview = preview_traffic(method, federation, model, settings)
    if preview.needs_samples:
        raise UnskewError(f"{preview.method} cannot run on nodes: it needs their samples")
    return list(preview.messages.values())


def preview_traffic(
    method: str | Method,
    federation: Federation | None = None,
    model: str | None = _MODEL,
    settings: Settings = _SETTINGS,
) -> TrafficPreview:
    """Run two rounds of every stage of a method and return what was sent."""
    chosen = make_method(method)
    federation = federation or _toy_federation()
    preview = TrafficPreview(chosen.spec, chosen.about.needs_individual_updates)
    if needs_pooled_samples(chosen, federation):
        return replace(preview, needs_samples=True)
    setup = TrainingSetup.of(federation, chosen, model, settings)
    setup.backend = _RecordingBackend(preview, chosen.stages())
    run_training(setup, None, resume=False, progress=False)
    return preview


class _RecordingBackend(LocalBackend):
    """Trains clients in this process and records what they would receive and send."""

    def __init__(self, preview: TrafficPreview, stages: Sequence[Stage]) -> None:
        self._preview, self._stages = preview, stages

    def runner(self, context: ClientContext, stage_index: int, cohort: int) -> Runner:
        """Return a runner that records."""
        up = sent_up(context.method, context.network.layout)
        self._preview.leaves |= categories_of(context.method, context.network.layout)
        kinds = _kinds_not_sent(context.network.layout, up)
        if stage_index == len(self._stages) - 1:
            self._preview.local_parts |= kinds
        elif kinds:
            self._preview.local_parts.add(f"network of {self._stages[stage_index].name}")
        runner = super().runner(context, stage_index, cohort)
        return _RecordingRunner(runner, self._preview, context, self._stages[stage_index])


class _RecordingRunner:
    """A runner that records the tensors that pass through it."""

    def __init__(
        self, runner: Runner, preview: TrafficPreview, context: ClientContext, stage: Stage
    ) -> None:
        self._runner, self._preview, self.kind = runner, preview, runner.kind
        self._context, self._stage = context, stage

    def train(self, round_: int, tasks: Sequence[ClientTask]) -> CohortResult:
        """Train, and record what was sent in both directions."""
        result = self._runner.train(round_, tasks)
        for task, finished in zip(tasks, result.finished, strict=True):
            self._preview.down |= set(task.payload) - {"model"}
            self._preview.up |= set(finished.extras)
            self._preview.state |= set(finished.state)
        for task, trained, finished in zip(tasks, result.trained, result.finished, strict=True):
            content = reply_of_round(
                self._context, task.client, trained, finished, has_new_state=bool(finished.state)
            )
            self._record(round_, content)
        return result

    def _record(self, round_: int, content: RecordDict) -> None:
        values, budget = sorted(values_of(content)), self._stage.privacy
        text = ", ".join(f"{name} {shape}" if shape else name for name, shape in values)
        row: dict[str, str | int] = {
            "method": self._preview.method,
            "stage": self._stage.name,
            "from round": round_ + 1,
            "values and shapes": text,
            "bytes": size_of(content),
            "epsilon of all rounds": "-" if budget is None else f"{budget.epsilon:g}",
        }
        self._preview.messages.setdefault((self._stage.name, text, size_of(content)), row)

    def close(self) -> None:
        """Close the wrapped runner."""
        self._runner.close()


def _kinds_not_sent(layout: Layout, sent: Tensor | None) -> set[str]:
    if sent is None:
        return set()
    return {str(entry.kind) for entry in layout if not bool(sent[entry.slice].any())}


def _toy_federation() -> Federation:
    """Return a federation that every method accepts: images, and all classes on every client."""
    random = generator(0, "what is sent")
    x = random.random((96, 1, 4, 4)).astype(np.float32)
    y = np.arange(96) % 3
    return Federation.from_arrays(x, y, client=np.arange(96) // 12)


def _joined(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "-"
