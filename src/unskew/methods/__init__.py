"""The methods: one file per method, all built on the hooks of :mod:`unskew.methods.common.base`.

``make_method("fedprox:mu=0.01+ida")`` builds a method from its spec string. Names are loaded on
first use, so that importing this package does not import torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unskew.methods._registry import (
        METHODS,
        compose_methods,
        make_method,
        name_of,
        with_options,
    )

__all__ = ["METHODS", "compose_methods", "make_method", "name_of", "with_options"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'unskew.methods' has no attribute {name!r}")
    from unskew.methods import _registry  # noqa: PLC0415 (imports torch)

    return getattr(_registry, name)


def __dir__() -> list[str]:
    return __all__
