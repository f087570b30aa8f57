"""FedAS: received bodies are aligned with the client's features; well-trained clients count more.

Yang, Huang and Ye, "FedAS: Bridging Inconsistency in Personalized Federated Learning", 2024. As in
FedPer the head stays on its client. Before its training, a client fits the received body to the
mean features of its own last body, and the server weights clients by their Fisher information.
"""

from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics
from unskew.composition.method import Method
from unskew.composition.parts import Aspect, ClientSide, ServerSide
from unskew.composition.upload_values import Value
from unskew.composition.values import (
    About,
    Client,
    ExtraTraining,
    Finished,
    Server,
    Start,
    Step,
    Tensors,
    Trained,
)
from unskew.methods.common.features import distance_to_prototypes, features_of, prototypes_of
from unskew.methods.common.head import head_mask
from unskew.methods.fedper import FedPer
from unskew.models.functional import Batch
from unskew.models.layout import Layout
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedAS(FedPer, ClientSide, ServerSide):
    """FedPer with aligned bodies, and clients weighted by the trace of their Fisher matrix."""

    align_epochs: Annotated[int, Field(ge=0)] = 1
    """Epochs of the alignment per round. 0: none."""
    fisher_batch: Annotated[int, Field(ge=1)] = 16
    """Batch size of the gradients whose squares estimate the Fisher information."""

    tensor_scope: ClassVar[str] = "fedas"
    about: ClassVar[About] = About(
        title="Aligned bodies and synchronised clients",
        paper="Yang et al. 2024",
        kind="personal",
        level="personal",
        down="body",
        up="body, 1 number",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"align_epochs": (0, 1, 2)}

    adds = frozenset({Aspect.WEIGHTS})
    needs_classes = True

    @property
    def receives(self) -> Mapping[str, Value]:
        """The trace of the client's Fisher matrix."""
        return {"fisher": Value(low=0.0)}

    def extra_trainings(self, method: Method) -> tuple[ExtraTraining, ...]:
        """Align the received body with the client's features, before the training itself."""
        if not self.align_epochs:
            return ()
        alignment = _AlignmentTraining(parts=(_Alignment(),), round_method=method)
        return (ExtraTraining("alignment", alignment, self.align_epochs, _body_mask),)

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Start from the aligned body."""
        return replace(start, vector=state.get("aligned", start.vector))

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Send the trace of the Fisher matrix; keep the model, for the next alignment."""
        fisher = fisher_trace(client, trained.vector, self.fisher_batch)
        previous = {"previous": trained.vector.clone()} if self.align_epochs else {}
        return Finished({"fisher": fisher}, previous)

    def client_weights(self, server: Server) -> ClientWeighting:
        """Weight clients by the trace of their Fisher matrix."""
        return ClientWeighting("fisher", _by_fisher)


def _by_fisher(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
    traces = torch.stack(list(uploads.extras["fisher"])).double()
    weights = traces if bool(traces.any()) else uploads.samples
    return weights, {"fisher": traces}


def fisher_trace(client: Client, vector: Tensor, batch_size: int) -> Tensor:
    """Return the sum over batches of the squared norm of the loss's gradient, in evaluation mode.

    A batch that is not full counts in proportion to its size.
    """
    network = client.network
    trainable, device = network.layout.trainable, next(network.module.parameters()).device
    weights = vector[:trainable].to(device)
    buffers = network.buffers_of(vector[trainable:].to(device))
    trace = torch.zeros(())
    network.module.eval()
    for start in range(0, len(client.y), batch_size):
        rows = slice(start, start + batch_size)
        y = client.y[rows].to(device, network.goal.target_dtype)
        scale = torch.full((len(y),), 1 / len(y), device=device)
        batch = Batch(network.inputs(client.x[rows].to(device)), y, scale)
        with torch.enable_grad():
            leaf = weights.detach().requires_grad_()
            loss = (network.losses(leaf, buffers, batch) * scale).sum()
            (gradient,) = torch.autograd.grad(loss, leaf)
        trace += len(y) / batch_size * gradient.square().sum().cpu()
    network.module.train()
    return trace


def _body_mask(layout: Layout) -> Tensor:
    return ~head_mask(layout)


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class _Alignment(ClientSide):
    """The loss of the alignment: the distance of features from the prototypes."""

    name: ClassVar[str] = "alignment"
    replaces = frozenset({Aspect.LOSS})

    def losses(self, step: Step, refs: Tensors) -> Tensor:
        """Return each sample's mean squared distance to the prototype of its class."""
        with step.network.capture_passes() as passes:
            step.network(step.weights, step.buffers, step.batch.x)
        features = passes[0].features
        assert features is not None
        return distance_to_prototypes(features, refs["prototypes"], step.batch.y)


_PREVIOUS, _ALIGNED = f"{FedAS.tensor_scope}/previous", f"{FedAS.tensor_scope}/aligned"


@plain_dataclass(frozen=True, kw_only=True)
class _AlignmentTraining(Method):
    """The training of the received body towards the prototypes of the client's last model."""

    round_method: Method
    """The method of the round, which reads the received model and the client's state."""

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        client = replace(client, sent_mask=self.round_method.sent_mask(client.network.layout))
        received = self.round_method.received(client, payload, state)
        prototypes = prototypes_of(client, features_of(client, state.get(_PREVIOUS, received)))
        if _PREVIOUS not in state:  # a new client has nothing to align with
            prototypes = torch.zeros_like(prototypes)
        refs = self.parts[0].prefixed({"prototypes": prototypes})
        return Start(received, received, refs)

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        # Weight decay and running statistics would move the body of a new client too.
        aligned = trained.vector if _PREVIOUS in state else start.received
        return Finished(state={**state, _ALIGNED: aligned})
