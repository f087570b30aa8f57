"""Regression: the goal of a network that predicts a number, and the head that has its units."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass
from torch import Tensor, nn

from unskew.models.goals import Goal, SampleMetrics
from unskew.utils.specs import OPTIONS, build

if TYPE_CHECKING:
    from unskew.models.functional import Batch, Buffers, FunctionalModel


@checked_dataclass(frozen=True, config=OPTIONS)
class MSE:
    """Half the squared error, which is the Huber loss without its linear part."""

    def of(self, error: Tensor) -> Tensor:
        """Return each sample's loss, given its error."""
        return 0.5 * error.square()


@checked_dataclass(frozen=True, config=OPTIONS)
class Huber:
    """Half the squared error up to ``delta`` standard deviations, and linear beyond."""

    delta: Annotated[float, Field(gt=0)] = 1.0

    def of(self, error: Tensor) -> Tensor:
        """Return each sample's loss, given its error."""
        size = error.abs()
        return torch.where(
            size <= self.delta, 0.5 * error.square(), self.delta * (size - 0.5 * self.delta)
        )


LOSSES: dict[str, type[MSE] | type[Huber]] = {"mse": MSE, "huber": Huber}


def make_loss(spec: str) -> MSE | Huber:
    """Return the loss that a spec string such as ``huber:delta=2`` names."""
    return build(LOSSES, spec, "loss")


@dataclass(frozen=True)
class Regression(Goal):
    """Regression: a loss of errors in units of the target's standard deviation.

    In these units a learning rate does not depend on the units of the target. Predictions are in
    units of the target.
    """

    loss: MSE | Huber
    center: float = 0.0
    scale: float = 1.0
    """The mean and the standard deviation of the clients' training targets."""
    has_scaled_head: bool = False
    """Whether the head of the network converts its output to units of the target."""

    predicts = "values"
    target_dtype = torch.float32

    def losses(
        self, network: "FunctionalModel", weights: Tensor, buffers: "Buffers", batch: "Batch"
    ) -> Tensor:
        """Return each sample's loss."""
        predicted = network(weights, buffers, batch.x).reshape(batch.y.shape)
        return self.loss.of((predicted - batch.y) / self.scale)

    def metrics(
        self, network: "FunctionalModel", weights: Tensor, buffers: "Buffers", batch: "Batch"
    ) -> SampleMetrics:
        """Return each sample's loss."""
        return {"loss": self.losses(network, weights, buffers, batch).double()}

    def predictions(self, output: Tensor) -> Tensor:
        """Return the predicted values."""
        return output.double().reshape(len(output))


class ScaledLinear(nn.Linear):
    """A linear layer whose output is scaled and shifted by constants, which are not trained."""

    center: float
    scale: float

    def forward(self, x: Tensor) -> Tensor:
        """Return ``center + scale * (W x + b)``."""
        return self.center + self.scale * super().forward(x)


def with_goal(module: nn.Module, goal: Goal) -> nn.Module:
    """Return a module with a goal, and with a head in units of the target if the goal has one."""
    if isinstance(goal, Regression) and goal.has_scaled_head:
        head = getattr(module, "head", None)
        if isinstance(head, nn.Linear) and not isinstance(head, ScaledLinear):
            scaled = ScaledLinear(
                head.in_features, head.out_features, device="meta", bias=head.bias is not None
            )
            scaled.weight, scaled.bias = head.weight, head.bias
            scaled.center, scaled.scale = goal.center, goal.scale
            module.head = scaled
    module.goal = goal  # type: ignore[assignment]
    return module
