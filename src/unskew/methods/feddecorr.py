"""FedDecorr: a term of the local loss decorrelates the features of a batch.

Shi, Liang, Zhang, Tan and Bai, "Towards Understanding and Mitigating Dimensional Collapse in
Heterogeneous Federated Learning", 2023. Clients with few classes learn features that lie in a
subspace; the term ``beta mean_ij K_ij^2`` of the correlations K of different features prevents it.
"""

from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.composition.method import Method
from unskew.composition.parts import Aspect, ClientSide, Setup
from unskew.composition.search_space import LogRange, SearchSpace
from unskew.composition.values import About, Step, Tensors
from unskew.errors import UnskewError
from unskew.models.functional import FunctionalModel
from unskew.models.layout import head_name
from unskew.utils.specs import OPTIONS

_LEAST_VARIANCE = 1e-8
"""Added to each feature's variance, as in the authors' code: a constant feature has no scale."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedDecorr(ClientSide, Setup):
    """FedAvg with a penalty for correlated features."""

    beta: Annotated[float, Field(ge=0)] = 0.1
    """Strength of the penalty. 0 is FedAvg."""
    literal: bool = False
    """Whether the penalty is multiplied by the size of the batch, as in the authors' code."""

    about: ClassVar[About] = About(
        title="Decorrelated features", paper="Shi et al. 2023", kind="objective"
    )
    grid: ClassVar[SearchSpace] = {"beta": LogRange(0.01, 10.0)}

    adds = frozenset({Aspect.LOCAL_LOSS})
    reads_forward_pass = True

    def check(self, method: Method, network: FunctionalModel, samples: Tensor) -> None:
        """Reject networks without a head, whose inputs are the features."""
        if head_name(network.module) is None:
            raise UnskewError(
                "model: feddecorr needs the input of a linear head; let the network end in "
                "nn.Linear"
            )

    def loss_term(self, step: Step, refs: Tensors) -> Tensor | None:
        """Return beta times the mean squared correlation of two different features."""
        if not self.beta:
            return None
        assert step.forward_pass is not None
        assert step.forward_pass.features is not None
        present = (step.batch.scale != 0).to(step.batch.scale)
        penalty = mean_squared_correlation(step.forward_pass.features.flatten(1), present)
        return self.beta * (penalty * present.sum() if self.literal else penalty)


def mean_squared_correlation(features: Tensor, present: Tensor) -> Tensor:
    """Return the mean of K_ij^2 over i != j, with K the correlations over the present samples.

    ``present`` is 1 for samples and 0 for padding. A single sample has no correlations.
    """
    count, width, rows = present.sum(), features.shape[-1], present.unsqueeze(-1)
    centered = rows * (features - (rows * features).sum(0) / count.clamp(min=1))
    variance = centered.square().sum(0) / (count - 1).clamp(min=1)
    scaled = centered / (variance + _LEAST_VARIANCE).sqrt()
    squares = (scaled.T @ scaled / count.clamp(min=1)).square()
    return (squares.sum() - squares.diagonal().sum()) / max(1, width * (width - 1))
