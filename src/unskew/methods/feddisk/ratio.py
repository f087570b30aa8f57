"""The ratio classifier: tells global from own samples, and so the ratio of their densities."""

from dataclasses import dataclass as plain_dataclass
from math import log, prod
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from unskew.densities.models import network_for
from unskew.methods.common.base import About, Client, Server, Start, Tensors
from unskew.methods.feddisk.global_density import drawn_from, thresholds
from unskew.methods.feddisk.on_device import PREFIX, OnDevice
from unskew.models.functional import Batch, Buffers, FunctionalModel
from unskew.models.made import MADESpec
from unskew.utils.specs import OPTIONS

RatioEstimator = Literal["generative", "classifier", "oracle"]

_LOOKS = range(8)
"""How often a sample's grey levels are made binary to take its mean log ratio."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Ratio(OnDevice):
    """A network h with one output, trained to answer 1 for the global and 0 for the own.

    - ``generative``: samples drawn from the global density against the client's own samples. Then
      ``h/(1-h)`` is the ratio p/q by construction.
    - ``classifier``, the paper's: the global density's outputs for the client's samples against
      the local density's outputs for the same samples.
    - ``oracle``: samples of all clients against the client's own, possible in a simulation only.
    """

    estimator: RatioEstimator = "generative"
    made: MADESpec = MADESpec()
    pool: Annotated[int, Field(ge=1)] = 4096
    sure: Annotated[float, Field(gt=0, lt=0.5)] = 1e-3
    """h is clipped to stay this far from 0 and 1."""

    stage: ClassVar[str] = "ratio"
    about: ClassVar[About] = About(
        title="Ratio classifier", paper="Nguyen et al. 2023", kind="densities"
    )

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send the oracle's samples along, and count them."""
        payload = super().broadcast(server, client)
        return {**payload, "pool": server.slots["pool"]} if "pool" in server.slots else payload

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        """Refer to what the client's samples are told from."""
        if self.estimator == "oracle":
            state = {**state, "pool": payload["pool"]}
        return super().prepare(client, payload, state)

    def references(self, client: Client, state: Tensors) -> Tensors:
        """Return the samples or densities that h learns to tell apart."""
        refs = dict(super().references(client, state))
        shape = tuple(client.x.shape[1:])
        if self.estimator == "oracle":
            refs["pool"] = client.network.inputs(state["pool"]).flatten(1)
        elif self.estimator == "generative":
            refs["pool"] = drawn_from(self.made, shape, refs["density"], self.pool)
            refs["thresholds"] = thresholds(shape, self.pool)
        else:
            network_for(self.made, shape)  # made here once, since vmap lets nothing be drawn
            # A client that could not train one finds nothing to tell apart: all weigh the same.
            refs["local"] = state.get(f"{PREFIX}local.best", refs["density"])
        return refs

    def noise_per_sample(self, network: FunctionalModel) -> int:
        """Ask for a global sample and for thresholds, by chance."""
        del network
        return 2

    def objective(
        self,
        network: FunctionalModel,
        weights: Tensor,
        buffers: Buffers,
        batch: Batch,
        refs: Tensors,
    ) -> Tensor:
        """Return the cross-entropy of telling the two apart, half of it for each."""
        own, other = self._pair(batch, refs)
        wrong = F.softplus(network(weights, buffers, own).squeeze(-1))
        missed = F.softplus(-network(weights, buffers, other).squeeze(-1))
        return ((wrong + missed) / 2 * batch.scale).sum()

    def _pair(self, batch: Batch, refs: Tensors) -> tuple[Tensor, Tensor]:
        """Return what h sees for a batch: the own (answer 0), and the global (answer 1)."""
        if self.estimator == "classifier":
            return self._outputs(batch.x, refs["local"]), self._outputs(batch.x, refs["density"])
        assert batch.noise is not None
        pool, x = refs["pool"], batch.x.flatten(1)
        picks = (batch.noise * len(pool)).long()
        other = pool[picks[..., 0]]
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
            looks = [network(best, {}, _binary(flat, _turn(levels, len(x), i))) for i in _LOOKS]
            logits = torch.stack(looks).mean(0)
        bound = log((1 - self.sure) / self.sure)
        return logits.squeeze(-1).double().clamp(-bound, bound)


def _binary(x: Tensor, levels: Tensor) -> Tensor:
    return (x > levels).to(x.dtype)


def _turn(levels: Tensor, count: int, turn: int) -> Tensor:
    """Return the next so many rows, from the first again after the last; a view if it can be."""
    start = turn * count % len(levels)
    if start + count <= len(levels):
        return levels[start : start + count]
    return levels[(torch.arange(count) + start) % len(levels)]


@plain_dataclass(frozen=True)
class RatioNetwork:
    """Builds h: one hidden layer of ReLU on the flattened sample, one output."""

    hidden: int

    def __call__(self, module: nn.Module, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build it."""
        del module, classes
        layers = nn.Linear(prod(shape), self.hidden), nn.ReLU(), nn.Linear(self.hidden, 1)
        return nn.Sequential(nn.Flatten(), *layers)
