"""How many clients are trained as one matrix: as many as fit into memory."""

from functools import cached_property

import torch
from torch import Tensor

from unskew.engine.client import ClientContext
from unskew.engine.placement import free_memory, is_accelerator, to_device, to_tensor

_CHUNK_NUMBERS = 2**24
"""Bound on clients x parameters, and on clients x samples of the largest, on a CPU."""
_MODEL_COPIES = 8
"""Weights, their gradient and its parts, the optimizer's state, and references of methods."""
_MAX_SHARE = 0.5
"""The share of an accelerator's free memory that is used if the settings name none."""
_MAX_CLIENTS = 2**16
"""Also where the free memory of a device is not known."""


class Chunks:
    """The size of the chunks in which a cohort is trained."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context

    def clients(self, largest: int) -> int:
        """Return how many clients fit into one chunk; the largest has ``largest`` samples."""
        context, size = self._context, self._context.network.layout.size
        if self._memory is None:
            return max(1, _CHUNK_NUMBERS // max(size, largest, 1))
        batch = min(context.settings.batch_size, max(1, largest))
        numbers = _MODEL_COPIES * size + largest + batch * self._numbers_per_sample
        return int(max(1, min(_MAX_CLIENTS, self._memory // (4 * numbers))))

    @cached_property
    def _memory(self) -> float | None:
        """The bytes for one chunk; None for a CPU whose settings name none.

        Free memory is asked for once, so that chunks keep their size while others use the device.
        """
        settings, device = self._context.settings, self._context.device
        if settings.memory_bytes is not None:
            return settings.memory_bytes
        return _MAX_SHARE * free_memory(device) if is_accelerator(device) else None

    @cached_property
    def _numbers_per_sample(self) -> int:
        """How many numbers a step keeps for one sample: the sample, and what autograd saves."""
        network, saved = self._context.network, dict[int, int]()

        def count(tensor: Tensor) -> Tensor:
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // 4
            return tensor

        samples = to_tensor(self._context.federation.train.x[:2])
        inputs = network.inputs(to_device(samples, self._context.device))
        vector = torch.zeros(network.layout.size, device=inputs.device)
        trainable = network.layout.trainable
        weights, buffers = vector[:trainable], network.copy_buffers(vector[trainable:])
        network.module.train()
        with (
            torch.random.fork_rng(devices=[]),
            torch.enable_grad(),
            torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor),
        ):
            output = network(weights.requires_grad_(), buffers, inputs)
        saved.pop(vector.untyped_storage().data_ptr(), None)  # the weights
        kept = sum(saved.values()) + inputs.numel() + output.numel()
        return kept // max(1, len(samples))
