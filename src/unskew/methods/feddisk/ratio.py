"""The ratio classifier: separates global from own samples, which gives their density ratio."""

from dataclasses import dataclass as plain_dataclass
from math import log, prod
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from unskew.composition.values import About, Client, Server, Start, Step, Tensors
from unskew.densities.models import network_for
from unskew.methods.feddisk.global_density import samples_from, thresholds
from unskew.methods.feddisk.on_device import OnDevice
from unskew.models.functional import Batch
from unskew.models.made import MADESpec
from unskew.utils.specs import OPTIONS

RatioEstimator = Literal["generative", "classifier", "oracle"]

_BINARISATIONS = range(8)
"""A sample's log ratio is the mean over this many random binary versions of it."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Ratio(OnDevice):
    """A network h with one output, trained to predict 1 for global and 0 for own samples.

    - ``generative``: samples of the global density against the client's own samples. Then
      ``h/(1-h)`` is the ratio p/q by construction.
    - ``classifier``, the paper's: the global density's outputs for the client's samples against
      the local density's outputs for the same samples.
    - ``oracle``: samples of all clients against the client's own, possible only in a simulation.
    """

    estimator: RatioEstimator = "generative"
    made: MADESpec = MADESpec()
    global_samples: Annotated[int, Field(ge=1)] = 4096
    margin: Annotated[float, Field(gt=0, lt=0.5)] = 1e-3
    """h is clipped to between margin and 1 - margin."""

    tensor_scope: ClassVar[str] = "feddisk"
    stage_name: ClassVar[str] = "ratio"
    noise_per_sample: ClassVar[int] = 2
    """Random indices of a global sample and of a row of thresholds."""
    about: ClassVar[About] = About(
        title="Ratio classifier", paper="Nguyen et al. 2023", kind="densities"
    )

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Also send the oracle's samples, so that their traffic is counted."""
        payload = super().broadcast(server, client)
        return (
            {**payload, "global_samples": server.state["global_samples"]}
            if "global_samples" in server.state
            else payload
        )

    def references(self, client: Client, state: Tensors) -> Tensors:
        """Return the samples or densities that h learns to separate."""
        refs = dict(super().references(client, state))
        shape = tuple(client.x.shape[1:])
        if self.estimator == "oracle":
            refs["global_samples"] = client.network.inputs(state["global_samples"]).flatten(1)
        elif self.estimator == "generative":
            refs["global_samples"] = samples_from(
                self.made, shape, refs["density"], self.global_samples
            )
            refs["thresholds"] = thresholds(shape, self.global_samples)
        else:
            network_for(self.made, shape)  # fills the cache: vmap forbids drawing random numbers
            # Without a local density there is nothing to separate: all weights are equal.
            refs["local"] = state.get("local.best", refs["density"])
        return refs

    def losses(self, step: Step, refs: Tensors) -> Tensor:
        """Return the cross-entropy of the classifier, half for each class."""
        own, other = self._pair(step.batch, refs)
        own_loss = F.softplus(step.network(step.weights, step.buffers, own).squeeze(-1))
        other_loss = F.softplus(-step.network(step.weights, step.buffers, other).squeeze(-1))
        return (own_loss + other_loss) / 2

    def _pair(self, batch: Batch, refs: Tensors) -> tuple[Tensor, Tensor]:
        """Return the inputs of h for a batch: own samples (label 0) and global ones (label 1)."""
        if self.estimator == "classifier":
            return self._outputs(batch.x, refs["local"]), self._outputs(batch.x, refs["density"])
        assert batch.noise is not None
        samples, x = refs["global_samples"], batch.x.flatten(1)
        picks = (batch.noise * len(samples)).long()
        other = samples[picks[..., 0]]
        if self.estimator == "oracle":
            return x, other
        return _binary(x, refs["thresholds"][picks[..., 1]]), other

    def _outputs(self, x: Tensor, density: Tensor) -> Tensor:
        return torch.sigmoid(network_for(self.made, tuple(x.shape[1:]))(density, {}, x))

    @torch.no_grad()
    def log_ratio(self, client: Client, best: Tensor, start: Start) -> Tensor | None:
        """Return the logits of h, whose exponential is ``h/(1-h)``."""
        network, refs = client.network, start.refs
        x = network.inputs(client.x)
        if self.estimator == "classifier":
            logits = network(best, {}, self._outputs(x, refs["local"]))
        elif self.estimator == "oracle":
            logits = network(best, {}, x.flatten(1))
        else:
            flat, levels = x.flatten(1), refs["thresholds"]
            repeats = [
                network(best, {}, _binary(flat, _block(levels, len(x), i))) for i in _BINARISATIONS
            ]
            logits = torch.stack(repeats).mean(0)
        bound = log((1 - self.margin) / self.margin)
        return logits.squeeze(-1).double().clamp(-bound, bound)


def _binary(x: Tensor, levels: Tensor) -> Tensor:
    return (x > levels).to(x.dtype)


def _block(levels: Tensor, count: int, number: int) -> Tensor:
    """Return the given block of ``count`` rows, wrapping around at the end; a view if possible."""
    start = number * count % len(levels)
    if start + count <= len(levels):
        return levels[start : start + count]
    return levels[(torch.arange(count) + start) % len(levels)]


@plain_dataclass(frozen=True)
class RatioNetwork:
    """Builds h: one hidden layer of ReLU on the flattened sample, one output."""

    hidden: int

    def __call__(self, module: nn.Module, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network."""
        del module, classes
        layers = nn.Linear(prod(shape), self.hidden), nn.ReLU(), nn.Linear(self.hidden, 1)
        return nn.Sequential(nn.Flatten(), *layers)
