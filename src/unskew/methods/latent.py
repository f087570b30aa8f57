"""Latent discrepancy: clients whose codes in a common VAE lie far from the prior count less.

Page, "Addressing Statistical Heterogeneity through Generative Similarity-Based Comparison in
Federated Learning", thesis at TU Delft, 2024. A beta-VAE is learned by FedAvg; every client encodes
its samples and tells how far the codes are from N(0, I) by the Wasserstein-1 distance; FedDisco's
formula turns distances into weights, with which the task is trained from scratch.
"""

from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from unskew.aggregation.discrepancy import OnDegenerate, discrepancy
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting
from unskew.densities.models import network_for
from unskew.densities.vae_codes import distance_to_prior, has_codes
from unskew.errors import UnskewError
from unskew.methods.common.base import (
    About,
    Client,
    Finished,
    Method,
    Server,
    Stage,
    Start,
    Tensors,
    Trained,
)
from unskew.methods.common.once import has_reached, having_reached, with_news
from unskew.methods.fedavg import FedAvg
from unskew.models.functional import FunctionalModel
from unskew.models.layout import Layout
from unskew.models.mlp import Widths
from unskew.models.vae import VAESpec
from unskew.utils.specs import OPTIONS

Count = Annotated[int, Field(ge=1)]
_DISTANCE = "latent.distance"


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Latent(Method):
    """Weights ``max(0, p_k - alpha d_k + b)`` with d_k the distance of a client's codes.

    Where the task itself is a VAE, the codes are those of its own kind of network; else of a VAE
    with the options here.
    """

    alpha: Annotated[float, Field(ge=0)] = 0.5
    """How much the distance lowers a client's weight; with b = 0 too, 0 is FedAvg."""
    b: Annotated[float, Field(ge=0)] = 0.0
    """Added to every weight before those below 0 become 0; the larger, the more even they are."""
    rescale: bool = True
    """Whether distances are divided by their sum over the round's clients; the thesis does not."""
    on_degenerate: OnDegenerate = "fedavg"
    """Where no client is left a weight: take those of "fedavg" and warn, or "raise" an error."""
    draws_per_sample: Count = 1
    """How many codes are drawn of each sample."""
    every: Annotated[int, Field(ge=0)] = 0
    """Clients measure the task's own VAE every so many rounds, and none is trained before it.
    0: they measure once, by a VAE that is trained before the task."""
    encoder: Widths = "512-256"
    """Widths of the VAE's encoder, such as 512-256; the decoder mirrors them."""
    codes: Count = 2
    """How many numbers a code has."""
    beta: Annotated[float, Field(ge=0)] = 10.0
    """Weight of the codes' divergence from the prior in the VAE's loss."""
    mean: float = 0.0
    """Subtracted from the VAE's inputs."""
    sd: Annotated[float, Field(gt=0)] = 1.0
    """The VAE's inputs, less mean, are divided by it."""
    vae_rounds: Count | None = None
    """Rounds of the VAE; None: as many as the run's."""
    vae_epochs: Count | None = None
    """Local epochs in a round of the VAE; None: as the run's."""
    vae_lr: Annotated[float, Field(gt=0)] = 1e-3
    """Adam's learning rate for the VAE."""

    about: ClassVar[About] = About(
        title="Distance of latent codes from the prior",
        paper="Page 2024",
        kind="densities",
        down="model, VAE (before)",
        up="model, 1 number, VAE (before)",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"alpha": (0.1, 0.5, 0.9)}
    may_be_undefined: ClassVar[frozenset[str]] = frozenset({_DISTANCE})

    def stages(self) -> tuple[Stage, ...]:
        """Train a VAE, then the task with the weights that come of it."""
        if self.every:
            return super().stages()
        settings: dict[str, Any] = {"optimizer": "adam", "lr": self.vae_lr, "lr_decay": 1.0}
        settings |= {"momentum": 0.0, "weight_decay": 0.0}
        if self.vae_epochs is not None:
            settings["epochs"] = self.vae_epochs
        vae = Stage(
            "vae", FedAvg(), self.vae_rounds, _Encoder(self._recipe), settings, learns_density=True
        )
        return (vae, *super().stages())

    def check(self, network: FunctionalModel, samples: Tensor) -> None:
        """Re-weighing takes a task that encodes."""
        super().check(network, samples)
        if self.every and not has_codes(network.module):
            raise UnskewError(
                "method 'latent': every re-weighs by the codes of the task's own network, and this "
                "one has none; use model vae, or every=0"
            )

    def begin(self, vector: Tensor, layout: Layout, earlier: Mapping[str, Server]) -> Server:
        """Have the VAE ready to be sent; the task starts from its own first weights."""
        server = super().begin(vector, layout, earlier)
        own = {"vae": earlier["vae"].vector} if "vae" in earlier else {"played": torch.tensor(0)}
        return replace(server, slots={**server.slots, **own})

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send the VAE once to each client, or say when it is time to measure anew."""
        payload = with_news(super().broadcast(server, client), server, client, "vae")
        if not self._measures(server):
            return payload
        due = int(server.slots["played"]) % self.every == 0
        if not due and has_reached(server, client):
            return payload
        return {**payload, "measure": torch.ones(())}

    def _measures(self, server: Server) -> bool:
        """Tell whether clients measure by the task's encoder: all in turn, newcomers at once."""
        return "played" in server.slots and int(server.slots["played"]) >= self.every

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        """Measure the distance of the client's codes, if it is time to."""
        start = super().prepare(client, payload, state)
        distance = state.get(_DISTANCE, torch.tensor(torch.nan))
        if len(client.y) and ("vae" in payload or "measure" in payload):
            network = self._encoder_of(client)
            vector = payload["vae"] if "vae" in payload else payload["model"]
            found = distance_to_prior(
                network, vector, client.x, client.id, client.seed, self.draws_per_sample
            )
            distance = torch.tensor(found)
        return replace(start, refs={**start.refs, _DISTANCE: distance})

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Send the distance, one number, and keep it."""
        finished = super().finish(client, start, trained, state)
        distance = {_DISTANCE: start.refs[_DISTANCE]}
        return Finished({**finished.extras, **distance}, {**finished.state, **distance})

    def weightings(self, server: Server) -> tuple[ClientWeighting, ...]:
        """Add weights by distance, which hold the sample counts already."""
        own = discrepancy(_distances, self.alpha, self.b, self.rescale, self.on_degenerate)
        return (*super().weightings(server), own)

    def aggregate(self, server: Server, uploads: Uploads) -> tuple[Server, dict[str, Any]]:
        """Note who has the VAE or has measured, and how many rounds were played."""
        updated, diagnostics = super().aggregate(server, uploads)
        if "vae" in server.slots or self._measures(server):
            updated = having_reached(updated, uploads)
        if "played" in server.slots:
            slots = {**updated.slots, "played": server.slots["played"] + 1}
            updated = replace(updated, slots=slots)
        return updated, diagnostics

    @property
    def _recipe(self) -> VAESpec:
        return VAESpec(
            hidden=self.encoder, latent=self.codes, beta=self.beta, mean=self.mean, sd=self.sd
        )

    def _encoder_of(self, client: Client) -> FunctionalModel:
        if has_codes(client.network.module):
            return client.network
        return network_for(self._recipe, tuple(client.x.shape[1:]))


@plain_dataclass(frozen=True)
class _Encoder:
    """Returns the run's own network if it encodes, else builds a VAE."""

    recipe: VAESpec

    def __call__(self, module: nn.Module, shape: tuple[int, ...], classes: int) -> nn.Module:
        return module if has_codes(module) else self.recipe.build(shape, classes)


def _distances(uploads: Uploads) -> Tensor:
    """Return the clients' distances; before all are known, everyone is equally far."""
    told = torch.stack(list(uploads.extras[_DISTANCE])).double()
    return told if bool(torch.isfinite(told).all()) else torch.zeros_like(told)
