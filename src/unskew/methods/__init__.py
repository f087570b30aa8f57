"""The methods: one file per method, each a part built on :mod:`unskew.composition.parts`.

``make_method("fedprox:mu=0.01+ida")`` builds a method from its spec string. Names are loaded on
first use, so that importing this package does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unskew.composition.method import Method
    from unskew.composition.parts import (
        Aspect,
        ClientSide,
        Part,
        Personalization,
        ServerSide,
        Setup,
    )
    from unskew.composition.search_space import LogRange
    from unskew.composition.upload_values import Value
    from unskew.composition.values import (
        About,
        Client,
        Finished,
        Server,
        Start,
        Step,
        Tensors,
        Trained,
    )
    from unskew.methods._registry import (
        METHODS,
        make_method,
        names_files,
        search_grid,
        with_options,
    )

_MODULES = {
    "methods._registry": ("METHODS", "make_method", "names_files", "search_grid", "with_options"),
    "composition.method": ("Method",),
    "composition.parts": (
        "Aspect", "ClientSide", "Part", "Personalization", "ServerSide", "Setup",
    ),
    "composition.upload_values": ("Value",),
    "composition.search_space": ("LogRange",),
    "composition.values": (
        "About", "Client", "Finished", "Server", "Start", "Step", "Tensors", "Trained",
    ),
}  # fmt: skip
"""The modules of the public names."""

__all__ = [
    "METHODS",
    "About",
    "Aspect",
    "Client",
    "ClientSide",
    "Finished",
    "LogRange",
    "Method",
    "Part",
    "Personalization",
    "Server",
    "ServerSide",
    "Setup",
    "Start",
    "Step",
    "Tensors",
    "Trained",
    "Value",
    "make_method",
    "names_files",
    "search_grid",
    "with_options",
]


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"unskew.{module}"), name)
    raise AttributeError(f"module 'unskew.methods' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
