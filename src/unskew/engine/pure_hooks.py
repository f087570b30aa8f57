"""The checking mode of a stage's first rounds: hooks must be pure functions of what they receive.

A hook that changes its input, draws from a global generator or stores something gives other
results in another runner, process or order of clients. :func:`checking` returns a method whose
hooks are compared before and after each call, and custom hooks are called twice, which shows what
they keep elsewhere than on their part; later rounds call the hooks themselves.
"""

import copy
import functools
import pickle
import random
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import FrozenInstanceError, dataclass, fields, is_dataclass, replace
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting
from unskew.composition.hook_calls import HookFailed
from unskew.composition.method import Method
from unskew.composition.parts import Part
from unskew.composition.values import Beginning, Client, ExtraTraining
from unskew.engine.placement import is_accelerator
from unskew.models.layout import Layout
from unskew.utils.code_places import in_brackets, place_of_function
from unskew.utils.unwrapped import unwrapped

CHECKED_ROUNDS = 2
"""How many of a stage's first rounds are checked; in the second, clients have state."""

_IN_STEPS = frozenset({"losses", "loss_term", "perturbation", "next_refs"})
"""Hooks of a local step: layers such as Dropout draw from torch's generator, seeded by the client,
and update the buffers."""
_NOT_CHECKED = frozenset({"adapt", "check", "proximal_strength"})
_STORES = (int, float, list, dict, set)
"""The types of class attributes in which a part could store something."""
_DESCRIPTIONS = (type, Layout, Method, Part)
"""Dataclasses without tensors that a hook could change."""
_ATOMS = (bool, int, float, complex, str, bytes, type(None))
_KEEP = "keep a tensor in the state that finish (on clients) or conclude (on the server) returns"
_ON_CLIENT = 'torch_generator(client.seed, "a purpose", client.round, client.id)'
_ON_SERVER = 'torch_generator(uploads.seed, "a purpose", uploads.round)'
_IN_STATE = f"in conclude, {_ON_SERVER}, and read the numbers in server.state"
_DRAWN_ELSEWHERE = {
    **dict.fromkeys(_IN_STEPS, f"in prepare, {_ON_CLIENT}, and read the numbers in refs"),
    **dict.fromkeys(("broadcast", "model", "is_done"), _IN_STATE),
    "client_weights": f"in the function of the ClientWeighting, {_ON_SERVER}",
    "personal": f"in finish, {_ON_CLIENT}, and read the numbers in state",
}
"""Where to draw for a hook that receives no seed."""


class ImpureHook(HookFailed):
    """A hook changed something besides what it returned, or drew from a global generator."""


def checking(method: Method) -> Method:
    """Return a method that does the same and raises :class:`ImpureHook` if a hook is not pure."""
    return replace(method, parts=tuple(_checking_part(part) for part in method.parts))


def _checking_part(part: Part) -> Part:
    """Return a copy of a part whose own hooks are checked."""
    names = [name for name in _hooks(type(part)) if name not in _NOT_CHECKED]
    if not names or any(isinstance(each, _CheckedHook) for each in vars(part).values()):
        return part
    checked = copy.copy(part)
    vars(checked).update({name: _CheckedHook(checked, name) for name in names})
    return checked


def _hooks(cls: type[Part]) -> tuple[str, ...]:
    """Return the names of the hooks that a class defines in place of the defaults."""
    defaults = {
        name: function
        for base in cls.__mro__
        if issubclass(base, Part) and base.__module__.startswith("unskew.composition.")
        for name, function in vars(base).items()
        if isinstance(function, FunctionType) and not name.startswith("_")
    }
    own = [name for name, default in defaults.items() if getattr(cls, name) is not default]
    return tuple(name for name in own if isinstance(getattr(cls, name), FunctionType))


