"""The validation part: some of each client's training samples, and never a test sample."""

from dataclasses import replace

from unskew.data.columns import Columns
from unskew.data.federation import Federation
from unskew.errors import UnskewError
from unskew.utils.rng import stream


def validation_split(federation: Federation, share: float, seed: int) -> Federation:
    """Return a federation of training samples alone, with a share of them in the place of tests.

    Each client keeps the share of its training samples back, rounded down, for its own test, and
    all that is kept back is the common test. The federation's own tests are not in it.
    """
    own = replace(federation, test=Columns.empty_like(federation.train))
    parted = own.held_out(share, int(stream(seed, "validation")) >> 1)
    if not parted.test.samples:
        raise UnskewError(
            f"tune: no client has the {round(1 / share)} training samples of which one can be "
            "kept back; leave tune away"
        )
    return replace(parted, common=Columns.whole(parted.test.x, parted.test.y))
