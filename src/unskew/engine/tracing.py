"""A step, recorded: the operations that a pure function of tensors came down to, in one list.

``vmap`` and autograd find the way from a method's objective to a few dozen operations anew in each
step. For small networks that takes longer than the operations. A :class:`Recording` calls the very
same operations on other tensors of the same shapes, so it gives the same bits.
"""

import operator
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch.fx.node import Argument, map_aggregate
from torch.utils._python_dispatch import TorchDispatchMode

Function = Callable[..., tuple[Tensor, ...]]

_aten = torch.ops.aten
_OF_SHAPES = (_aten.ones_like, _aten.zeros_like, _aten.new_zeros, _aten.new_ones)
"""They look at the shape of what they are given, not at its numbers."""
_WITH_GAPS = (_aten.index, _aten.index_put)
"""They take None among their tensors, which torch's Python functions of these names do not."""
_BY_VALUE = {
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
    torch.Tag.nondeterministic_seeded,
}
_OTHER_NUMBERS = (0.9, 0.7, 0.3)
"""Factors of the inputs that a recording is tried with."""


class NotTraceable(Exception):
    """The function may do something else with other numbers, or changes what it is given."""


class Trace:
    """The operations of a function, to be called on other tensors of the same shapes."""

    def __init__(self, function: Function, tensors: Sequence[Tensor]) -> None:
        # Tensors of their own: two inputs that happen to be one object now may differ later.
        inputs = [tensor.detach() for tensor in tensors]
        recorder = _Recorder(inputs)
        with recorder:
            results = function(*inputs)
        self._run, self._constants = recorder.finish(results)
        self._check(function, inputs)

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return what the function would return."""
        with torch.no_grad():
            return self._run(*tensors, *self._constants)

    def _check(self, function: Function, inputs: Sequence[Tensor]) -> None:
        """Compare with the function on other numbers.

        None of the recorded numbers may stay, and torch itself has a few gradients (of a product,
        for one) that it takes on another way, with other bits, when somebody looks on.
        """
        for factor in _OTHER_NUMBERS:
            others = [
                tensor * factor if tensor.is_floating_point() else tensor for tensor in inputs
            ]
            for replayed, real in zip(self(*others), function(*others), strict=True):
                if not _same_bits(replayed, real):
                    raise NotTraceable("with other numbers it gives other results")


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down every operation whose result depends on the inputs; the others are constants."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._graph = fx.Graph()
        self._nodes: dict[int, fx.Node] = {}
        self._places: set[int] = set()
        self._alive: list[Any] = []
        """Everything seen, since a node is found by the identity of its tensor."""
        self._constants: dict[int, tuple[Tensor, fx.Node]] = {}
        self._refusal: str | None = None
        self._inputs = [self._graph.placeholder(f"input{i}") for i in range(len(inputs))]
        for tensor, node in zip(inputs, self._inputs, strict=True):
            self._remember(tensor, node)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise torch imports its compiler here, which takes two seconds.
        return False

    def __torch_dispatch__(
        self,
        func: OpOverload[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Do one operation and write it down."""
        del types
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self._alive.append((args, kwargs, result))
        tensors = _tensors((args, kwargs))
        derived = [tensor for tensor in tensors if id(tensor) in self._nodes]
        if _looks_at_numbers(func, tensors) or func._schema.is_mutable:
            self._refusal = str(func)
        elif derived and func.overloadpacket not in _OF_SHAPES:
            self._write(func, args, kwargs, derived, result)
        return result

    def finish(self, results: Sequence[Tensor]) -> tuple[Function, tuple[Tensor, ...]]:
        """Return the operations as one function, and the constants to call it with at the end."""
        if self._refusal is not None:
            raise NotTraceable(self._refusal)
        nodes = [self._nodes.get(id(result)) for result in results]
        if any(node is None or node in self._inputs for node in nodes):
            raise NotTraceable("a result is a constant or an input")
        self._graph.output(tuple(nodes))
        self._graph.eliminate_dead_code()
        constants = tuple(tensor for tensor, _ in self._constants.values())
        return fx.GraphModule(nn.Module(), self._graph).forward, constants

    def _write(
        self,
        func: OpOverload[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        derived: Sequence[Tensor],
        result: Any,
    ) -> None:
        if isinstance(result, Tensor):
            for tensor in derived:
                if _are_the_same(tensor, result):  # such as views that change nothing
                    self._nodes[id(result)] = self._nodes[id(tensor)]
                    return
        node = self._graph.call_function(
            _binding(func), self._described(args), self._described(kwargs)
        )
        if isinstance(result, Tensor):
            self._remember(result, node)
            return
        for i, part in enumerate(result):
            if isinstance(part, Tensor):  # None, where nobody asks for that gradient
                self._remember(part, self._graph.call_function(operator.getitem, (node, i)))

    def _remember(self, tensor: Tensor, node: fx.Node) -> None:
        self._nodes[id(tensor)] = node
        self._places.add(tensor.untyped_storage().data_ptr())

    def _described(self, arguments: Any) -> Any:
        return map_aggregate(arguments, self._describe)

    def _describe(self, value: Argument) -> Argument:
        """Put nodes in place of tensors; one that no operation made is a constant."""
        if not isinstance(value, Tensor):
            return value
        if id(value) in self._nodes:
            return self._nodes[id(value)]
        if value.untyped_storage().data_ptr() in self._places:
            self._refusal = "a view that no operation made"
        if id(value) not in self._constants:
            node = self._graph.placeholder(f"constant{len(self._constants)}")
            self._constants[id(value)] = value, node
        return self._constants[id(value)][1]


def _looks_at_numbers(func: OpOverload[..., Any], tensors: Sequence[Tensor]) -> bool:
    """Tell whether shape or value of a result may lead the function elsewhere next time."""
    if func.overloadpacket is _aten.index:  # by places: the shapes are known; by a mask: not
        return any(tensor.dtype in (torch.bool, torch.uint8) for tensor in tensors[1:])
    return not _BY_VALUE.isdisjoint(func.tags)


def _binding(func: OpOverload[..., Any]) -> Callable[..., Any]:
    """Return torch's own Python function for an operation: half the way of the generic one."""
    if func.overloadpacket in _WITH_GAPS:
        return func
    name = func.overloadpacket.__name__
    for home in (torch, torch.Tensor):
        found = getattr(home, name, None)
        if isinstance(found, BuiltinFunctionType | MethodDescriptorType):
            return found
    return func


def _tensors(arguments: Any) -> list[Tensor]:
    found: list[Tensor] = []

    def visit(value: Argument) -> Argument:
        if isinstance(value, Tensor):
            found.append(value)
        return value

    map_aggregate(arguments, visit)
    return found


def _are_the_same(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors are the same numbers at the same place in memory."""
    return (
        one.data_ptr() == other.data_ptr()
        and one.dtype == other.dtype
        and one.shape == other.shape
        and one.stride() == other.stride()
    )


def _same_bits(one: Tensor, other: Tensor) -> bool:
    """Compare with NaN equal to NaN."""
    same_shape = one.shape == other.shape and one.stride() == other.stride()
    return same_shape and bool(((one == other) | (one.isnan() & other.isnan())).all())
