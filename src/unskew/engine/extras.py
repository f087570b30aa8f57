"""What the clients of a round send besides their models, in one matrix per name."""

from torch import Tensor

from unskew.composition.values import Tensors


class ExtrasMatrix:
    """Copies the extras of clients into rows, so that a method can use them without stacking."""

    def __init__(self, clients: int) -> None:
        self._clients = clients
        self._matrices: dict[str, Tensor] = {}

    def copied(self, row: int, extras: Tensors) -> Tensors:
        """Return copies of a client's extras; those of another shape than others' are not rows."""
        return {name: self._copied(row, name, tensor) for name, tensor in extras.items()}

    def _copied(self, row: int, name: str, tensor: Tensor) -> Tensor:
        if name not in self._matrices:
            self._matrices[name] = tensor.new_empty((self._clients, *tensor.shape))
        matrix = self._matrices[name]
        if matrix.shape[1:] != tensor.shape or matrix.dtype != tensor.dtype:
            return tensor.clone()
        return matrix[row].copy_(tensor)
