"""Runs on the workers of a Dask scheduler."""

import os
import warnings
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from distributed import Client

from unskew.errors import UnskewError, UnskewWarning
from unskew.experiments.cluster.executor import OpenWorkers
from unskew.experiments.cluster.shared_folder import SharedFolder

_PATIENCE = "10s"
"""How long the scheduler may take to answer."""


def open_workers(options: str, jobs: int | None, cores: int, gpus: int) -> OpenWorkers:
    """Return what connects to a scheduler; ``options`` is its address."""
    del jobs, cores, gpus  # every worker executes one run
    address = options or os.environ.get("DASK_SCHEDULER_ADDRESS", "")
    if not address:
        raise UnskewError(
            "on: dask needs the address of its scheduler, such as dask:tcp://10.0.0.1:8786"
        )

    def connect(shared: SharedFolder) -> Executor:
        del shared
        try:
            client = Client(address, timeout=_PATIENCE, set_as_default=False)
        except (OSError, ValueError, TypeError):
            raise UnskewError(f"on: no Dask scheduler answers at {address}") from None
        _warn_of_threads(client)
        return _DaskExecutor(client)

    return connect


class _DaskExecutor(Executor):
    """Dask's own executor, which closes its client in the end.

    Dask repeats the task of a lost worker on another one.
    """

    def __init__(self, client: Client) -> None:
        self._client, self._executor = client, client.get_executor(pure=False)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function on a worker."""
        future: Future[Any] = self._executor.submit(fn, *args, **kwargs)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect, so that the scheduler forgets what is not done."""
        del wait, cancel_futures
        self._client.close()


def _warn_of_threads(client: Client) -> None:
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    if any(worker["nthreads"] > 1 for worker in workers):
        warnings.warn(
            "on: some Dask workers have several threads, of which one executes a run; start more "
            "workers of one thread each: dask worker --nthreads 1 --nworkers -1",
            UnskewWarning,
            stacklevel=2,
        )
