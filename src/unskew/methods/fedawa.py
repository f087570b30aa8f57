"""FedAWA: the server adapts the clients' weights to how well their updates agree.

Shi, Zhao, Zhang, Zhou, Guo and Chang, "FedAWA: Adaptive Optimization of Aggregation Weights in
Federated Learning Using Client Vectors", 2025. With the updates ``t_k = w_k - w`` and their mean
``t = sum_k a_k t_k``, gradient steps on the weights a decrease
``sum_k a_k (||t_k - t|| + d(w_k, w))``.
"""

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.blocks import on_blocks
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics
from unskew.composition.parts import Aspect, ServerSide
from unskew.composition.search_space import LogRange, SearchSpace
from unskew.composition.values import About, Server, Tensors
from unskew.utils.specs import OPTIONS

_BETAS = (0.5, 0.999)
"""The decay rates of Adam in the authors' code."""
_EPS = 1e-6
"""What Adam adds to the size of a gradient. Its usual 1e-8 would turn rounding errors of clients
that agree into steps of full length."""
_ROUNDING = 1e-6
"""Distances between updates below this part of a model's length are rounding errors."""
_LEAST_SQUARE = 1e-30
"""The root of zero has no derivative."""
_LEAST_NORM = 1e-8
"""The least product of norms in a cosine, as in the authors' code."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedAWA(ServerSide):
    """Weights that start at the sample counts and follow the agreement of updates."""

    weight_lr: Annotated[float, Field(ge=0)] = 0.001
    """Adam's learning rate for the logarithms of the weights. 0 is FedAvg."""
    steps: Annotated[int, Field(ge=1)] = 1
    """Steps per round. Many steps give all weight to one client."""
    distance: Literal["cosine", "squared"] = "cosine"
    """Distance of a client's model from the previous global model: one minus their "cosine", or
    the mean "squared" difference of a coordinate."""
    literal: bool = False
    """Whether to weight as the authors' code does: weights start at the softmax of the sample
    shares, which is nearly uniform, and the last step of a round takes effect in the next."""

    about: ClassVar[About] = About(
        title="Weights optimised on updates",
        paper="Shi et al. 2025 (FedAWA)",
        kind="server",
        needs_individual_updates=True,
    )
    grid: ClassVar[SearchSpace] = {"weight_lr": LogRange(0.001, 0.1)}

    adds = frozenset({Aspect.WEIGHTS})

    def receive(self, server: Server, uploads: Uploads) -> Tensors:
        """Take the round's steps on the logarithms of its clients' factors."""
        logs = _extended(server.state.get("logs"), uploads)
        ids, gram = list(uploads.clients), _inner_products(uploads)
        distance = _distances(gram, self.distance, uploads.layout.trainable)
        least = max(_ROUNDING**2 * float(gram.diagonal().mean()), _LEAST_SQUARE)
        leaf = logs[ids].clone().requires_grad_()
        before, start = leaf.detach().clone(), self._start(uploads).log()
        optimizer = torch.optim.Adam([leaf], self.weight_lr, _BETAS, _EPS)
        for _ in range(self.steps):
            before = leaf.detach().clone()
            with torch.enable_grad():
                loss = disagreement((start + leaf).softmax(0), gram[:-1, :-1], distance, least)
                (leaf.grad,) = torch.autograd.grad(loss, leaf)
            optimizer.step()
        state = {"logs": logs.clone(), "used": logs.clone()}
        state["logs"][ids] = leaf.detach()
        state["used"][ids] = before if self.literal else leaf.detach()
        return state

    def client_weights(self, server: Server) -> ClientWeighting:
        """Weight clients by their start times their factor."""

        def derive(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
            logs = server.state["used"][list(uploads.clients)]
            factors = (logs - logs.max()).exp()  # cannot overflow, and is exactly 1 if all are 0
            return self._start(uploads) * factors, {"factors": factors}

        return ClientWeighting("fedawa", derive)

    def _start(self, uploads: Uploads) -> Tensor:
        """Return the weights before any step, up to a factor."""
        if self.literal:
            return (uploads.samples / uploads.samples.sum()).exp()
        return uploads.samples


def disagreement(weights: Tensor, gram: Tensor, distance: Tensor, least: float) -> Tensor:
    """Return ``sum_k a_k (||t_k - sum_j a_j t_j|| + d_k)`` from the updates' inner products.

    Squared distances below ``least`` count as equal and have no gradient.
    """
    with_mean = gram @ weights
    squares = gram.diagonal() - 2 * with_mean + weights @ with_mean
    return weights @ (squares.clamp(min=least).sqrt() + distance)


def _inner_products(uploads: Uploads) -> Tensor:
    """Return all inner products of the updates, and of the previous model as the last row."""

    def of_block(block: Tensor, _: Tensor, columns: slice) -> Tensor:
        previous = uploads.previous[columns]
        rows = torch.cat([block - previous, previous.unsqueeze(0)]).double()
        return rows @ rows.T

    return torch.stack(on_blocks(uploads.parameters, of_block)).sum(0).cpu()


def _distances(gram: Tensor, kind: str, coordinates: int) -> Tensor:
    """Return each client's distance from the previous model w, with ``w_k = w + t_k``."""
    moved = gram.diagonal()[:-1]
    if kind == "squared":
        return moved / coordinates
    along, previous = gram[:-1, -1], gram[-1, -1]
    norms = previous.sqrt() * (previous + 2 * along + moved).clamp(min=0).sqrt()
    return 1 - (previous + along) / norms.clamp(min=_LEAST_NORM)


def _extended(logs: Tensor | None, uploads: Uploads) -> Tensor:
    """Return the logarithms of all clients' factors; a new client starts at 0."""
    known = torch.zeros(0, dtype=torch.float64) if logs is None else logs
    missing = max(0, max(uploads.clients) + 1 - len(known))
    return torch.cat([known, known.new_zeros(missing)])
