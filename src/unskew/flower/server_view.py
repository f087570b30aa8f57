"""The federation as the server sees it: how many samples each node has, and none of them."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from unskew.data.columns import Array, Columns
from unskew.data.federation import Federation
from unskew.errors import UnskewError
from unskew.utils.rng import generator

Facts = dict[str, Any]
"""What a node tells of its samples, see :meth:`unskew.flower.site.Site.facts`."""


_KINDS = {"name": str, "samples": int, "tests": int, "shape": list, "dtype": str}
_KINDS |= {"classes": int, "words": int}


def read_facts(text: str) -> Facts:
    """Read what a node tells; complain if it is not that."""
    facts: Facts = json.loads(text)
    if any(type(facts[key]) is not kind for key, kind in _KINDS.items()):
        raise TypeError("facts of the wrong type")
    if min(facts["samples"], facts["tests"], *facts["shape"]) < 0 or facts["classes"] < 1:
        raise ValueError("facts that count nothing")
    return facts


@dataclass(frozen=True, eq=False)
class RemoteFederation(Federation):
    """Clients whose samples are elsewhere; rows here only have their shape."""

    has_samples: ClassVar[bool] = False

    @cached_property
    def fingerprint(self) -> str:
        """A hash of what does not change when nodes come and go."""
        known = f"flower {self.shape} {self.train.x.dtype.str} {self.classes}"
        return hashlib.sha256(known.encode()).hexdigest()[:32]

    @classmethod
    def told(
        cls,
        names: Sequence[str],
        facts: Sequence[Facts],
        classes: int | None = None,
        common: tuple[Array, Array] | None = None,
    ) -> "RemoteFederation":
        """Build it from what nodes tell, in the order of their names."""
        looks = {(tuple(each["shape"]), each["dtype"], each["words"]) for each in facts}
        if len(looks) > 1:
            raise UnskewError(
                "data: nodes hold samples of different kinds (shape, type, vocabulary): "
                f"{sorted(map(str, looks))}"
            )
        shape, dtype, words = looks.pop()
        most = max(each["classes"] for each in facts)
        if classes is not None and classes < most:
            raise UnskewError(f"classes must be at least {most}, which a node has (got {classes})")
        row = _row(shape, dtype, words)
        return cls(
            train=_columns(row, [each["samples"] for each in facts]),
            test=_columns(row, [each["tests"] for each in facts]),
            common=Columns.whole(*common) if common else _columns(row, [0]),
            classes=classes or most,
            name="flower",
            client_names=np.array(names),
            vocabulary=("",) * words if words else None,
        )


def _columns(row: Array, sizes: Sequence[int]) -> Columns:
    """Return rows that take no memory, the same sample again and again."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    x = np.broadcast_to(row, (int(offsets[-1]), *row.shape))
    return Columns(x, np.broadcast_to(np.int64(0), (len(x),)), offsets)


def _row(shape: tuple[int, ...], dtype: str, words: int) -> Array:
    """Return something that looks like a sample, to try networks on."""
    random = generator(0, "absent sample")
    if np.dtype(dtype).kind == "f":
        return random.random(shape).astype(dtype)
    return random.integers(0, words or 256, shape).astype(dtype)
