"""Where runs are executed: the values of ``on``."""

from collections.abc import Sequence
from concurrent.futures import Executor
from importlib import import_module

from unskew.engine.runners import choose_device
from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.experiments.cluster.executor import OpenWorkers
from unskew.utils.specs import lookup

On = str | Executor | None
"""A spec string such as ``"ray"``, any executor whose workers have unskew, or None."""


def find_place(on: On, jobs: int | None, settings: Sequence[Settings]) -> OpenWorkers | None:
    """Return what connects to a cluster; None for this machine.

    ``jobs`` is the number of runs at the same time; what each of them needs follows from
    ``settings``.
    """
    if isinstance(on, Executor):
        return lambda _: _Borrowed(on)
    if not isinstance(on, str | None):
        raise UnskewError(f"on must be a text such as ray, or an Executor (got {on!r})")
    name, _, options = (on or "local").strip().partition(":")
    place = lookup(_PLACES, name, "on")
    if place is None:
        if options:
            raise UnskewError(f"on: local takes no options (got {options!r})")
        return None
    module, package = place
    try:
        found = import_module(f"unskew.experiments.cluster.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise UnskewError(f'on: {name} needs a package; pip install "unskew[{name}]"') from None
    cores = max((each.workers or 1 for each in settings), default=1)
    gpus = max((choose_device(each).type == "cuda" for each in settings), default=False)
    open_workers: OpenWorkers = found.open_workers(options, jobs, cores, int(gpus))
    return open_workers


_PLACES = {
    "local": None,
    "ray": ("ray_cluster", "ray"),
    "dask": ("dask_cluster", "distributed"),
    "slurm": ("slurm_cluster", "submitit"),
}
"""The module that connects to a cluster, and the package that it needs."""


class _Borrowed(Executor):
    """An executor of the user, which is not shut down here."""

    def __init__(self, executor: Executor) -> None:
        self.submit = executor.submit  # type: ignore[method-assign]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing."""
