"""FedCM: local steps mix the gradient with the direction of the last global update.

Xu, Wang, Wang and Yao, "FedCM: Federated Learning with Client-level Momentum", 2021. A client steps
along ``alpha g + (1 - alpha) D``, where D is what a local step of the last round was on average, as
a gradient. With alpha = 1 it is FedAvg.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import Diagnostics
from unskew.composition.parts import Aspect, ClientSide, ServerSide
from unskew.composition.search_space import SearchSpace
from unskew.composition.upload_values import Value
from unskew.composition.values import (
    About,
    Client,
    Finished,
    Perturbation,
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
class FedCM(ClientSide, ServerSide):
    """FedAvg with momentum from round to round in the local steps."""

    alpha: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of the client's own gradient; the momentum has the rest. 1 is FedAvg."""

    about: ClassVar[About] = About(
        title="Server momentum in local steps",
        paper="Xu et al. 2021",
        kind="objective",
        down="model, variate",
        up="model, 1 number",
    )
    grid: ClassVar[SearchSpace] = {"alpha": (0.05, 0.1, 0.5, 0.8)}

    replaces = frozenset({Aspect.PERTURBATION})

    @property
    def receives(self) -> Mapping[str, Value]:
        """How far a client's steps move a coordinate whose gradient is always 1."""
        return {"effective_step": Value(low=0.0, times=None, sums_to="effective step")}

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send the momentum, once there is one."""
        return server.state

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Keep the momentum; coordinates that stay on the client follow their gradient alone."""
        shared = SharedCoordinates.of(client)
        trained = SharedCoordinates.trained(client.network.layout)
        refs = {"momentum": trained.spread(payload.get("momentum", trained.zeros()))}
        if shared.mask is not None:
            refs["share"] = torch.where(shared.mask, self.alpha, 1.0)
        return replace(start, refs=refs)

    def perturbation(self, step: Step, refs: Tensors) -> Perturbation:
        """Mix the gradient with the momentum."""
        no_shift = torch.zeros_like(step.weights)
        if self.alpha == 1:
            return Perturbation(no_shift)
        return Perturbation(no_shift, refs.get("share", self.alpha), refs["momentum"])

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Send the effective step, by which the server turns updates into gradients."""
        if trained.effective_step is None:
            raise UnskewError(
                f"optimizer: {self.name} estimates gradients from SGD steps; use 'sgd'"
            )
        return Finished({"effective_step": torch.tensor(trained.effective_step)})

    def conclude(
        self, before: Server, after: Server, uploads: Uploads, diagnostics: Diagnostics
    ) -> tuple[Server, Diagnostics]:
        """Divide the global update by the clients' mean effective step."""
        steps = torch.stack(list(uploads.extras["effective_step"])).double()
        mean = float((steps * uploads.samples).sum() / uploads.samples.sum().clamp(min=1))
        trained = SharedCoordinates.trained(uploads.layout)
        update = trained.take(before.vector - after.vector)
        momentum = update / mean if mean else torch.zeros_like(update)
        return replace(after, state={"momentum": momentum}), {}
