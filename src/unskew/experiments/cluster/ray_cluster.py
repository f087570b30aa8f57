"""Runs on a Ray cluster: an existing one, or one that is started on this machine."""

import logging
import os
import warnings
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # without it, Ray warns of it

import ray

from unskew.errors import UnskewError, UnskewWarning
from unskew.experiments.cluster.executor import OpenWorkers
from unskew.experiments.cluster.shared_folder import SharedFolder

_RETRIES = 3
"""How often a run resumes from its checkpoint after its worker or machine was lost."""


def open_workers(options: str, jobs: int | None, cores: int, gpus: int) -> OpenWorkers:
    """Return what connects to the cluster of ``options`` or ``RAY_ADDRESS``, or starts one."""
    del jobs
    address = options or os.environ.get("RAY_ADDRESS") or None

    def connect(shared: SharedFolder) -> Executor:
        del shared
        return _RayExecutor(address, cores, gpus)

    return connect


class _RayExecutor(Executor):
    """Calls each function as a Ray task that reserves cores and GPUs."""

    def __init__(self, address: str | None, cores: int, gpus: int) -> None:
        self._owns_connection = not ray.is_initialized()
        if self._owns_connection:
            _connect(address)
        # A task that reserves no GPU sees none.
        self._options = {"num_cpus": cores, "num_gpus": gpus, "max_retries": _RETRIES}
        if gpus > ray.cluster_resources().get("GPU", 0):
            warnings.warn(
                "on: no machine of this Ray cluster has a GPU now, and runs wait for one; with "
                "device=cpu (--device cpu) they need none",
                UnskewWarning,
                stacklevel=2,
            )

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function on a worker."""
        task = ray.remote(fn).options(**self._options)
        future: Future[Any] = task.remote(*args, **kwargs).future()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, which ends the tasks that are not done."""
        del wait, cancel_futures
        if self._owns_connection:
            ray.shutdown()


def _connect(address: str | None) -> None:
    try:
        ray.init(
            address=address or "local",
            include_dashboard=False if address is None else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:  # Ray raises plain exceptions too, if its node starts too slowly
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        where = "on this machine" if address is None else f"at {address}"
        raise UnskewError(f"on: Ray cannot be reached {where}: {reason}") from None
