"""The function that workers call.

Dask's scheduler imports this module too, so it imports nothing itself.
"""

from typing import Any


def execute_packed(packed: bytes) -> dict[str, Any]:
    """Execute a run on a worker, see :func:`unskew.experiments.cluster.call.execute_call`."""
    from unskew.experiments.cluster.call import execute_call  # noqa: PLC0415

    return execute_call(packed)
