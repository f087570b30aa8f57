"""The communication cost of a run, counted from the tensors that are sent, per direction.

``parameters`` is the number of elements of these tensors (model and extras), ``bytes`` their size.
Metadata of a message (a client's id, its number of samples, its loss) is not counted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from torch import Tensor

from unskew.models.layout import Layout


@dataclass(frozen=True)
class Traffic:
    """Parameters and bytes, up to the server and down to clients."""

    parameters_up: int = 0
    parameters_down: int = 0
    bytes_up: int = 0
    bytes_down: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Cost(Traffic):
    """The traffic of a whole run and its number of rounds."""

    rounds: int = 0


def add_up(traffic: Sequence[Traffic]) -> Traffic:
    """Return the total traffic of several clients."""
    return Traffic(
        sum(each.parameters_up for each in traffic),
        sum(each.parameters_down for each in traffic),
        sum(each.bytes_up for each in traffic),
        sum(each.bytes_down for each in traffic),
    )


def count(tensors: Iterable[Tensor]) -> tuple[int, int]:
    """Return the number of elements and of bytes of tensors."""
    tensors = list(tensors)
    return (
        sum(tensor.numel() for tensor in tensors),
        sum(tensor.numel() * tensor.element_size() for tensor in tensors),
    )


class ModelSize:
    """The size of one model vector, of which only the shared coordinates are sent."""

    def __init__(self, layout: Layout, sent_mask: Tensor | None) -> None:
        self.parameters = layout.size if sent_mask is None else int(sent_mask.sum())
        self.bytes = layout.nbytes(sent_mask)


def client_traffic(
    model: ModelSize,
    extras_down: Sequence[Tensor],
    extras_up: Sequence[Tensor],
    sent: ModelSize | None = None,
) -> Traffic:
    """Return one client's traffic in a round: the model both ways, and the method's extras.

    ``sent`` is the size of the uploaded model if it differs from the downloaded one.
    """
    down, up = count(extras_down), count(extras_up)
    sent = sent or model
    return Traffic(
        parameters_up=sent.parameters + up[0],
        parameters_down=model.parameters + down[0],
        bytes_up=sent.bytes + up[1],
        bytes_down=model.bytes + down[1],
    )
