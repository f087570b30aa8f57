"""The crew whose clients have an app and a training loop of their own: only the rule is ours."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, MessageType, RecordDict
from torch import Tensor

from unskew.engine.client import ClientContext
from unskew.engine.cohort import Result, Task
from unskew.engine.evaluate import Floats, Levels
from unskew.errors import UnskewError
from unskew.flower.backend import FlowerBackend
from unskew.flower.uploads import (
    Unusable,
    Upload,
    columns_of,
    figures,
    number,
    result_of,
    usable,
    whole_number,
)
from unskew.flower.wire import MODEL, named_tensors, to_arrays
from unskew.methods.common.base import Method, Trained
from unskew.methods.common.registry import name_of
from unskew.models.layout import Layout
from unskew.runs.checkpoint import Position

_CLIENT_HOOKS = (
    "stages", "adapt", "check", "broadcast", "prepare", "objective", "losses", "draws", "finish",
    "passes", "trains", "travels", "tuning",
)  # fmt: skip
_LOSSES = ("train_loss", "train-loss", "loss")
"""What apps call the training loss."""

SAMPLES = "num-examples"
"""What apps call the number of their samples."""

_MEASURED = re.compile(r"((eval(uate)?|test|val(id(ation)?)?)[-_])?(?P<figure>acc(uracy)?|loss)")
"""What apps call accuracy and loss of their test samples."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CustomLoopBackend(FlowerBackend):
    """Nodes that get and send a model as Flower's own strategies have it."""

    train_config: ConfigRecord
    evaluate_config: ConfigRecord

    def runner(self, context: ClientContext, stage: int, cohort: int) -> "CustomLoopRunner":
        """Return what lets nodes train."""
        del stage, cohort
        return CustomLoopRunner(self, context)

    def tests(self, context: ClientContext, position: Position) -> Levels:
        """Let nodes measure what they measure; figures that most tell are kept."""
        assert position.server is not None
        model, layout = context.method.model(position.server), context.network.layout
        content = letter(model, layout, self.evaluate_config, position.round)
        letters = dict.fromkeys(range(len(context.federation)), content)
        answers = self.nodes.ask(MessageType.EVALUATE, letters, patient=False)
        columns = columns_of(answers.contents)
        measured = {} if columns is None else with_usual_names(columns.metrics)
        return {"local": replace(columns, metrics=measured)} if columns and measured else {}


class CustomLoopRunner:
    """Trains clients by whatever their app does with a model."""

    kind = "per client"

    def __init__(self, backend: CustomLoopBackend, context: ClientContext) -> None:
        self._backend, self._context = backend, context

    def train(self, round_: int, tasks: Sequence[Task]) -> Result:
        """Send the model out, and make one result of the models that come back."""
        layout = self._context.network.layout
        config = self._backend.train_config
        content = letter(tasks[0].payload[MODEL], layout, config, round_ + 1)
        letters = {task.client: content for task in tasks}
        answers = self._backend.nodes.ask(MessageType.TRAIN, letters, patient=True)
        sent = {task.client: task.payload[MODEL] for task in tasks}
        uploads, refused = usable(
            answers.contents,
            lambda content: _read(content, layout),
            sent,
            None,
            layout,
            self._backend.bound,
        )
        refused = self._backend.nodes.named(refused, "rejected")
        return result_of(
            tasks, uploads, {}, layout.size, None, {**answers.refused, **refused}, answers.missing
        )

    def close(self) -> None:
        """Nothing to release: nodes stay connected."""


def with_usual_names(measures: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return what was measured by the names that reports know, accuracy and loss first.

    Apps call them ``eval_acc`` or ``test_loss``; how many samples there were is no measure.
    """
    named = {_usual_name(name): values for name, values in measures.items() if name != SAMPLES}
    first = [name for name in ("accuracy", "loss") if name in named]
    return {name: named[name] for name in dict.fromkeys([*first, *named])}


def _usual_name(name: str) -> str:
    what = _MEASURED.fullmatch(name)
    if what is None:
        return name
    return "loss" if what["figure"] == "loss" else "accuracy"


def refuse_if_client_matters(method: Method) -> None:
    """Complain about methods whose clients do more than train a model they are sent."""
    changed = [
        hook for hook in _CLIENT_HOOKS if getattr(type(method), hook) is not getattr(Method, hook)
    ]
    if method.wants_train_accuracy:
        changed.append("the training accuracy")
    if method.buffers == "local":
        changed.append("buffers=local")
    if changed:
        raise UnskewError(
            f"own_loop: {name_of(method)} needs unskew's part on the nodes ({', '.join(changed)}); "
            "make their app with unskew.flower.client_app"
        )


def letter(model: Tensor, layout: Layout, config: ConfigRecord, round_: int) -> RecordDict:
    """Return a message's content as Flower's own strategies write it."""
    arrays = to_arrays(named_tensors(model, layout))
    return RecordDict(
        {"arrays": arrays, "config": ConfigRecord({**config, "server-round": round_})}
    )


def vector_of(arrays: ArrayRecord, layout: Layout) -> Tensor:
    """Return the vector of a module's state, which must be that of the layout."""
    missing = [entry.name for entry in layout if entry.name not in arrays]
    if missing or len(arrays) != len(layout.entries):
        raise Unusable(f"its arrays are not those of the network (missing: {missing})")
    vector = torch.empty(layout.size)
    for entry in layout:
        array = arrays[entry.name].numpy()
        if array.shape != entry.shape:
            raise Unusable(f"its {entry.name} has shape {array.shape}, not {entry.shape}")
        tensor = torch.from_numpy(np.array(array))
        if tensor.dtype != entry.dtype:
            raise Unusable(f"its {entry.name} is of {tensor.dtype}, not {entry.dtype}")
        vector[entry.place] = tensor.flatten()
    return vector


def _read(content: RecordDict, layout: Layout) -> Upload:
    arrays, metrics = list(content.array_records.values()), figures(content)
    if len(arrays) != 1:
        raise Unusable(f"its answer has {len(arrays)} records of arrays, not one")
    vector = vector_of(arrays[0], layout)
    loss = next((number(metrics, name) for name in _LOSSES if name in metrics), float("nan"))
    samples = whole_number(metrics, SAMPLES)
    finite = bool(torch.isfinite(vector).all())
    return Upload(Trained(vector, 1, loss, finite=finite), {}, samples, keeps=False)
