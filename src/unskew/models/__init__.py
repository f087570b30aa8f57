"""The networks by name: ``make("resnet18:norm=group", (3, 32, 32), 10)``.

Attributes are loaded on first use, so that importing this package does not import torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unskew.models.registry import MODELS, default_for, make

__all__ = ["MODELS", "default_for", "make"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'unskew.models' has no attribute {name!r}")
    from unskew.models import registry  # noqa: PLC0415 (imports torch)

    return getattr(registry, name)


def __dir__() -> list[str]:
    return __all__