@dataclass(frozen=True, eq=False)
class _CheckedHook:
    """A hook of a part that is compared before and after each call."""

    part: Part
    name: str

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the hook."""
        function = getattr(type(self.part), self.name)
        function = functools.partial(function, self.part)
        result, again = self._checked(function, function, args, options)
        if isinstance(result, ClientWeighting):  # it reads the uploads later
            derive = functools.partial(self._derive, result.derive, again.derive)
            return replace(result, derive=derive)
        if isinstance(result, ExtraTraining):
            return replace(result, method=checking(result.method))
        if isinstance(result, tuple) and all(isinstance(each, ExtraTraining) for each in result):
            return tuple(replace(each, method=checking(each.method)) for each in result)
        return result

    def _derive(
        self, derive: Callable[..., Any], derive_again: Callable[..., Any], uploads: Uploads
    ) -> Any:
        return self._checked(derive, derive_again, (uploads,), {}, ("uploads",))[0]

    def _checked(
        self,
        function: Callable[..., Any],
        function_again: Callable[..., Any],
        args: Sequence[Any],
        options: Mapping[str, Any],
        names: Sequence[str] = (),
    ) -> tuple[Any, Any]:
        """Return what a function returned, and what it returned when it was called again."""
        if not names:
            code = getattr(type(self.part), self.name).__code__
            names = code.co_varnames[1 : code.co_argcount]
        received = {**dict(zip(names, args, strict=False)), **options}
        in_step = self.name in _IN_STEPS
        values = [pair for name, each in received.items() for pair in _leaves(name, each)]
        before = [_state(value, content=not in_step) for _, value in values]
        attributes, generators = _attributes(self.part), _generators(in_step=in_step)
        try:
            result = function(*args, **options)
        except FrozenInstanceError as error:
            name = str(error).rpartition(" ")[2].strip("'")  # "cannot assign to field 'count'"
            raise self._stored(name) if hasattr(self.part, name) else error from None
        spoiled = [
            label
            for (label, value), state in zip(values, before, strict=True)
            if _state(value, content=not in_step) != state
        ]
        if spoiled:  # one tensor may have several names
            raise self._error(
                f"changed {' and '.join(spoiled[:3])} in place, which others use too; compute a "
                "new tensor, such as x * 0.9 in place of x.mul_(0.9) or x *= 0.9, and return it"
            )
        used = _first_difference(generators, _generators(in_step=in_step))
        if used is not None:
            raise self._error(
                f"drew from the global generator of {used}, whose numbers differ between "
                f"processes; use torch_generator of unskew.utils.rng: {_draw(self.name, received)}"
            )
        changed = _first_difference(attributes, _attributes(self.part))
        if changed is not None:
            raise self._stored(changed.partition("[")[0])  # a key may be data
        if in_step or not _is_custom(self.part):
            return result, result
        content = _content(result)  # before the second call, which may change it in place
        again = function_again(*args, **options)
        if _content(again) != content:
            raise self._error(
                "returned something else when it was called again with the same arguments: it must "
                f"depend on nothing but them; {_KEEP}, and to draw, use torch_generator of "
                f"unskew.utils.rng: {_draw(self.name, received)}"
            )
        return result, again

    def _stored(self, attribute: str) -> ImpureHook:
        return self._error(
            f"changed the attribute {attribute} of its part, of which every process has a copy; "
            f"{_KEEP}"
        )

    def _error(self, what: str) -> ImpureHook:
        place = functools.partial(place_of_function, getattr(type(self.part), self.name))
        name = f"{self.name} of {self.part.name!r}"
        error = ImpureHook(f"{name}{in_brackets(place())} {what}")
        error.without_values = f"stopped: {name}{in_brackets(place(names_folder=False))} {what}"
        return error


def _is_custom(part: Part) -> bool:
    """Return whether a part's hooks are called twice; tests call those of the package twice too."""
    return not type(part).__module__.startswith("unskew.")


def _draw(hook: str, received: Mapping[str, Any]) -> str:
    """Return the call that gives a hook its own generator, from what it received."""
    for name, value in received.items():
        if isinstance(value, Client):
            return _ON_CLIENT.replace("client.", f"{name}.")
        if isinstance(value, Uploads):
            return _ON_SERVER.replace("uploads.", f"{name}.")
        if isinstance(value, Beginning):
            return f'torch_generator({name}.seed, "a purpose")'
    match hook, *received:
        case "candidates", _, round_, seed, *_:
            return f'torch_generator({seed}, "a purpose", {round_})'
        case "shared_samples", _, seed, *_:
            return f'torch_generator({seed}, "a purpose")'
    return _DRAWN_ELSEWHERE.get(hook, 'torch_generator(0, "a purpose"), as it receives no seed')


