"""Versions that a worker must share with the command: others give other bits, or cannot read it."""

import platform
from collections.abc import Mapping

import torch

from unskew import __version__
from unskew.errors import UnskewError


def own_versions() -> dict[str, str]:
    """Return the versions of this process, without those that change no result.

    A build of PyTorch for a GPU has the same version as the one for the CPU.
    """
    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "PyTorch": torch.__version__.partition("+")[0],
        "unskew": __version__,
    }


def check_versions(of_command: Mapping[str, str]) -> None:
    """Raise unless this worker has the versions of the command."""
    own = own_versions()
    for name, version in of_command.items():
        if own.get(name) != version:
            raise UnskewError(
                f"on: the worker on {platform.node()} has {name} {own.get(name)}, this command "
                f"{version}; install the same version on both"
            )
