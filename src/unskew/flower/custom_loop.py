"""The backend for nodes with a custom app and training loop: only the server runs unskew."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, MessageType, RecordDict
from torch import Tensor

from unskew.composition.method import Method
from unskew.composition.values import Trained
from unskew.engine.client import ClientContext
from unskew.engine.cohort import ClientTask, CohortResult
from unskew.engine.evaluate import Levels
from unskew.errors import UnskewError
from unskew.flower.backend import FlowerBackend
from unskew.flower.greeting import Admission
from unskew.flower.metric_names import with_standard_names
from unskew.flower.uploads import (
    UnusableReply,
    Upload,
    cohort_result,
    numeric_metrics,
    read_count,
    read_number,
    read_uploads,
    tabulate_metrics,
)
from unskew.flower.wire import MODEL, SAMPLES, named_tensors, to_arrays
from unskew.models.layout import Layout
from unskew.runs.checkpoint import Position

_LOSSES = ("train_loss", "train-loss", "loss")
"""The names that apps use for the training loss."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CustomLoopBackend(FlowerBackend):
    """Nodes that receive and send a model in the format of Flower's strategies."""

    admission: Admission
    train_config: ConfigRecord
    evaluate_config: ConfigRecord

    def runner(self, context: ClientContext, stage_index: int, cohort: int) -> "CustomLoopRunner":
        """Return the runner that trains on the nodes."""
        del stage_index, cohort
        return CustomLoopRunner(self, context)

    def evaluate_on_nodes(self, context: ClientContext, position: Position) -> Levels:
        """Evaluate on the nodes and keep the metrics that most of them report."""
        assert position.server is not None
        model, layout = context.method.model(position.server), context.network.layout
        content = model_message(model, layout, self.evaluate_config, position.round)
        contents = dict.fromkeys(range(len(context.federation)), content)
        replies = self.ask_to_evaluate(MessageType.EVALUATE, contents)
        table = tabulate_metrics(replies.contents)
        measures = {} if table is None else with_standard_names(table.metrics)
        return {"local": replace(table, metrics=measures)} if table and measures else {}


class CustomLoopRunner:
    """Trains clients with the training loop of their app."""

    kind = "per client"

    def __init__(self, backend: CustomLoopBackend, context: ClientContext) -> None:
        self._backend, self._context = backend, context

    def train(self, round_: int, tasks: Sequence[ClientTask]) -> CohortResult:
        """Send the model to the nodes and combine the models they return into one result."""
        layout = self._context.network.layout
        for task in tasks:
            if besides := sorted(set(task.payload) - {MODEL}):
                raise UnskewError(
                    f"custom_loop: {self._context.method.spec} sends {besides[0]} besides the "
                    "model; create the nodes' app with unskew.flower.client_app"
                )
        config = self._backend.train_config
        content = model_message(tasks[0].payload[MODEL], layout, config, round_ + 1)
        contents = {task.client: content for task in tasks}
        replies = self._backend.nodes.request(MessageType.TRAIN, contents, wait_for_quorum=True)
        uploads, rejected = read_uploads(
            replies.contents, lambda _, content: _read_upload(content, layout), ()
        )
        names = self._backend.nodes.registry.names
        counts = {names[k]: upload.samples for k, upload in uploads.items()}
        large = self._backend.admission.too_large(counts, "samples", "large_nodes")
        rejected |= {k: large[names[k]] for k in uploads if names[k] in large}
        uploads = {k: upload for k, upload in uploads.items() if k not in rejected}
        rejected = self._backend.nodes.with_names(rejected)
        return cohort_result(
            tasks, uploads, {}, layout.size, None, {**replies.refused, **rejected}, replies.missing
        )

    def close(self) -> None:
        """Do nothing: the nodes stay connected."""


def check_needs_no_client_code(method: Method) -> None:
    """Raise for a method whose clients do more than train the model they receive."""
    needed = [part.name for part in method.parts if part.affects_clients]
    if any(part.buffers == "local" for part in method.parts):
        needed.append("buffers=local")
    if needed:
        raise UnskewError(
            f"custom_loop: {method.spec} needs unskew's client code for {', '.join(needed)}; "
            "create the nodes' app with unskew.flower.client_app"
        )


def model_message(model: Tensor, layout: Layout, config: ConfigRecord, round_: int) -> RecordDict:
    """Return a message's content in the format of Flower's strategies."""
    arrays = to_arrays(named_tensors(model, layout))
    return RecordDict(
        {"arrays": arrays, "config": ConfigRecord({**config, "server-round": round_})}
    )


def vector_of(arrays: ArrayRecord, layout: Layout) -> Tensor:
    """Flatten the arrays of a module's state; raise if they do not match the layout."""
    missing = [entry.name for entry in layout if entry.name not in arrays]
    if missing or len(arrays) != len(layout.entries):
        raise UnusableReply(f"the arrays are not those of the network (missing: {missing})")
    vector = torch.empty(layout.size)
    for entry in layout:
        array = arrays[entry.name].numpy()
        if array.shape != entry.shape:
            raise UnusableReply(
                f"the array {entry.name} has shape {array.shape}, not {entry.shape}"
            )
        tensor = torch.from_numpy(np.array(array))
        if tensor.dtype != entry.dtype:
            raise UnusableReply(f"the array {entry.name} is of {tensor.dtype}, not {entry.dtype}")
        vector[entry.slice] = tensor.flatten()
    return vector


def _read_upload(content: RecordDict, layout: Layout) -> Upload:
    arrays, metrics = list(content.array_records.values()), numeric_metrics(content)
    if len(arrays) != 1:
        raise UnusableReply(f"its reply has {len(arrays)} array records instead of one")
    vector = vector_of(arrays[0], layout)
    loss = next((read_number(metrics, name) for name in _LOSSES if name in metrics), float("nan"))
    samples = read_count(metrics, SAMPLES)
    finite = bool(torch.isfinite(vector).all())
    return Upload(Trained(vector, 1, loss, finite=finite), {}, samples, has_new_state=False)
