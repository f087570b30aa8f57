"""The tensors that vmap and other transforms of torch wrap."""

from typing import Any

import torch
from torch import Tensor


def unwrapped(tensor: Tensor) -> Tensor:
    """Return the tensor of a whole cohort, where vmap shows one client's."""
    functorch: Any = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor
