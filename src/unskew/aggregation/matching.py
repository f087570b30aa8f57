"""Match the hidden units of clients, so that units with the same function are averaged.

If all clients and the average have the same number of units, FedMA's most likely assignment is the
one with the largest sum of products between a client's units and the sum of the others': all other
terms of its score are the same for every assignment.
"""

import torch
from torch import Tensor

from unskew.aggregation.chain import Layer, renumber

_MIN_GAIN = 1e-6
"""Relative gain that a new assignment needs, so that rounding does not permute equal units."""


def matched(stack: Tensor, layers: tuple[Layer, ...], row_order: list[int], sweeps: int) -> Tensor:
    """Return the stack with every client's hidden units permuted, layer by layer.

    ``row_order`` is the order in which rows are matched; the first of these rows is unchanged.
    """
    stack = stack.clone()
    for number, layer in enumerate(layers[:-1]):
        units = [_unit_features(row, layer) for row in stack]
        for row, order in zip(stack, orders_of(units, row_order, sweeps), strict=True):
            renumber(row, layers, number, order)
    return stack


def orders_of(units: list[Tensor], row_order: list[int], sweeps: int) -> list[Tensor]:
    """Return for each client the order that aligns its units (rows) with those of the others.

    Each client is first matched to the sum of the clients before it. Then each is repeatedly
    matched to the sum of all others, until nothing changes or ``sweeps`` are done.
    """
    orders = [torch.arange(len(each)) for each in units]
    total = units[row_order[0]].clone()
    for row in row_order[1:]:
        orders[row] = _best_order(total, units[row], orders[row])
        total += units[row][orders[row]]
    for _ in range(sweeps if len(units) > 2 else 0):
        before = list(orders)
        for row in row_order[1:]:
            total -= units[row][orders[row]]
            orders[row] = _best_order(total, units[row], orders[row])
            total += units[row][orders[row]]
        if all(torch.equal(a, b) for a, b in zip(before, orders, strict=True)):
            break
    return orders


def _unit_features(vector: Tensor, layer: Layer) -> Tensor:
    """Describe each unit by its incoming weights, its bias and its normalisation."""
    entries = (layer.weight, *layer.vectors)
    return torch.cat([vector[entry.slice].view(layer.units, -1) for entry in entries], 1).double()


def _best_order(total: Tensor, units: Tensor, current: Tensor) -> Tensor:
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 (rarely used, slow to import)

    products = total @ units.T
    _, order = linear_sum_assignment(products.numpy(), maximize=True)
    best = torch.from_numpy(order)
    rows = torch.arange(len(units))
    old, new = products[rows, current].sum(), products[rows, best].sum()
    return best if float(new - old) > _MIN_GAIN * float(products.abs().max()) else current
