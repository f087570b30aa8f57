"""Which methods can do without the clients' samples in one place."""

import numpy as np

from unskew.data.federation import Federation
from unskew.errors import UnskewError
from unskew.methods import name_of
from unskew.methods.common.base import Method


def refuse_if_it_gathers(method: Method, federation: Federation | None = None) -> None:
    """Complain about a method that looks at samples of others, with a toy federation to try."""
    if federation is None:
        federation = Federation.from_arrays(np.zeros((4, 1), np.float32), [0, 1] * 2, [0, 0, 1, 1])
    gathered = method.transform_federation(federation)
    handed, held = method.shared_samples(federation, 0)
    if gathered is not federation or handed is not federation or held:
        raise UnskewError(
            f"method: {name_of(method)} needs the samples of other clients in one place, and on "
            "Flower they stay with their nodes; use it in a simulation (unskew compare)"
        )
