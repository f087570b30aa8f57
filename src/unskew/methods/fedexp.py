"""FedExP: the server's step is longer the more the clients' updates disagree.

Jhunjhunwala, Wang and Joshi, "FedExP: Speeding Up Federated Averaging via Extrapolation", 2023.
With the updates D_k and their mean D, the server moves by
``max(1, mean_k ||D_k||^2 / (2 (||D||^2 + eps))) D``.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import Diagnostics
from unskew.composition.parts import Aspect, ClientSide, ServerSide
from unskew.composition.search_space import LogRange, SearchSpace
from unskew.composition.upload_values import Value
from unskew.composition.values import About, Client, Finished, Server, Start, Tensors, Trained
from unskew.methods.common.server_optimizer import after_step, change_of
from unskew.methods.common.shared_coordinates import SharedCoordinates
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedExP(ClientSide, ServerSide):
    """The aggregate, extrapolated by a factor of at least 1."""

    eps: Annotated[float, Field(ge=0)] = 1e-3
    """Added to the squared length of the mean update; larger gives shorter steps, and a very large
    one is FedAvg."""
    evaluate: Literal["average", "last"] = "average"
    """The model to evaluate: the "average" of the last two rounds' models, as the authors do, or
    the "last" one."""

    about: ClassVar[About] = About(
        title="Extrapolated server step",
        paper="Jhunjhunwala et al. 2023",
        kind="server",
        up="model, 1 number",
    )
    grid: ClassVar[SearchSpace] = {"eps": LogRange(1e-3, 2.0)}

    replaces = frozenset({Aspect.SERVER_STEP, Aspect.GLOBAL_MODEL})

    @property
    def receives(self) -> Mapping[str, Value]:
        """The squared length of the update."""
        return {"square": Value(low=0.0, times=1e6, at_most="squared movement")}

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Send the squared length of the update, so that the server needs only sums."""
        shared = SharedCoordinates.of(client)
        update = shared.take(trained.vector) - shared.take(start.received)
        return Finished({"square": update.square().sum(dtype=torch.float64).float()})

    def step(self, server: Server, vector: Tensor, uploads: Uploads) -> Server:
        """Extrapolate the change of the model."""
        squares = torch.stack(list(uploads.extras["square"])).double()
        shares = uploads.samples / uploads.samples.sum()
        change = change_of(server, vector, uploads)
        square = float(change.square().sum(dtype=torch.float64)) + self.eps
        factor = max(1.0, float(shares @ squares) / (2 * square)) if square else 1.0
        moved = vector  # at a factor of 1 to the last bit
        if factor > 1:
            moved = after_step(server, vector, uploads, factor * change)
        trainable = uploads.layout.trainable
        before = server.vector if server.state else moved  # the initial model is not averaged
        return Server(moved, {"before": before[:trainable], "factor": torch.tensor(factor)})

    def model(self, server: Server) -> Tensor:
        """Return the average of the last two models, with the statistics of the last."""
        if self.evaluate == "last" or "before" not in server.state:
            return server.vector
        before, model = server.state["before"], server.vector.clone()
        model[: len(before)] = torch.lerp(model[: len(before)], before, 0.5)
        return model

    def conclude(
        self, before: Server, after: Server, uploads: Uploads, diagnostics: Diagnostics
    ) -> tuple[Server, Diagnostics]:
        """Report the factor."""
        return after, {"extrapolation": after.state["factor"]}
