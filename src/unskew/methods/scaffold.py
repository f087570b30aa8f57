"""SCAFFOLD: control variates correct the clients' drift.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", 2020. A
client steps along ``g + c - c_k``, where c_k estimates its own gradient and c the mean gradient of
all clients.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.blocks import as_matrix
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics, uniform
from unskew.composition.parts import Aspect, ClientSide, ServerSide
from unskew.composition.upload_values import Value
from unskew.composition.values import (
    About,
    Client,
    Finished,
    Server,
    Start,
    Step,
    Tensors,
    Trained,
)
from unskew.errors import UnskewError
from unskew.methods.common.shared_coordinates import SharedCoordinates
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class SCAFFOLD(ClientSide, ServerSide):
    """Mean, with local gradients corrected by ``c - c_k``.

    For another server learning rate use ``scaffold+fedavgm:server_momentum=0,server_lr=…``.
    """

    needs_single_training = True
    adds = frozenset({Aspect.LOCAL_LOSS, Aspect.WEIGHTS})
    about: ClassVar[About] = About(
        title="Control variates",
        paper="Karimireddy et al. 2020",
        kind="objective",
        down="model, variate",
        up="model, variate",
    )

    @property
    def receives(self) -> Mapping[str, Value]:
        """The change of the client's control variate."""
        return {"control": Value(("shared",))}

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send the server's control variate, once there is one."""
        return server.state

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Compute the correction once per round."""
        shared = SharedCoordinates.of(client)
        correction = shared.spread(_control(shared, payload) - _control(shared, state))
        return replace(start, refs={"correction": correction})

    def loss_term(self, step: Step, refs: Tensors) -> Tensor:
        """Add the correction ``c - c_k`` to the gradient; the value of the loss is unchanged."""
        linear = (refs["correction"] * step.weights).sum()
        return linear - linear.detach()

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Update the client's control variate from its local steps; keep it, send the change."""
        if trained.effective_step is None:
            raise UnskewError("optimizer: scaffold estimates gradients from SGD steps; use 'sgd'")
        shared = SharedCoordinates.of(client)
        old = new = _control(shared, state)
        if trained.steps:
            new = shared.take(start.vector) - shared.take(trained.vector)
            new /= trained.effective_step  # in place: the vectors may be large
            new -= shared.take(start.refs["correction"])
        return Finished({"control": new - old}, {"control": new})

    def client_weights(self, server: Server) -> ClientWeighting:
        """Weight all clients equally, as their control variates are."""
        return uniform()

    def conclude(
        self, before: Server, after: Server, uploads: Uploads, diagnostics: Diagnostics
    ) -> tuple[Server, Diagnostics]:
        """Update the server's control variate by the mean change over all clients."""
        change = as_matrix(uploads.extras["control"]).sum(0)
        change /= uploads.num_clients_total
        control = before.state["control"] + change if "control" in before.state else change
        return replace(after, state={"control": control}), {}


def _control(shared: SharedCoordinates, tensors: Tensors) -> Tensor:
    """Return the server's or the client's control variate, which starts at zero."""
    return tensors["control"] if "control" in tensors else shared.zeros()
