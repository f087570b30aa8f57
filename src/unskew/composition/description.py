"""The description of a method, joined from those of its parts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from unskew.composition.values import About, Level

if TYPE_CHECKING:
    from unskew.composition.parts import Part

_FEDAVG = About(
    title="Average by samples",
    paper="McMahan et al. 2017",
    kind="server",
    needs_individual_updates=False,
    down="model",
    up="model",
)


def described(parts: Sequence["Part"]) -> About:
    """Describe a method by its parts."""
    abouts = [_about(part) for part in parts] or [_FEDAVG]
    if len(abouts) == 1:
        return abouts[0]
    return About(
        title=" and ".join(about.title for about in abouts),
        paper="; ".join(dict.fromkeys(about.paper for about in abouts)),
        kind=abouts[0].kind,
        level=max((about.level for about in abouts), key=get_args(Level).index),
        needs_individual_updates=_any([about.needs_individual_updates for about in abouts]),
        down=_joint_traffic([about.down for about in abouts]),
        up=_joint_traffic([about.up for about in abouts]),
        only_with_norms=any(about.only_with_norms for about in abouts),
    )


def _about(part: "Part") -> About:
    """Return what a part declares; custom code may send anything, so nothing is added to it."""
    about = part.about
    if not type(part).__module__.startswith("unskew."):
        return about
    return replace(
        about,
        needs_individual_updates=bool(about.needs_individual_updates),
        down=about.down or "model",
        up=about.up or "model",
    )


def _any(values: Sequence[bool | None]) -> bool | None:
    """Return whether a value is true; None if that is not known."""
    return None if None in values and True not in values else any(values)


def _joint_traffic(descriptions: Sequence[str | None]) -> str | None:
    """Describe what composed methods send: the smallest part of the model, and all extras.

    It is None if one of them does not declare it.
    """
    known = [description for description in descriptions if description is not None]
    if len(known) < len(descriptions):
        return None
    pieces = [description.split(", ") for description in known]
    model = next((first for first, *_ in pieces if first != "model"), "model")
    return ", ".join(dict.fromkeys([model, *(extra for _, *extras in pieces for extra in extras)]))
