"""How large what clients sent was, in the rounds of a stage that were aggregated so far.

A median over one or two replies says nothing, so few replies are compared with these sizes
(:mod:`unskew.engine.size_checks`). They are part of every checkpoint.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from unskew.composition.values import Tensors

Sizes = Mapping[str, Mapping[int, float]]
"""The size of each value, by the name of the value and by client."""


def lower_median(sizes: Mapping[int, float] | tuple[float, ...]) -> float:
    """Return the median of some sizes; of an even number, the lower one."""
    ordered = sorted(sizes.values() if isinstance(sizes, Mapping) else sizes)
    return ordered[(len(ordered) - 1) // 2]


@dataclass(frozen=True, eq=False)
class AcceptedSizes:
    """The median of each round, and the first size of each client, by the name of the value.

    The first and not the last: otherwise a client could grow step by step.
    """

    medians: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    first: Sizes = field(default_factory=dict)

    def known(self, name: str, client: int) -> list[float]:
        """Return what a client's size can be compared with: earlier rounds, and its own past."""
        own = self.first.get(name, {}).get(client)
        usual = [lower_median(self.medians[name])] if name in self.medians else []
        return usual if own is None else [*usual, own]

    def after_round(self, sizes: Sizes) -> "AcceptedSizes":
        """Return these sizes with those of one more round."""
        medians, first = dict(self.medians), dict(self.first)
        for name, each in sizes.items():
            if each:
                medians[name] = (*medians.get(name, ()), lower_median(each))
            before = first.get(name, {})
            if not each.keys() <= before.keys():
                first[name] = {**each, **before}
        return AcceptedSizes(medians, first)

    def to_tensors(self) -> Tensors:
        """Return tensors that hold the sizes, for a checkpoint."""
        tensors = {
            f"medians:{name}": torch.tensor(values, dtype=torch.float64)
            for name, values in self.medians.items()
        }
        for name, by_client in self.first.items():
            tensors[f"clients:{name}"] = torch.tensor(list(by_client), dtype=torch.int64)
            sizes = list(by_client.values())
            tensors[f"first:{name}"] = torch.tensor(sizes, dtype=torch.float64)
        return tensors

    @classmethod
    def from_tensors(cls, tensors: Tensors) -> "AcceptedSizes":
        """Return the sizes that tensors of a checkpoint hold."""
        medians: dict[str, tuple[float, ...]] = {}
        first: dict[str, dict[int, float]] = {}
        for key, tensor in tensors.items():
            kind, _, name = key.partition(":")
            if kind == "medians":
                medians[name] = tuple(tensor.tolist())
            elif kind == "first":
                clients: list[int] = tensors[f"clients:{name}"].tolist()
                first[name] = dict(zip(clients, tensor.tolist(), strict=True))
        return cls(medians, first)
