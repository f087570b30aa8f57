"""FedDisk: every client's samples are weighed so that it trains for the global distribution.

Nguyen, Wu and Chang, "Federated Learning for distribution skewed data using sample weights", 2023.
Clients hold samples of densities q_k; with the weight ``p(x)/q_k(x)`` a sample's loss counts as it
would in the mixture p of all. Densities are learned by MADE networks; weights never leave the
client.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.densities.models import FromSpec
from unskew.errors import UnskewWarning
from unskew.methods.common.base import (
    SAMPLE_WEIGHTS,
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
from unskew.methods.feddisk.federated import FederatedDensity
from unskew.methods.feddisk.local import LocalDensity, Temper
from unskew.methods.feddisk.on_device import PREFIX
from unskew.methods.feddisk.ratio import Ratio, RatioEstimator, RatioNetwork
from unskew.methods.feddisk.weights import weigh
from unskew.models.layout import Layout
from unskew.models.made import MADESpec, Order
from unskew.models.mlp import Widths
from unskew.privacy.budget import Privacy
from unskew.utils.rng import generator
from unskew.utils.specs import OPTIONS

if TYPE_CHECKING:
    from unskew.data.federation import Federation

Rounds = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0)]

_POOR_COVERAGE = 0.5
"""Warn of clients whose samples cover less of the global distribution than this."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedDisk(Method):
    """Sample weights from learned densities; see docs/feddisk.md."""

    estimator: Literal["generative", "classifier", "loglik", "oracle"] = "generative"
    """Ratios by telling own samples from drawn ("generative") or everybody's ones ("oracle"),
    outputs of both densities apart ("classifier", the paper), or by likelihoods ("loglik")."""
    hidden: Widths = "30"
    """Widths of the densities' hidden layers, such as 30 or 64-32."""
    order: Order = "natural"
    """Order in which features depend on those before: as they come ("natural"), or "random"."""
    masks: int = 0
    """Seed of the densities' masks and of a random order, the same for all clients."""
    density_rounds: Rounds = 100
    """Rounds of the global density, at most; it stops once the validation loss keeps rising."""
    density_epochs: Rounds = 1
    """Local epochs in a round of the global density."""
    density_lr: Rate = 3e-3
    """Adam's learning rate for the global density."""
    local_rounds: Rounds = 50
    """Epochs of the clients' own densities, at most; only with "classifier" and "loglik"."""
    local_lr: Rate = 3e-3
    """Adam's learning rate for the clients' own densities."""
    ratio_hidden: Rounds = 100
    """Hidden units of the network that learns the ratio; there is none with "loglik"."""
    ratio_rounds: Rounds = 50
    """Epochs of the ratio's network, at most."""
    ratio_lr: Rate = 1e-3
    """Learning rate of the ratio's network."""
    ratio_optimizer: Literal["adam", "sgd"] = "adam"
    """Optimiser of the ratio's network: "adam", or "sgd" without momentum."""
    ratio_decay: Annotated[float, Field(ge=0)] = 0.01
    """Weight decay of the ratio's network."""
    stage_batch_size: Rounds = 32
    """Samples a step while densities and ratios are learned."""
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.15
    """Share of a client's samples held out, to stop stages early. 0: none, and the global density
    takes all its rounds."""
    patience: Rounds = 3
    """Own densities and ratios stop once no client has got better for so many epochs."""
    pool: Rounds = 4096
    """How many drawn samples (oracle: samples of everybody) own ones are told from."""
    clip: Annotated[float, Field(gt=1)] = 10.0
    """Sample weights are held between 1/clip and clip, then brought to mean one again."""
    mean_one: bool = True
    """Whether a client's weights have mean one; false takes the clipped ratios as they are, as the
    paper does."""
    log_clip: Rate = 5.0
    """Log ratios are held between -log_clip and log_clip; only with "loglik"."""
    temper: Temper = "none"
    """Log ratios of "loglik": divided by the number of features ("dimension"), or not ("none")."""
    privacy: Privacy | None = None
    """The budget of the density that is sent, such as ``2/1e-5``: epsilon and delta."""
    exact: Callable[[int, Tensor], Tensor] | None = None
    """For data whose densities are known: gives ``log p(x)/q_k(x)`` of client k's samples, which
    any estimator then takes instead of learning it."""

    about: ClassVar[About] = About(
        title="Density-ratio sample weights",
        paper="Nguyen et al. 2023",
        kind="densities",
        level="global on local tests",
        down="model, densities (before)",
        up="model, densities (before)",
    )

    def stages(self) -> tuple[Stage, ...]:
        """Learn the densities the estimator needs, then its ratio, then do the task."""
        if self.exact is not None:
            return super().stages()
        parts = [] if self.estimator == "oracle" else [self._density()]
        if self.estimator in ("classifier", "loglik"):
            parts.append(self._local(weighs=self.estimator == "loglik"))
        if self.estimator != "loglik":
            parts.append(self._ratio(self.estimator))
        return (*parts, *super().stages())

    def shared_samples(self, federation: "Federation", seed: int) -> tuple["Federation", Tensors]:
        """Let the server of a simulation look at everybody's samples, for the oracle."""
        federation, held = super().shared_samples(federation, seed)
        if self.estimator != "oracle" or self.exact is not None:
            return federation, held
        train = federation.train
        count = min(self.pool, train.samples)
        rows = generator(seed, "oracle").choice(train.samples, count, replace=False, shuffle=False)
        return federation, {**held, "pool": torch.from_numpy(train.x[rows])}

    def begin(self, vector: Tensor, layout: Layout, earlier: Mapping[str, Server]) -> Server:
        """Warn of clients whose samples leave out much of the global distribution."""
        for server in earlier.values():
            coverage = server.slots.get("coverage")
            if coverage is not None and bool((coverage < _POOR_COVERAGE).any()):
                poor = int((coverage < _POOR_COVERAGE).sum())
                warnings.warn(
                    f"feddisk: the samples of {poor} of {len(coverage)} clients cover less than "
                    "half of the global distribution; weights cannot make up for what they lack",
                    UnskewWarning,
                    stacklevel=2,
                )
        return super().begin(vector, layout, earlier)

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        """Weigh the samples."""
        start = super().prepare(client, payload, state)
        weights = state.get(SAMPLE_WEIGHTS)
        if self.exact is not None:
            ratio = self.exact(client.id, client.x)
            weights = weigh(ratio, self.clip, mean_one=self.mean_one).values
        if weights is None:
            return start
        if start.sample_weights is not None:
            weights = weights * start.sample_weights
        return replace(start, sample_weights=weights)

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Forget what only the densities needed."""
        needed = {name: kept for name, kept in state.items() if not name.startswith(PREFIX)}
        return super().finish(client, start, trained, needed)

    @property
    def _made(self) -> MADESpec:
        return MADESpec(hidden=self.hidden, order=self.order, masks=self.masks)

    def _training(self, optimizer: str, lr: float) -> dict[str, Any]:
        """Return how the stages train, whatever the task does."""
        return {
            "optimizer": optimizer,
            "lr": lr,
            "lr_decay": 1.0,
            "momentum": 0.0,
            "weight_decay": 0.0,
            "batch_size": self.stage_batch_size,
        }

    def _density(self) -> Stage:
        return Stage(
            "density",
            FederatedDensity(validation=self.validation),
            self.density_rounds,
            network=FromSpec(self._made),
            settings=self._training("adam", self.density_lr) | {"epochs": self.density_epochs},
            learns_density=True,
            privacy=self.privacy,
        )

    def _local(self, *, weighs: bool) -> Stage:
        return Stage(
            "local density",
            LocalDensity(
                validation=self.validation,
                patience=self.patience,
                clip=self.clip,
                mean_one=self.mean_one,
                weighs=weighs,
                log_clip=self.log_clip,
                temper=self.temper,
            ),
            self.local_rounds,
            network=FromSpec(self._made),
            settings=self._training("adam", self.local_lr) | _EVERYBODY,
        )

    def _ratio(self, estimator: RatioEstimator) -> Stage:
        return Stage(
            "ratio",
            Ratio(
                validation=self.validation,
                patience=self.patience,
                clip=self.clip,
                mean_one=self.mean_one,
                estimator=estimator,
                made=self._made,
                pool=self.pool,
            ),
            self.ratio_rounds,
            network=RatioNetwork(self.ratio_hidden),
            settings=self._training(self.ratio_optimizer, self.ratio_lr)
            | _EVERYBODY
            | {"weight_decay": self.ratio_decay},
        )


_EVERYBODY = {"participation": 1.0, "epochs": 1}
"""Every client needs weights before the task begins."""
