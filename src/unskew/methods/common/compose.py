"""Several methods as one: ``fedprox+ida+fedadam``.

Hooks that add to what others do call ``super()``, so a class with several methods as its bases is
all of them: terms of the objective add up, weights multiply, references and extras join.
"""

from dataclasses import fields
from typing import Any, get_args

from pydantic.dataclasses import dataclass

from unskew.errors import UnskewError
from unskew.methods.common.base import About, Level, Method
from unskew.utils.specs import OPTIONS

_ONLY_ONE = ("rule", "step", "losses")
"""Hooks that replace what others do, so that only one of the parts may have them."""


def compose(parts: list[Method], names: list[str]) -> Method:
    """Return one method that is all of these; ``names`` are their spellings."""
    if len(parts) == 1:
        return parts[0]
    label = "+".join(names)
    _check(parts, names, label)
    kinds = tuple(type(part) for part in parts)
    members: dict[str, Any] = {
        "__doc__": f"{label}, composed.",
        "__module__": __name__,
        "spelling": label,
        "parts": tuple(parts),
        "__reduce__": lambda _: (compose, (parts, names)),  # for workers that are spawned
        "about": About(
            title=" and ".join(kind.about.title for kind in kinds),
            paper="; ".join(dict.fromkeys(kind.about.paper for kind in kinds)),
            kind=kinds[0].about.kind,
            level=max((kind.about.level for kind in kinds), key=get_args(Level).index),
            needs_individual_updates=any(kind.about.needs_individual_updates for kind in kinds),
            down=_together([kind.about.down for kind in kinds]),
            up=_together([kind.about.up for kind in kinds]),
            only_with_norms=any(kind.about.only_with_norms for kind in kinds),
        ),
        "grid": {name: values for kind in kinds for name, values in kind.grid.items()},
        "wants_train_accuracy": any(kind.wants_train_accuracy for kind in kinds),
    }
    whole: Any = dataclass(frozen=True, config=OPTIONS, kw_only=True)(type(label, kinds, members))
    method: Method = whole(**_options(parts, label))
    return method


def _together(sent: list[str]) -> str:
    """Say what several methods send together: the least of the model, and everything else."""
    pieces = [each.split(", ") for each in sent]
    model = next((first for first, *_ in pieces if first != "model"), "model")
    return ", ".join(dict.fromkeys([model, *(more for _, *others in pieces for more in others)]))


def _check(parts: list[Method], names: list[str], label: str) -> None:
    if len({type(part) for part in parts}) < len(parts):
        raise UnskewError(f"method {label!r}: each may stand once")
    for one, name in zip(parts, names, strict=True):
        for other, its_name in zip(parts, names, strict=True):
            if one is not other and isinstance(one, type(other)):
                raise UnskewError(f"method {label!r}: {name} is {its_name} and more; leave it away")
    for part, name in zip(parts[1:], names[1:], strict=True):
        if part.about.kind == "several models":
            raise UnskewError(
                f"method {label!r}: {name} must stand first, for the others go by the model it "
                "chooses; of several such methods take one"
            )
    for hook in _ONLY_ONE:
        having = [n for part, n in zip(parts, names, strict=True) if _changes(part, hook)]
        if len(having) > 1:
            raise UnskewError(f"method {label!r}: {' and '.join(having)} exclude each other")
    _check_passes(parts, names, label)
    rules = [
        n
        for part, n in zip(parts, names, strict=True)
        if _changes(part, "rule") and not _changes(part, "weighers")
    ]
    weightings = [n for part, n in zip(parts, names, strict=True) if _changes(part, "weighers")]
    if rules and weightings:
        raise UnskewError(
            f"method {label!r}: {rules[0]} decides by itself how much each client counts, and "
            f"{weightings[0]} cannot join in; leave one of them away"
        )


def _check_passes(parts: list[Method], names: list[str], label: str) -> None:
    """Refuse a second training by the whole method where a part counts on one."""
    again = [
        n
        for p, n in zip(parts, names, strict=True)
        if any(q.method is p for q in p.extra_trainings())
    ]
    once = [name for part, name in zip(parts, names, strict=True) if part.ends_once]
    if again and once:
        raise UnskewError(
            f"method {label!r}: {again[0]} trains twice a round, and {once[0]} counts on one "
            "training; leave one of them away"
        )


def _changes(part: Method, hook: str) -> bool:
    return getattr(type(part), hook) is not getattr(Method, hook)


def _options(parts: list[Method], label: str) -> dict[str, Any]:
    """Join the options of all parts; two that share a name must agree."""
    options: dict[str, Any] = {}
    for part in parts:
        for field in fields(part):
            value = getattr(part, field.name)
            if options.setdefault(field.name, value) != value:
                raise UnskewError(
                    f"method {label!r}: {field.name} is an option of several parts; "
                    "give it the same value in each"
                )
    return options
