"""Private local steps (DP-SGD), for one client and for a cohort."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.composition.method import Method
from unskew.composition.values import Tensors
from unskew.engine.batches import local_steps
from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.models.functional import Batch, FunctionalModel
from unskew.privacy import (
    Privacy,
    private_gradient,
    private_noise,
    reject_coupled,
    sampling_rate,
    shared_noise_multiplier,
    spent,
)


@dataclass(frozen=True)
class PrivateStage:
    """A stage whose local steps keep a privacy budget: the noise that takes, and what is spent."""

    privacy: Privacy
    stage_name: str
    noise_multiplier: float
    schedules: tuple[tuple[float, int], ...]
    """The distinct pairs of sampling rate and steps per round among the clients."""
    passes: int
    """How often a record is seen per round, at most."""
    secret: int | None = None
    """The seed of noise and batches, where anyone who knows the run's seed must not know them; None
    means the run's seed."""

    @staticmethod
    def of(
        privacy: Privacy, stage_name: str, sizes: NDArray[np.int64], settings: Settings, rounds: int
    ) -> "PrivateStage":
        """Choose the noise for the client that spends most, if it takes part in every round."""
        stage = PrivateStage.with_noise(privacy, stage_name, sizes, settings, 0.0)
        noise = shared_noise_multiplier(privacy, [(q, n * rounds) for q, n in stage.schedules])
        return replace(stage, noise_multiplier=noise)

    @staticmethod
    def with_noise(
        privacy: Privacy,
        stage_name: str,
        sizes: NDArray[np.int64],
        settings: Settings,
        noise_multiplier: float,
    ) -> "PrivateStage":
        """Return the stage with noise that somebody else has chosen."""
        sizes = np.unique(sizes[sizes > 0])
        steps = local_steps(sizes, settings, couples=False)
        rates = [sampling_rate(int(size), settings.batch_size) for size in sizes]
        schedules = tuple(zip(rates, steps.tolist(), strict=True))
        per_epoch = -(-sizes // settings.batch_size)
        passes = int((-(-steps // per_epoch)).max(initial=0))
        return PrivateStage(privacy, stage_name, noise_multiplier, schedules, passes)

    def seed(self, settings: Settings) -> int:
        """Return the seed of the noise and the batches."""
        return settings.seed if self.secret is None else self.secret

    def spent(self, rounds: int) -> dict[str, float]:
        """Return what ``rounds`` rounds have spent, according to the accountant.

        ``epsilon`` assumes batches that are drawn independently, which slices of a shuffled epoch
        are not; ``epsilon_by_passes`` makes no such assumption.
        """
        noise, delta = self.noise_multiplier, self.privacy.delta
        return {
            "epsilon": max(spent(noise, q, n * rounds, delta) for q, n in self.schedules),
            "epsilon_by_passes": spent(noise, 1.0, self.passes * rounds, delta),
            "delta": delta,
            "noise_multiplier": noise,
        }


def check_private(method: Method, network: FunctionalModel) -> None:
    """Reject what reads samples besides the private gradients, or sends more than the model."""
    reject_coupled(network)
    if method.reads_gradient or method.changing_refs:
        raise UnskewError(
            f"privacy: {method.spec} takes further gradients or keeps values from step to "
            "step, which would not be private; remove the method or the privacy budget"
        )
    if method.extra_trainings():
        raise UnskewError(
            f"privacy: {method.spec} trains more than once per round, which the budget does not "
            "count; remove the method or the privacy budget"
        )
    _reject(sorted(method.receives.keys() - {"train_loss"}))


def reject_exact_values(private: PrivateStage | None, sent: Tensors) -> None:
    """Reject values that a client would send without noise besides a private model."""
    if private is not None:
        _reject(sorted(sent))


def _reject(names: Sequence[str]) -> None:
    if names:
        raise UnskewError(
            f"privacy: {', '.join(map(repr, names))} would be sent besides the model, without "
            "noise; remove the method or the privacy budget"
        )


@dataclass(frozen=True, eq=False)
class PrivateGradients:
    """:class:`unskew.engine.gradients.Gradients` with private gradients.

    Two more tensors follow those of a batch: each client's number of samples, and the step.
    """

    private: PrivateStage
    method: Method
    network: FunctionalModel
    per_client: Sequence[str]
    shared: Sequence[str]
    clients: Sequence[int]
    sizes: NDArray[np.int64]
    settings: Settings
    round: int

    def __call__(self, weights: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the clients' losses and private gradients."""
        per_client, rest = tensors[: len(self.per_client)], tensors[len(self.per_client) :]
        shared = dict(zip(self.shared, rest, strict=False))
        x, y, scale, *noise, counts, steps = rest[len(shared) :]
        samples = (x, y, *noise)

        def loss_of_one(w: Tensor, *tensors: Tensor) -> Tensor:
            one, refs = tensors[: len(samples)], tensors[len(samples) :]
            batch = Batch(one[0][None], one[1][None], w.new_ones(1), *(n[None] for n in one[2:]))
            named_refs = {**shared, **dict(zip(self.per_client, refs, strict=True))}
            return self.method.objective(self.network, w, {}, batch, named_refs)

        gradient, losses = private_gradient(
            loss_of_one,
            weights,
            samples,
            scale * counts[:, None],
            clip=self.private.privacy.clip,
            noise_multiplier=self.private.noise_multiplier,
            noise=self._noise(int(steps[0]), weights),
            expected=self._expected_batch_sizes(len(weights)),
            per_client=per_client,
        )
        return (losses * scale).sum(-1), gradient

    def _noise(self, step: int, weights: Tensor) -> Tensor:
        seed, stage_name = self.private.seed(self.settings), self.private.stage_name
        drawn = [
            private_noise(seed, stage_name, self.round, client, step, weights.shape[1])
            for client in self.clients[: len(weights)]
        ]
        return torch.stack(drawn).to(weights)

    def _expected_batch_sizes(self, count: int) -> Tensor:
        return torch.from_numpy(np.minimum(self.settings.batch_size, self.sizes[:count]))
