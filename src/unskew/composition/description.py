"""The description of a method, joined from those of its parts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from unskew.composition.values import About, Level

if TYPE_CHECKING:
    from unskew.composition.parts import Part

_FEDAVG = About(title="Average by samples", paper="McMahan et al. 2017", kind="server")


def described(parts: Sequence["Part"]) -> About:
    """Describe a method by its parts."""
    abouts = [part.about for part in parts] or [_FEDAVG]
    if len(abouts) == 1:
        return abouts[0]
    return About(
        title=" and ".join(about.title for about in abouts),
        paper="; ".join(dict.fromkeys(about.paper for about in abouts)),
        kind=abouts[0].kind,
        level=max((about.level for about in abouts), key=get_args(Level).index),
        needs_individual_updates=any(about.needs_individual_updates for about in abouts),
        down=_joint_traffic([about.down for about in abouts]),
        up=_joint_traffic([about.up for about in abouts]),
        only_with_norms=any(about.only_with_norms for about in abouts),
    )


def _joint_traffic(descriptions: Sequence[str]) -> str:
    """Describe what composed methods send: the smallest part of the model, and all extras."""
    pieces = [description.split(", ") for description in descriptions]
    model = next((first for first, *_ in pieces if first != "model"), "model")
    return ", ".join(dict.fromkeys([model, *(extra for _, *extras in pieces for extra in extras)]))
