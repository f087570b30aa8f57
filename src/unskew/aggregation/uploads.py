"""The uploads of one round: everything an aggregation rule may use."""

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from unskew.errors import UnskewError
from unskew.models.layout import Layout


@dataclass(frozen=True, eq=False)
class Uploads:
    """The uploads of one round, one row per client, in ascending order of client ids.

    ``stack`` is clients x coordinates; ``previous`` is the global vector that was sent to clients;
    ``extras`` holds the method's additional uploads, one tensor per client.
    """

    stack: Tensor
    layout: Layout
    previous: Tensor
    samples: Tensor
    clients: tuple[int, ...]
    train_loss: Tensor | None = None
    train_accuracy: Tensor | None = None
    label_counts: Tensor | None = None
    classes: int | None = None
    population: int | None = None
    """The number of clients in the federation, if known; see :attr:`num_clients_total`."""
    seed: int = 0
    round: int = 0
    """The run's seed and the round, for random numbers that a part draws itself."""
    extras: Mapping[str, Sequence[Tensor]] = field(default_factory=dict)
    max_share: float | None = None
    """The largest weight that a client may have in an average; None: no limit."""

    def __len__(self) -> int:
        return len(self.stack)

    @property
    def num_clients_total(self) -> int:
        """The number of clients in the federation; if unknown, the number in this round."""
        return self.population or len(self)

    @property
    def parameters(self) -> Tensor:
        """The trainable part of the stack, on which distances are computed."""
        return self.stack[:, : self.layout.trainable]

    def of_rows(self, rows: Tensor, previous: Tensor) -> "Uploads":
        """Return the uploads of the given rows, whose clients received ``previous``."""
        if len(rows) == len(self):
            return replace(self, previous=previous)

        def select(column: Tensor | None) -> Tensor | None:
            return None if column is None else column[rows]

        indices = rows.tolist()
        return replace(
            self,
            stack=self.stack[rows],
            previous=previous,
            samples=self.samples[rows],
            clients=tuple(self.clients[index] for index in indices),
            train_loss=select(self.train_loss),
            train_accuracy=select(self.train_accuracy),
            label_counts=select(self.label_counts),
            extras={name: [each[index] for index in indices] for name, each in self.extras.items()},
        )

    @classmethod
    def of(
        cls,
        stack: Tensor,
        samples: Tensor | Sequence[float] | None = None,
        layout: Layout | None = None,
        previous: Tensor | None = None,
        train_accuracy: Tensor | Sequence[float] | None = None,
        label_counts: Tensor | None = None,
        clients: Sequence[int] | None = None,
        train_loss: Tensor | Sequence[float] | None = None,
        extras: Mapping[str, Sequence[Tensor]] | None = None,
    ) -> "Uploads":
        """Build uploads from plain tensors; rows are sorted by client id."""
        stack = torch.as_tensor(stack, dtype=torch.float32)
        if stack.ndim != 2 or len(stack) == 0:
            raise UnskewError(
                f"stack must be clients x coordinates with at least one client "
                f"(got shape {tuple(stack.shape)})"
            )
        layout = layout or Layout.flat(stack.shape[1])
        if layout.size != stack.shape[1]:
            raise UnskewError(
                f"stack has {stack.shape[1]} coordinates, but its layout has {layout.size}"
            )
        if previous is not None and previous.shape != (layout.size,):
            raise UnskewError(
                f"previous must be a vector of {layout.size} coordinates, like the stack's rows "
                f"(got shape {tuple(previous.shape)})"
            )
        ids = list(range(len(stack))) if clients is None else [int(k) for k in clients]
        if len(set(ids)) != len(stack):
            raise UnskewError(f"clients must be {len(stack)} distinct ids, one per row (got {ids})")
        order = sorted(range(len(ids)), key=ids.__getitem__)
        in_order = order == list(range(len(ids)))

        def check_length(values: Sized, name: str) -> None:
            if len(values) != len(stack):
                raise UnskewError(
                    f"{name} must have one value per client: {len(stack)}, not {len(values)}"
                )

        def column(values: Tensor | Sequence[float] | None, name: str) -> Tensor | None:
            if values is None:
                return None
            tensor = torch.as_tensor(values, dtype=torch.float64)
            check_length(tensor, name)
            return tensor if in_order else tensor[order]

        for name, values in (extras or {}).items():
            check_length(values, f"extras {name!r}")
        counts = column(samples, "samples")
        return cls(
            stack=stack if in_order else stack[order],
            layout=layout,
            previous=torch.zeros(layout.size) if previous is None else previous,
            samples=torch.ones(len(stack), dtype=torch.float64) if counts is None else counts,
            clients=tuple(sorted(ids)),
            train_loss=column(train_loss, "train_loss"),
            train_accuracy=column(train_accuracy, "train_accuracy"),
            label_counts=column(label_counts, "label_counts"),
            extras={name: [values[i] for i in order] for name, values in (extras or {}).items()},
        )