def _content(value: object) -> object:
    """Return what is equal for values with the same bits; None for what cannot be compared."""
    if isinstance(value, Tensor):
        plain = unwrapped(value)
        return plain.dtype, plain.shape, _checksum(plain)
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, _checksum_of_array(value)
    if isinstance(value, Mapping):
        return {key: _content(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(_content, value))
    if is_dataclass(value) and not isinstance(value, type):
        held = {field.name: getattr(value, field.name, None) for field in fields(value)}
        return type(value), _content(held)
    return repr(value) if isinstance(value, (*_ATOMS, np.generic)) else None


def _leaves(label: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield the tensors, arrays and lists in a value, named by where they are."""
    if isinstance(value, Tensor | np.ndarray):
        yield label, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _leaves(f"{label}[{key!r}]", each)
    elif isinstance(value, list | tuple):
        if isinstance(value, list):
            yield label, value
        for place, each in enumerate(value):
            if not isinstance(each, _ATOMS):
                yield from _leaves(f"{label}[{place}]", each)
    elif _has_data(value):
        for field in fields(value):  # type: ignore[arg-type]
            if field.name != "buffers":  # a forward pass in training updates them
                yield from _leaves(f"{label}.{field.name}", getattr(value, field.name))


def _has_data(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, _DESCRIPTIONS)


def _attributes(part: Part) -> dict[str, object]:
    """Return the state of what a part's object and classes hold, by name."""
    held = {
        name: value for name, value in _held_by(part).items() if not isinstance(value, _CheckedHook)
    }
    for cls in type(part).__mro__:
        if not issubclass(cls, Part) or cls.__module__.startswith("unskew."):
            continue
        for name, value in vars(cls).items():
            if not name.startswith("_") and isinstance(value, _STORES):
                held[f"{cls.__name__}.{name}"] = value
    found: dict[str, object] = {}
    for name, value in held.items():
        _add_states(found, name, value, {id(part)})
    return found


def _add_states(found: dict[str, object], label: str, value: object, seen: set[int]) -> None:
    """Add the state of a value and of all that it holds, by where it is."""
    if isinstance(value, _ATOMS):
        found[label] = repr(value)
        return
    found[label] = id(value)
    if id(value) in seen or isinstance(value, type | FunctionType):
        return
    seen.add(id(value))
    held: dict[str, object] = {}
    if isinstance(value, Mapping):
        held = {f"{label}[{key!r}]": each for key, each in value.items()}
    elif isinstance(value, list | tuple):
        held = {f"{label}[{place}]": each for place, each in enumerate(value)}
    elif not isinstance(value, Tensor | np.ndarray | AbstractSet) and hasattr(value, "__dict__"):
        held = {f"{label}.{name}": each for name, each in _held_by(value).items()}
    else:
        found[label] = _state(value)
    for name, each in held.items():
        _add_states(found, name, each, seen)


def _held_by(value: object) -> dict[str, object]:
    """Return an object's attributes without cached properties and a module's mode."""
    return {
        name: each
        for name, each in vars(value).items()
        if name != "training"
        and not isinstance(getattr(type(value), name, None), functools.cached_property)
    }


def _state(value: object, *, content: bool = True) -> object:
    """Return what differs after a value has been changed in place.

    The version of a tensor counts its changes by torch, and the content shows others', such as
    NumPy's.
    """
    match value:
        case Tensor():
            plain = unwrapped(value)
            version = None if plain.is_inference() else plain._version
            return version, _checksum(plain) if content else None
        case np.ndarray():
            return _checksum_of_array(value) if value.flags.writeable else None
        case list():
            return tuple(map(id, value))
    try:
        return pickle.dumps(value)  # generators, for example
    except Exception:  # any object may refuse to be pickled
        return repr(value)


def _checksum(tensor: Tensor) -> int | None:
    """Return a checksum of a tensor in this machine's memory."""
    if is_accelerator(tensor.device) or tensor.layout is not torch.strided:
        return None
    return zlib.crc32(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def _checksum_of_array(array: "np.ndarray[Any, Any]") -> int | None:
    if array.dtype.hasobject:
        return None
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _generators(*, in_step: bool) -> dict[str, object]:
    """Return the states of the global generators, as far as only this hook can change them.

    With several threads, another run may draw from them at any time.
    """
    here = threading.current_thread()
    if any(each is not here and not each.daemon for each in threading.enumerate()):
        return {}
    states: dict[str, object] = {
        "NumPy": _numpy_state(),
        "Python's random": random.getstate(),
    }
    if not in_step:
        states["torch"] = torch.default_generator.get_state().numpy().tobytes()
    return states


def _numpy_state() -> object:
    _, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    return np.asarray(keys).tobytes(), rest


def _first_difference(before: Mapping[str, object], after: Mapping[str, object]) -> str | None:
    """Return the first name whose state is new, gone or different."""
    names = dict.fromkeys((*before, *after))
    return next((name for name in names if before.get(name) != after.get(name)), None)
