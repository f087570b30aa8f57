"""A network before training, which all runs of a seed start from."""

import copy
import hashlib
from functools import cached_property

import torch
from torch import Tensor, nn

from unskew.data.federation import Federation
from unskew.engine.model_factory import check_scores, is_custom, make_module
from unskew.engine.runners import example_inputs, resolve_runner
from unskew.engine.settings import Settings
from unskew.models.functional import FunctionalModel, Model
from unskew.models.layout import Layout, flatten


class InitialNetwork:
    """A network with its initial weights, and what depends on it alone; each is computed once."""

    def __init__(
        self,
        federation: Federation,
        model: Model | None,
        seed: int,
        device: torch.device,
        loss: str | None = None,
    ) -> None:
        self.name, module = make_module(federation, model, seed, loss)
        self.module, self._device = module.to(device), device
        if is_custom(model) and federation.has_samples:
            check_scores(self.module, example_inputs(federation).to(device), federation.classes)
        self._runners: dict[str, str] = {}

    def copy(self) -> nn.Module:
        """Return a copy of the network, to be trained."""
        return copy.deepcopy(self.module)

    @cached_property
    def start_hash(self) -> str:
        """The hash of the initial weights."""
        return hash_of_weights(self.module, Layout.of(self.module))

    def runner(self, settings: Settings, samples: Tensor) -> str:
        """Return the name of the runner, see :func:`resolve_runner`."""
        if settings.runner not in self._runners:
            network = FunctionalModel(self.copy())
            name = resolve_runner(network, settings, self._device, samples)
            self._runners[settings.runner] = name
        return self._runners[settings.runner]

    def share_runners(self, other: "InitialNetwork") -> None:
        """Take the runners that were found for a network of the same architecture."""
        self._runners = other._runners


class NetworkCache:
    """Returns the initial network of a seed, and keeps the last one it built."""

    def __init__(self) -> None:
        self._last: tuple[tuple[object, ...], InitialNetwork] | None = None

    def of(
        self,
        federation: Federation,
        model: Model | None,
        seed: int,
        device: torch.device,
        loss: str | None = None,
    ) -> InitialNetwork:
        """Return the initial network for a federation."""
        tokens = None if federation.vocabulary is None else len(federation.vocabulary)
        samples = (federation.shape, federation.train.x.dtype, federation.classes, tokens)
        units = federation.target_center_and_scale if federation.is_regression else None
        key = (seed, model, device, loss, units, *samples)
        if self._last is None or self._last[0] != key:
            network = InitialNetwork(federation, model, seed, device, loss)
            if self._last is not None and self._last[0][1:] == key[1:] and not is_custom(model):
                network.share_runners(self._last[1])  # seeds differ in the weights alone
            self._last = key, network
        return self._last[1]


def hash_of_weights(module: nn.Module, layout: Layout) -> str:
    """Return a hash of a module's weights."""
    return hashlib.sha256(flatten(module, layout).numpy().tobytes()).hexdigest()[:16]
