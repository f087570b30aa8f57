"""FedNova: updates are normalised by the number of local steps, so only their direction counts.

Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization", 2020. With a_k the effective number of client k's steps, the server moves by
``(sum p_k a_k) sum p_k (w_k - w) / a_k``; equal a_k make it FedAvg.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.combine import sum_of_rows
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics, by_samples
from unskew.composition.parts import Aspect, ClientSide, ServerSide, WeightedMean
from unskew.composition.upload_values import Value
from unskew.composition.values import About, Client, Finished, Server, Start, Tensors, Trained
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedNova(ClientSide, ServerSide):
    """The average of normalised updates, times the average effective number of steps."""

    about: ClassVar[About] = About(
        title="Normalised averaging",
        paper="Wang et al. 2020",
        kind="server",
        up="model, 1 number",
    )

    adds = frozenset({Aspect.WEIGHTS})
    replaces = frozenset({Aspect.COMBINATION})

    @property
    def receives(self) -> Mapping[str, Value]:
        """The effective step, which the server can compute too."""
        return {"effective_step": Value(low=0.0, times=None, sums_to="effective step")}

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Send the effective step; for Adam, whose steps have equal length, their number."""
        step = float(trained.steps) if trained.effective_step is None else trained.effective_step
        return Finished({"effective_step": torch.tensor(step, dtype=torch.float32)})

    def client_weights(self, server: Server) -> ClientWeighting:
        """Weight clients by sample counts: p_k of the paper."""
        return by_samples()

    def combine(
        self, server: Server, uploads: Uploads, mean: WeightedMean
    ) -> tuple[Tensor, Diagnostics]:
        """Average normalised updates; statistics and counters are averaged as usual."""
        vector, diagnostics = mean(uploads)
        steps = torch.stack(list(uploads.extras["effective_step"])).double()
        diagnostics = {**diagnostics, "effective_step": steps}
        if bool((steps == steps[0]).all()):
            return vector, diagnostics
        weights = diagnostics["weights"] * (diagnostics["weights"] @ steps) / steps
        trainable = uploads.layout.trainable
        parameters = sum_of_rows(uploads.parameters, weights.to(vector))
        parameters += float(1 - weights.sum()) * uploads.previous[:trainable]
        return torch.cat([parameters, vector[trainable:]]), diagnostics
