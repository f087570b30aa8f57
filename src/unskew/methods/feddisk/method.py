"""FedDisk: sample weights make every client train for the global distribution.

Nguyen, Wu and Chang, "Federated Learning for distribution skewed data using sample weights", 2023.
Client k has samples of a density q_k; the weight ``p(x)/q_k(x)`` turns its expected loss into that
under the mixture p of all clients. Densities are estimated by MADE networks; weights never leave
the client.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.composition.method import Method
from unskew.composition.parts import Aspect, ClientSide, ServerSide, Setup
from unskew.composition.values import (
    SAMPLE_WEIGHTS,
    About,
    Beginning,
    Client,
    Finished,
    Stage,
    Start,
    Tensors,
    Trained,
)
from unskew.densities.models import FromSpec
from unskew.errors import UnskewWarning
from unskew.methods.feddisk.federated import FederatedDensity
from unskew.methods.feddisk.local import LocalDensity, Temper
from unskew.methods.feddisk.ratio import Ratio, RatioEstimator, RatioNetwork
from unskew.methods.feddisk.weights import weights_from
from unskew.models.made import MADESpec, Order
from unskew.models.mlp import Widths
from unskew.privacy.budget import Privacy
from unskew.utils.rng import generator
from unskew.utils.specs import OPTIONS

if TYPE_CHECKING:
    from unskew.data.federation import Federation

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]

_POOR_COVERAGE = 0.5
"""Warn about clients whose samples cover less of the global distribution than this."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedDisk(ClientSide, ServerSide, Setup):
    """Sample weights from learned densities; see docs/feddisk.md."""

    estimator: Literal["generative", "classifier", "loglik", "oracle"] = "generative"
    """Density ratios from a classifier of own samples against samples of the global density
    ("generative") or of all clients ("oracle"), from a classifier of the outputs of both densities
    ("classifier", the paper's), or from likelihoods ("loglik")."""
    hidden: Widths = "30"
    """Widths of the densities' hidden layers, such as 30 or 64-32."""
    order: Order = "natural"
    """Autoregressive order of the features: as in the data ("natural"), or "random"."""
    masks: int = 0
    """Seed of the densities' masks and of a random order, the same for all clients."""
    density_rounds: Count = 100
    """Largest number of rounds of the global density; it stops once the validation loss rises."""
    density_epochs: Count = 1
    """Local epochs per round of the global density."""
    density_lr: Positive = 3e-3
    """Adam's learning rate for the global density."""
    local_rounds: Count = 50
    """Largest number of epochs of the clients' densities; only with "classifier" and "loglik"."""
    local_lr: Positive = 3e-3
    """Adam's learning rate for the clients' densities."""
    ratio_hidden: Count = 100
    """Hidden units of the ratio network; "loglik" has none."""
    ratio_rounds: Count = 50
    """Largest number of epochs of the ratio network."""
    ratio_lr: Positive = 1e-3
    """Learning rate of the ratio network."""
    ratio_optimizer: Literal["adam", "sgd"] = "adam"
    """Optimiser of the ratio network: "adam", or "sgd" without momentum."""
    ratio_decay: Annotated[float, Field(ge=0)] = 0.01
    """Weight decay of the ratio network."""
    stage_batch_size: Count = 32
    """Batch size while densities and ratios are trained."""
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.15
    """Fraction of a client's samples held out for early stopping. 0: none, and the global density
    is trained for all its rounds."""
    patience: Count = 3
    """Clients' densities and ratios stop once no client has improved for this many epochs."""
    global_samples: Count = 4096
    """Number of samples of the global density (oracle: of all clients) that the classifier of own
    samples is trained against."""
    clip: Annotated[float, Field(gt=1)] = 10.0
    """Sample weights are clipped to between 1/clip and clip, then rescaled to mean one."""
    mean_one: bool = True
    """Whether a client's weights have mean one; false uses the clipped ratios unscaled, as the
    paper does."""
    log_clip: Positive = 5.0
    """Log ratios are clipped to between -log_clip and log_clip; only with "loglik"."""
    temper: Temper = "none"
    """Log ratios of "loglik": divided by the number of features ("dimension"), or not ("none")."""
    privacy: Privacy | None = None
    """Privacy budget of the density that is sent, such as ``2/1e-5``: epsilon and delta. It is then
    trained for all its rounds."""
    exact: Callable[[int, Tensor], Tensor] | None = None
    """Function that returns ``log p(x)/q_k(x)`` of client k's samples, for data whose densities are
    known; it replaces the estimator."""

    tensor_scope: ClassVar[str] = "feddisk"
    about: ClassVar[About] = About(
        title="Density-ratio sample weights",
        paper="Nguyen et al. 2023",
        kind="densities",
        level="global on local tests",
        down="model, densities (before)",
        up="model, densities (before)",
    )

    adds = frozenset({Aspect.SAMPLE_WEIGHTS})

    def stages(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        """Train the densities that the estimator needs, then its ratio."""
        if self.exact is not None:
            return stages
        before = [] if self.estimator == "oracle" else [self._density()]
        if self.estimator in ("classifier", "loglik"):
            before.append(self._local(sets_weights=self.estimator == "loglik"))
        if self.estimator != "loglik":
            before.append(self._ratio(self.estimator))
        return (*before, *stages)

    def shared_samples(self, federation: "Federation", seed: int) -> tuple["Federation", Tensors]:
        """Give the simulated server samples of all clients, for the oracle."""
        if self.estimator != "oracle" or self.exact is not None:
            return federation, {}
        train = federation.train
        count = min(self.global_samples, train.samples)
        rows = generator(seed, "oracle").choice(train.samples, count, replace=False, shuffle=False)
        return federation, {"global_samples": torch.from_numpy(train.x[rows])}

    def begin(self, beginning: Beginning) -> Tensors:
        """Warn about clients whose samples cover too little of the global distribution."""
        for server in beginning.earlier.values():
            coverage = server.state.get("coverage")
            if coverage is not None and bool((coverage < _POOR_COVERAGE).any()):
                poor = int((coverage < _POOR_COVERAGE).sum())
                warnings.warn(
                    f"feddisk: the samples of {poor} of {len(coverage)} clients cover less than "
                    "half of the global distribution; weights cannot replace missing samples",
                    UnskewWarning,
                    stacklevel=2,
                )
        return {}

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Set the sample weights."""
        weights = state.get(SAMPLE_WEIGHTS)
        if self.exact is not None:
            ratio = self.exact(client.id, client.x)
            weights = weights_from(ratio, self.clip, mean_one=self.mean_one).values
        if weights is None:
            return start
        if start.sample_weights is not None:
            weights = weights * start.sample_weights
        return replace(start, sample_weights=weights)

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Drop the state that only the earlier stages needed."""
        weights = state.get(SAMPLE_WEIGHTS)
        return Finished(state={} if weights is None else {SAMPLE_WEIGHTS: weights})

    @property
    def _made(self) -> MADESpec:
        return MADESpec(hidden=self.hidden, order=self.order, masks=self.masks)

    def _training(self, optimizer: str, lr: float) -> dict[str, Any]:
        """Return the training settings of a stage, which do not depend on the task's."""
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
            # Losses of held-out samples are not private: a private density has all its rounds.
            Method((FederatedDensity(validation=0.0 if self.privacy else self.validation),)),
            self.density_rounds,
            network=FromSpec(self._made),
            settings=self._training("adam", self.density_lr) | {"epochs": self.density_epochs},
            learns_density=True,
            privacy=self.privacy,
        )

    def _local(self, *, sets_weights: bool) -> Stage:
        return Stage(
            "local density",
            Method(
                (
                    LocalDensity(
                        validation=self.validation,
                        patience=self.patience,
                        clip=self.clip,
                        mean_one=self.mean_one,
                        sets_weights=sets_weights,
                        log_clip=self.log_clip,
                        temper=self.temper,
                    ),
                )
            ),
            self.local_rounds,
            network=FromSpec(self._made),
            settings=self._training("adam", self.local_lr) | _ALL_CLIENTS,
        )

    def _ratio(self, estimator: RatioEstimator) -> Stage:
        return Stage(
            "ratio",
            Method(
                (
                    Ratio(
                        validation=self.validation,
                        patience=self.patience,
                        clip=self.clip,
                        mean_one=self.mean_one,
                        estimator=estimator,
                        made=self._made,
                        global_samples=self.global_samples,
                    ),
                )
            ),
            self.ratio_rounds,
            network=RatioNetwork(self.ratio_hidden),
            settings=self._training(self.ratio_optimizer, self.ratio_lr)
            | _ALL_CLIENTS
            | {"weight_decay": self.ratio_decay},
        )


_ALL_CLIENTS = {"participation": 1.0, "epochs": 1}
"""Every client needs weights before the task starts."""
