"""The validation split: a part of each client's training samples, never a test sample."""

from dataclasses import replace

from unskew.data.columns import Columns
from unskew.data.federation import Federation
from unskew.errors import UnskewError
from unskew.utils.rng import stream


def validation_split(federation: Federation, share: float, seed: int) -> Federation:
    """Return a federation of training samples only, with a share of them as its test samples.

    Each client holds out the share of its training samples, rounded down, as its local test; all
    held-out samples together are the common test. The federation's test samples are not used.
    """
    train_only = replace(federation, test=Columns.empty_like(federation.train))
    split = train_only.held_out(share, int(stream(seed, "validation")) >> 1)
    if not split.test.samples:
        raise UnskewError(
            f"tune: no client has {round(1 / share)} training samples, of which one would be held "
            "out for validation; use fewer clients or turn tune off"
        )
    return replace(split, common=Columns.whole(split.test.x, split.test.y))
