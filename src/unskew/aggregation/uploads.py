"""What the server holds after one round: everything any rule may look at, in one value."""

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from unskew.errors import UnskewError
from unskew.models.layout import Layout


@dataclass(frozen=True, eq=False)
class Uploads:
    """The uploads of one round, a row a client, clients in ascending order of their ids.

    ``stack`` is clients x coordinates; ``previous`` is the global vector that was sent;
    ``extras`` holds what the method's clients sent besides, one tensor a client.
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
    """How many clients the federation has, whether they took part or not; see :attr:`everybody`."""
    extras: Mapping[str, Sequence[Tensor]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.stack)

    @property
    def everybody(self) -> int:
        """How many clients the federation has; where that is not known, as many as took part."""
        return self.population or len(self)

    @property
    def parameters(self) -> Tensor:
        """The trainable part of the stack: what distances are measured on."""
        return self.stack[:, : self.layout.trainable]

    def of_rows(self, rows: Tensor, previous: Tensor) -> "Uploads":
        """Return the uploads of some rows, whose clients were sent ``previous``."""
        if len(rows) == len(self):
            return replace(self, previous=previous)

        def picked(column: Tensor | None) -> Tensor | None:
            return None if column is None else column[rows]

        places = rows.tolist()
        return replace(
            self,
            stack=self.stack[rows],
            previous=previous,
            samples=self.samples[rows],
            clients=tuple(self.clients[place] for place in places),
            train_loss=picked(self.train_loss),
            train_accuracy=picked(self.train_accuracy),
            label_counts=picked(self.label_counts),
            extras={name: [each[place] for place in places] for name, each in self.extras.items()},
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
        """Build uploads from plain tensors; rows are put into the order of the client ids."""
        stack = torch.as_tensor(stack, dtype=torch.float32)
        if stack.ndim != 2 or len(stack) == 0:
            raise UnskewError(
                f"stack must be clients x coordinates with at least one client "
                f"(got shape {tuple(stack.shape)})"
            )
        layout = layout or Layout.flat(stack.shape[1])
        if layout.size != stack.shape[1]:
            raise UnskewError(
                f"stack has {stack.shape[1]} coordinates, its layout describes {layout.size}"
            )
        if previous is not None and previous.shape != (layout.size,):
            raise UnskewError(
                f"previous must be a vector of {layout.size} coordinates, as the stack's rows are "
                f"(got shape {tuple(previous.shape)})"
            )
        ids = list(range(len(stack))) if clients is None else [int(k) for k in clients]
        if len(set(ids)) != len(stack):
            raise UnskewError(f"clients must name each of the {len(stack)} rows once (got {ids})")
        order = sorted(range(len(ids)), key=ids.__getitem__)
        in_order = order == list(range(len(ids)))

        def check_length(values: Sized, name: str) -> None:
            if len(values) != len(stack):
                raise UnskewError(
                    f"{name} must have one value a client: {len(stack)}, not {len(values)}"
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
