"""Several methods as one: ``fedprox+ida+fedadam``.

Hooks that add something call ``super()``, so a class with several methods as its bases applies all
of them: terms of the objective are summed, weights multiplied, references and extras merged.
"""

from dataclasses import fields
from typing import Any, get_args

from pydantic.dataclasses import dataclass

from unskew.errors import UnskewError
from unskew.methods.common.base import About, Level, Method
from unskew.utils.specs import OPTIONS

_EXCLUSIVE_HOOKS = ("rule", "step", "losses")
"""Hooks that replace the default, so that only one of the parts may override them."""


def compose(parts: list[Method], names: list[str]) -> Method:
    """Return one method that applies all parts; ``names`` are their spec strings."""
    if len(parts) == 1:
        return parts[0]
    label = "+".join(names)
    _check(parts, names, label)
    kinds = tuple(type(part) for part in parts)
    members: dict[str, Any] = {
        "__doc__": f"{label}, composed.",
        "__module__": __name__,
        "composed_spec": label,
        "parts": tuple(parts),
        "__reduce__": lambda _: (compose, (parts, names)),  # for workers that are spawned
        "about": About(
            title=" and ".join(kind.about.title for kind in kinds),
            paper="; ".join(dict.fromkeys(kind.about.paper for kind in kinds)),
            kind=kinds[0].about.kind,
            level=max((kind.about.level for kind in kinds), key=get_args(Level).index),
            needs_individual_updates=any(kind.about.needs_individual_updates for kind in kinds),
            down=_joint_traffic([kind.about.down for kind in kinds]),
            up=_joint_traffic([kind.about.up for kind in kinds]),
            only_with_norms=any(kind.about.only_with_norms for kind in kinds),
        ),
        "grid": {name: values for kind in kinds for name, values in kind.grid.items()},
        "needs_train_accuracy": any(kind.needs_train_accuracy for kind in kinds),
    }
    composed: Any = dataclass(frozen=True, config=OPTIONS, kw_only=True)(
        type(label, kinds, members)
    )
    method: Method = composed(**_options(parts, label))
    return method


def _joint_traffic(descriptions: list[str]) -> str:
    """Describe what composed methods send: the smallest part of the model, and all extras."""
    pieces = [description.split(", ") for description in descriptions]
    model = next((first for first, *_ in pieces if first != "model"), "model")
    return ", ".join(dict.fromkeys([model, *(extra for _, *extras in pieces for extra in extras)]))


def _check(parts: list[Method], names: list[str], label: str) -> None:
    if len({type(part) for part in parts}) < len(parts):
        raise UnskewError(f"method {label!r}: each method may be listed once")
    for part, name in zip(parts, names, strict=True):
        for other, other_name in zip(parts, names, strict=True):
            if part is not other and isinstance(part, type(other)):
                raise UnskewError(
                    f"method {label!r}: {name} includes {other_name}; remove {other_name}"
                )
    for part, name in zip(parts[1:], names[1:], strict=True):
        if part.about.kind == "several models":
            raise UnskewError(
                f"method {label!r}: {name} must come first, because the others apply to the model "
                "it chooses; use only one such method"
            )
    for hook in _EXCLUSIVE_HOOKS:
        overriding = [n for part, n in zip(parts, names, strict=True) if _overrides(part, hook)]
        if len(overriding) > 1:
            raise UnskewError(f"method {label!r}: {' and '.join(overriding)} exclude each other")
    _check_trainings(parts, names, label)
    rules = [
        n
        for part, n in zip(parts, names, strict=True)
        if _overrides(part, "rule") and not _overrides(part, "weightings")
    ]
    weightings = [n for part, n in zip(parts, names, strict=True) if _overrides(part, "weightings")]
    if rules and weightings:
        raise UnskewError(
            f"method {label!r}: {rules[0]} sets the clients' weights itself and cannot be combined "
            f"with those of {weightings[0]}; remove one of them"
        )


def _check_trainings(parts: list[Method], names: list[str], label: str) -> None:
    """Reject a second training by the composed method where a part needs a single one."""
    repeated = [
        name
        for part, name in zip(parts, names, strict=True)
        if any(training.method is part for training in part.extra_trainings())
    ]
    single = [name for part, name in zip(parts, names, strict=True) if part.needs_single_training]
    if repeated and single:
        raise UnskewError(
            f"method {label!r}: {repeated[0]} trains twice per round, and {single[0]} needs a "
            "single training; remove one of them"
        )


def _overrides(part: Method, hook: str) -> bool:
    return getattr(type(part), hook) is not getattr(Method, hook)


def _options(parts: list[Method], label: str) -> dict[str, Any]:
    """Merge the options of all parts; options of the same name must have the same value."""
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
