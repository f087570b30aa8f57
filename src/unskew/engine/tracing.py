"""Traces of training steps: the list of operations that a pure function of tensors executes.

``vmap`` and autograd derive a few dozen operations from a method's objective in every step. For
small networks that takes longer than the operations. A :class:`Trace` calls the very same
operations on other tensors of the same shapes, so it gives the same bits.
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
_SHAPE_ONLY = (_aten.ones_like, _aten.zeros_like, _aten.new_zeros, _aten.new_ones)
"""Operations whose results depend on the shape of the input, not on its values."""
_TAKES_NONE = (_aten.index, _aten.index_put)
"""Operations that accept None among their tensors; torch's Python functions of the same names do
not."""
_VALUE_DEPENDENT = {
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
    torch.Tag.nondeterministic_seeded,
}
_CHECK_FACTORS = (0.9, 0.7, 0.3)
"""Factors of the inputs with which a trace is checked."""


class NotTraceable(Exception):
    """The function may execute other operations for other values, or changes its inputs."""


class Trace:
    """The operations of a function, to be called on other tensors of the same shapes."""

    def __init__(self, function: Function, tensors: Sequence[Tensor]) -> None:
        # New objects, since two inputs that are one object in this call may differ in another.
        inputs = [tensor.detach() for tensor in tensors]
        tracer = _Tracer(inputs)
        with tracer:
            results = function(*inputs)
        self._run, self._constants = tracer.finish(results)
        self._check(function, inputs)

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return what the function would return."""
        with torch.no_grad():
            return self._run(*tensors, *self._constants)

    def _check(self, function: Function, inputs: Sequence[Tensor]) -> None:
        """Compare the trace with the function on other values.

        The trace must contain no value of the inputs. Also, torch computes a few gradients (that
        of a product, for example) differently, with other bits, under a dispatch mode.
        """
        for factor in _CHECK_FACTORS:
            others = [
                tensor * factor if tensor.is_floating_point() else tensor for tensor in inputs
            ]
            for traced, expected in zip(self(*others), function(*others), strict=True):
                if not _same_bits(traced, expected):
                    raise NotTraceable("the trace gives other results for other values")


class _Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds every operation whose result depends on the inputs to a graph; others are constants."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._graph = fx.Graph()
        self._nodes: dict[int, fx.Node] = {}
        self._storages: set[int] = set()
        self._alive: list[Any] = []
        """All tensors seen, since nodes are looked up by the identity of their tensor."""
        self._constants: dict[int, tuple[Tensor, fx.Node]] = {}
        self._problem: str | None = None
        self._inputs = [self._graph.placeholder(f"input{i}") for i in range(len(inputs))]
        for tensor, node in zip(inputs, self._inputs, strict=True):
            self._register(tensor, node)

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
        """Execute one operation and add it to the graph."""
        del types
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self._alive.append((args, kwargs, result))
        tensors = _tensors((args, kwargs))
        derived = [tensor for tensor in tensors if id(tensor) in self._nodes]
        if _depends_on_values(func, tensors) or func._schema.is_mutable:
            self._problem = str(func)
        elif derived and func.overloadpacket not in _SHAPE_ONLY:
            self._add(func, args, kwargs, derived, result)
        return result

    def finish(self, results: Sequence[Tensor]) -> tuple[Function, tuple[Tensor, ...]]:
        """Return the operations as one function, and the constants that are its last arguments."""
        if self._problem is not None:
            raise NotTraceable(self._problem)
        nodes = [self._nodes.get(id(result)) for result in results]
        if any(node is None or node in self._inputs for node in nodes):
            raise NotTraceable("a result is a constant or an input")
        self._graph.output(tuple(nodes))
        self._graph.eliminate_dead_code()
        constants = tuple(tensor for tensor, _ in self._constants.values())
        return fx.GraphModule(nn.Module(), self._graph).forward, constants

    def _add(
        self,
        func: OpOverload[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        derived: Sequence[Tensor],
        result: Any,
    ) -> None:
        if isinstance(result, Tensor):
            for tensor in derived:
                if _is_same_view(tensor, result):  # such as a reshape to the same shape
                    self._nodes[id(result)] = self._nodes[id(tensor)]
                    return
        node = self._graph.call_function(
            _binding(func), self._with_nodes(args), self._with_nodes(kwargs)
        )
        if isinstance(result, Tensor):
            self._register(result, node)
            return
        for i, part in enumerate(result):
            if isinstance(part, Tensor):  # it is None for a gradient that is not needed
                self._register(part, self._graph.call_function(operator.getitem, (node, i)))

    def _register(self, tensor: Tensor, node: fx.Node) -> None:
        self._nodes[id(tensor)] = node
        self._storages.add(tensor.untyped_storage().data_ptr())

    def _with_nodes(self, arguments: Any) -> Any:
        return map_aggregate(arguments, self._node_of)

    def _node_of(self, value: Argument) -> Argument:
        """Return a tensor's node; a tensor that is not the result of an operation is a constant."""
        if not isinstance(value, Tensor):
            return value
        if id(value) in self._nodes:
            return self._nodes[id(value)]
        if value.untyped_storage().data_ptr() in self._storages:
            self._problem = "a view that is not the result of an operation"
        if id(value) not in self._constants:
            node = self._graph.placeholder(f"constant{len(self._constants)}")
            self._constants[id(value)] = value, node
        return self._constants[id(value)][1]


def _depends_on_values(func: OpOverload[..., Any], tensors: Sequence[Tensor]) -> bool:
    """Return whether the shape of the result, or what the function does next, depends on values."""
    if func.overloadpacket is _aten.index:  # the shape depends on the values of a mask only
        return any(tensor.dtype in (torch.bool, torch.uint8) for tensor in tensors[1:])
    return not _VALUE_DEPENDENT.isdisjoint(func.tags)


def _binding(func: OpOverload[..., Any]) -> Callable[..., Any]:
    """Return torch's Python function for an operation: half the overhead of the generic call."""
    if func.overloadpacket in _TAKES_NONE:
        return func
    name = func.overloadpacket.__name__
    for namespace in (torch, torch.Tensor):
        function = getattr(namespace, name, None)
        if isinstance(function, BuiltinFunctionType | MethodDescriptorType):
            return function
    return func


def _tensors(arguments: Any) -> list[Tensor]:
    found: list[Tensor] = []

    def visit(value: Argument) -> Argument:
        if isinstance(value, Tensor):
            found.append(value)
        return value

    map_aggregate(arguments, visit)
    return found


def _is_same_view(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors show the same memory in the same way."""
    return (
        one.data_ptr() == other.data_ptr()
        and one.dtype == other.dtype
        and one.shape == other.shape
        and one.stride() == other.stride()
    )


def _same_bits(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal, where NaN equals NaN."""
    same_shape = one.shape == other.shape and one.stride() == other.stride()
    return same_shape and bool(((one == other) | (one.isnan() & other.isnan())).all())
