"""How columns are prepared: the values of ``prepare``, such as ``federated:scale=robust``."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.data.preprocessing.sketch import SIZE
from unskew.errors import UnskewError
from unskew.utils.specs import OPTIONS, build, spec_of

Mode = Literal["federated", "pooled", "local", "none"]

VOCABULARY_SIZE, TEXT_LENGTH = 10_000, 40
"""The size of the vocabulary, and the number of tokens that a text is truncated or padded to."""

MAX_WORDS = 1_000_000
"""The largest vocabulary."""


@dataclass(frozen=True, config=OPTIONS)
class Prepare:
    """Clients send statistics, the server merges them, and every client applies the result."""

    mode: ClassVar[Mode] = "federated"

    scale: Literal["standard", "robust"] = "standard"
    """Mean and standard deviation, or median and interquartile range."""
    categories: Literal["onehot", "hashed"] = "onehot"
    """One feature per category, or a fixed number of features that categories share."""
    max_categories: Annotated[int, Field(ge=1, le=10_000)] = 50
    """The largest number of categories with a feature of their own; the rest share one."""
    buckets: Annotated[int, Field(ge=2, le=10_000)] = 16
    """The number of features of a hashed column."""
    points: Annotated[int, Field(ge=2, le=100_000)] = SIZE
    """The number of values in a client's quantile sketch."""
    words: Annotated[int, Field(ge=3, le=MAX_WORDS)] = VOCABULARY_SIZE
    """The size of the vocabulary of a text column."""
    length: Annotated[int, Field(ge=1, le=10_000)] = TEXT_LENGTH
    """The number of tokens that a text is truncated or padded to."""
    min_cell: Annotated[int, Field(ge=1, le=1_000)] = 1
    """A category, or a word of a text, leaves a client only if this many of its rows hold it."""

    @property
    def spec(self) -> str:
        """The spec string, with only the options that differ from the default."""
        return spec_of(self, self.mode)

    @property
    def budget(self) -> float | None:
        """The epsilon of differential privacy that every client spends; None without noise."""
        return None


@dataclass(frozen=True, config=OPTIONS)
class FederatedPrepare(Prepare):
    """Clients send statistics, the server merges them, and every client applies the result."""

    epsilon: Annotated[float, Field(gt=0)] | None = None
    """The budget of differential privacy that a client's statistics spend; none: no noise."""

    @property
    def budget(self) -> float | None:
        """The epsilon of differential privacy that every client spends; None without noise."""
        return self.epsilon


@dataclass(frozen=True, config=OPTIONS)
class PooledPrepare(Prepare):
    """Statistics of all training samples in one place, to compare with; quantiles are exact."""

    mode: ClassVar[Mode] = "pooled"


@dataclass(frozen=True, config=OPTIONS)
class LocalPrepare(Prepare):
    """Every client scales numbers by its own statistics; kinds and categories are shared."""

    mode: ClassVar[Mode] = "local"


@dataclass(frozen=True, config=OPTIONS)
class NoPrepare:
    """Columns are used as they are, and must be numbers without gaps."""

    mode: ClassVar[Mode] = "none"
    spec: ClassVar[str] = "none"


PREPARE_MODES: dict[str, type[Prepare] | type[NoPrepare]] = {
    "federated": FederatedPrepare,
    "pooled": PooledPrepare,
    "local": LocalPrepare,
    "none": NoPrepare,
}
"""The ways to prepare columns, by name."""


def parse_prepare(text: str | Prepare | NoPrepare) -> Prepare | NoPrepare:
    """Return the preprocessing that a spec string such as ``federated:epsilon=1`` names."""
    if isinstance(text, Prepare | NoPrepare):
        chosen: Prepare | NoPrepare = text
    elif isinstance(text, str):
        chosen = build(PREPARE_MODES, text, "prepare")
    else:
        raise UnskewError(f"prepare must be one of {', '.join(PREPARE_MODES)} (got {text!r})")
    if isinstance(chosen, FederatedPrepare) and chosen.epsilon and chosen.scale == "robust":
        raise UnskewError("prepare: quantiles have no noise; with epsilon, use scale=standard")
    return chosen
