"""Latent discrepancy: clients whose codes in a common VAE are far from the prior get less weight.

Page, "Addressing Statistical Heterogeneity through Generative Similarity-Based Comparison in
Federated Learning", thesis at TU Delft, 2024. A beta-VAE is trained by FedAvg; every client encodes
its samples and sends the Wasserstein-1 distance of the codes from N(0, I); FedDisco's formula turns
distances into weights, with which the task is trained from scratch.
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
from unskew.composition.method import Method
from unskew.composition.parts import Aspect, ClientSide, ServerSide, Setup
from unskew.composition.upload_values import Value
from unskew.composition.values import (
    About,
    Beginning,
    Client,
    Finished,
    Server,
    Stage,
    Start,
    Tensors,
    Trained,
)
from unskew.densities.models import network_for
from unskew.densities.vae_codes import distance_to_prior, has_codes
from unskew.errors import UnskewError
from unskew.methods.common.once import has_received, mark_received, send_once
from unskew.models.functional import FunctionalModel
from unskew.models.mlp import Widths
from unskew.models.vae import VAESpec
from unskew.utils.specs import OPTIONS

Count = Annotated[int, Field(ge=1)]
_DISTANCE = "distance"


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Latent(ClientSide, ServerSide, Setup):
    """Weights ``max(0, p_k - alpha d_k + b)`` with d_k the distance of a client's codes.

    If the task's network is a VAE, a VAE of the same architecture gives the codes; otherwise a VAE
    with the options here.
    """

    alpha: Annotated[float, Field(ge=0)] = 0.5
    """How strongly the distance lowers a client's weight; 0 is FedAvg if b is also 0."""
    b: Annotated[float, Field(ge=0)] = 0.0
    """Added to every weight before negative weights become 0; larger gives more even weights."""
    rescale: bool = True
    """Whether distances are divided by their sum over the round's clients; the thesis does not."""
    on_degenerate: OnDegenerate = "fedavg"
    """If all weights are 0: use the weights of "fedavg" and warn, or "raise" an error."""
    codes_per_sample: Count = 1
    """Number of codes drawn per sample."""
    every: Annotated[int, Field(ge=0)] = 0
    """Number of rounds between measurements with the task's own VAE; no VAE is trained before the
    task. 0: clients measure once, with a VAE that is trained before the task."""
    encoder: Widths = "512-256"
    """Widths of the VAE's encoder, such as 512-256; the decoder mirrors them."""
    codes: Count = 2
    """Dimension of a code."""
    beta: Annotated[float, Field(ge=0)] = 10.0
    """Weight of the codes' divergence from the prior in the VAE's loss."""
    mean: float = 0.0
    """Subtracted from the VAE's inputs."""
    sd: Annotated[float, Field(gt=0)] = 1.0
    """Divisor of the VAE's inputs, after mean is subtracted."""
    vae_rounds: Count | None = None
    """Rounds of the VAE; None: the run's."""
    vae_epochs: Count | None = None
    """Local epochs per round of the VAE; None: the run's."""
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
    adds = frozenset({Aspect.WEIGHTS})

    @property
    def receives(self) -> Mapping[str, Value]:
        """The distance; with ``every``, it is undefined until the client has measured it."""
        return {_DISTANCE: Value(low=0.0, may_be_undefined=bool(self.every))}

    def stages(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        """Train a VAE, from which the weights of the task follow."""
        if self.every:
            return stages
        settings: dict[str, Any] = {"optimizer": "adam", "lr": self.vae_lr, "lr_decay": 1.0}
        settings |= {"momentum": 0.0, "weight_decay": 0.0}
        if self.vae_epochs is not None:
            settings["epochs"] = self.vae_epochs
        network = _EncoderNetwork(self._vae_spec)
        vae = Stage("vae", Method(), self.vae_rounds, network, settings, learns_density=True)
        return (vae, *stages)

    def check(self, method: Method, network: FunctionalModel, samples: Tensor) -> None:
        """Reject networks without codes if clients measure with the task's network."""
        if self.every and not has_codes(network.module):
            raise UnskewError(
                "method 'latent': every measures the codes of the task's own network, and this one "
                "has none; use model vae, or every=0"
            )

    def begin(self, beginning: Beginning) -> Tensors:
        """Store the VAE to send, or start counting rounds; the task starts from initial weights."""
        if "vae" in beginning.earlier:
            return {"vae": beginning.earlier["vae"].vector}
        return {"rounds_run": torch.tensor(0)}

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send the VAE once to each client, or request a measurement when it is due."""
        payload = send_once(server, client, "vae")
        if not self._measures(server):
            return payload
        due = int(server.state["rounds_run"]) % self.every == 0
        if not due and has_received(server, client):
            return payload
        return {**payload, "measure": torch.ones(())}

    def _measures(self, server: Server) -> bool:
        """Return whether clients measure with the task's encoder, from round ``every`` on."""
        return "rounds_run" in server.state and int(server.state["rounds_run"]) >= self.every

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Measure the distance of the client's codes, if it is due."""
        distance = state.get(_DISTANCE, torch.tensor(torch.nan))
        if len(client.y) and ("vae" in payload or "measure" in payload):
            network = self._encoder_of(client)
            vector = payload.get("vae", start.received)
            distance = torch.tensor(
                distance_to_prior(
                    network, vector, client.x, client.id, client.seed, self.codes_per_sample
                )
            )
        return replace(start, refs={_DISTANCE: distance})

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Send the distance and keep it."""
        distance = {_DISTANCE: start.refs[_DISTANCE]}
        return Finished(distance, distance)

    def receive(self, server: Server, uploads: Uploads) -> Tensors:
        """Mark the clients that have the VAE or have measured, and count the rounds."""
        state = dict(server.state)
        if "vae" in state or self._measures(server):
            state |= mark_received(server, uploads)
        if "rounds_run" in state:
            state["rounds_run"] = state["rounds_run"] + 1
        return state

    def client_weights(self, server: Server) -> ClientWeighting:
        """Weight clients by their distance; the weights already include the sample counts."""
        return discrepancy(_distances, self.alpha, self.b, self.rescale, self.on_degenerate)

    @property
    def _vae_spec(self) -> VAESpec:
        return VAESpec(
            hidden=self.encoder, latent=self.codes, beta=self.beta, mean=self.mean, sd=self.sd
        )

    def _encoder_of(self, client: Client) -> FunctionalModel:
        if has_codes(client.network.module):
            return client.network
        return network_for(self._vae_spec, tuple(client.x.shape[1:]))


@plain_dataclass(frozen=True)
class _EncoderNetwork:
    """Returns the run's network if it is a VAE, else builds one."""

    spec: VAESpec

    def __call__(self, module: nn.Module, shape: tuple[int, ...], classes: int) -> nn.Module:
        return module if has_codes(module) else self.spec.build(shape, classes)


def _distances(uploads: Uploads) -> Tensor:
    """Return the clients' distances; an unknown one is the mean of the others, or zero."""
    distances = torch.stack(list(uploads.extras[_DISTANCE])).double()
    known = torch.isfinite(distances)
    mean = distances[known].mean() if bool(known.any()) else distances.new_zeros(())
    return torch.where(known, distances, mean)
