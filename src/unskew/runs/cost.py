"""What a run sent over the network: counted from the tensors themselves, per direction.

``parameters`` are the numbers in the tensors that travel (model and extras), ``bytes`` their
bytes. Labels of a message (a client's id, its number of samples, its loss) are not counted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from torch import Tensor

from unskew.models.layout import Layout


@dataclass(frozen=True)
class Traffic:
    """Numbers and bytes, up to the server and down to clients."""

    parameters_up: int = 0
    parameters_down: int = 0
    bytes_up: int = 0
    bytes_down: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Cost(Traffic):
    """The traffic of a whole run, and its rounds."""

    rounds: int = 0


def add_up(traffic: Sequence[Traffic]) -> Traffic:
    """Add up the traffic of clients."""
    return Traffic(
        sum(each.parameters_up for each in traffic),
        sum(each.parameters_down for each in traffic),
        sum(each.bytes_up for each in traffic),
        sum(each.bytes_down for each in traffic),
    )


def count(tensors: Iterable[Tensor]) -> tuple[int, int]:
    """Return how many numbers and how many bytes tensors hold."""
    tensors = list(tensors)
    return (
        sum(tensor.numel() for tensor in tensors),
        sum(tensor.numel() * tensor.element_size() for tensor in tensors),
    )


class ModelSize:
    """The traffic of one model vector, of which only the travelling coordinates are sent."""

    def __init__(self, layout: Layout, travels: Tensor | None) -> None:
        self.parameters = layout.size if travels is None else int(travels.sum())
        self.bytes = layout.nbytes(travels)


def client_traffic(
    model: ModelSize,
    extras_down: Sequence[Tensor],
    extras_up: Sequence[Tensor],
    sent: ModelSize | None = None,
) -> Traffic:
    """Count one client's round: the model both ways, and what the method sends besides.

    ``sent`` is what goes up if that is not what came down.
    """
    down, up = count(extras_down), count(extras_up)
    sent = sent or model
    return Traffic(
        parameters_up=sent.parameters + up[0],
        parameters_down=model.parameters + down[0],
        bytes_up=sent.bytes + up[1],
        bytes_down=model.bytes + down[1],
    )
