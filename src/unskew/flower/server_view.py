"""The federation as the server sees it: how many samples each node has, but no samples."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from unskew.data.columns import Array, Columns
from unskew.data.federation import Federation
from unskew.data.preprocessing.fitted import Preprocessing
from unskew.data.targets import center_and_scale, mean_and_deviation
from unskew.errors import UnskewError
from unskew.flower.greeting import NodeInfo, have_numbers_to_predict
from unskew.utils.rng import generator


@dataclass(frozen=True, eq=False)
class RemoteFederation(Federation):
    """A federation whose samples are on other machines; its rows only have the right shape."""

    has_samples: ClassVar[bool] = False
    equal_targets: bool = False
    """Whether all nodes reported the same target for all of their samples."""

    @property
    def has_one_target(self) -> bool:
        """Whether the nodes reported that there is nothing to learn."""
        return self.equal_targets

    @cached_property
    def fingerprint(self) -> str:
        """A hash of what does not change when nodes join or leave."""
        known = f"flower {self.shape} {self.train.x.dtype.str} {self.classes}"
        known += " regression" if self.is_regression else ""
        return hashlib.sha256(known.encode()).hexdigest()[:32]

    @classmethod
    def from_info(
        cls,
        names: Sequence[str],
        infos: Sequence[NodeInfo],
        classes: int | None = None,
        common: tuple[Array, Array] | None = None,
        preprocessing: Preprocessing | None = None,
        class_names: tuple[str, ...] | None = None,
    ) -> "RemoteFederation":
        """Build the federation from what the nodes report, in the order of ``names``."""
        formats = {(tuple(info["shape"]), info["dtype"], info["words"]) for info in infos}
        if len(formats) > 1:
            raise UnskewError(
                "data: nodes have samples of different shapes, types or vocabularies; give all of "
                f"them the same preprocessing (got {sorted(map(str, formats))})"
            )
        shape, dtype, words = formats.pop()
        reported = max(info["classes"] for info in infos)
        if classes is not None and classes < reported:
            raise UnskewError(
                f"classes must be at least {reported}, the number that a node reports "
                f"(got {classes})"
            )
        row = _placeholder_row(shape, dtype, words)
        samples = [info["samples"] for info in infos]
        sums = [info["target"] for info in infos] if have_numbers_to_predict(infos) else []
        if sums and classes is not None:
            raise UnskewError("classes: the target is a quantity, which has none; remove it")
        deviation = mean_and_deviation(samples, sums)[1] if sums else None
        target = np.float32(0) if sums else np.int64(0)
        return cls(
            train=_placeholder_columns(row, samples, target),
            test=_placeholder_columns(row, [info["tests"] for info in infos], target),
            common=Columns.whole(*common) if common else _placeholder_columns(row, [0], target),
            target_units=center_and_scale(samples, sums) if sums else None,
            classes=classes or reported,
            name="flower",
            client_names=np.array(names),
            class_names=class_names,
            vocabulary=("",) * words if words else None,
            preprocessing=preprocessing,
            equal_targets=reported == 1 if deviation is None else deviation == 0,
        )


def _placeholder_columns(
    row: Array, sizes: Sequence[int], target: np.int64 | np.float32
) -> Columns:
    """Return columns that repeat one sample by broadcasting, so that they take no memory."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    x = np.broadcast_to(row, (int(offsets[-1]), *row.shape))
    return Columns(x, np.broadcast_to(target, (len(x),)), offsets)


def _placeholder_row(shape: tuple[int, ...], dtype: str, words: int) -> Array:
    """Return a random sample of the right shape and type, to check networks with."""
    random = generator(0, "absent sample")
    if np.dtype(dtype).kind == "f":
        return random.random(shape).astype(dtype)
    return random.integers(0, words or 256, shape).astype(dtype)
