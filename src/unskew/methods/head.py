"""Body and head of a network, as masks."""

from torch import Tensor

from unskew.errors import UnskewError
from unskew.layout import Kind, Layout


def head_mask(layout: Layout) -> Tensor:
    """Mark the head, its buffers included; complain if the network has none."""
    owners = {_owner(entry.name) for entry in layout if entry.kind is Kind.HEAD}
    if not owners:
        raise UnskewError(
            "model: the method treats the head apart, and this network has none; "
            "call its last part 'head', or let it end in a linear layer"
        )
    return layout.mask_where(lambda entry: _owner(entry.name) in owners)


def _owner(name: str) -> str:
    return name.rpartition(".")[0]
