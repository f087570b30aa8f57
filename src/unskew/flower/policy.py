"""A site's policy: what a node may send, compute and keep, whatever its server asks for.

The site writes it, in ``policy.toml`` of its node; a server can ask for less, never for more.
"""

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

from unskew.data.preprocessing.declared import Declared, declared_columns
from unskew.errors import UnskewError
from unskew.methods import METHODS, make_method
from unskew.utils.specs import raise_value_error, validated
from unskew.utils.wording import joined

Category = Literal["scalars", "statistics", "counts", "models"]
"""What can leave a node: a few numbers for all samples (loss, metrics, their number), means and
other sums, how many rows hold each class, category or word, and trained models."""
CATEGORIES: tuple[Category, ...] = get_args(Category)

MIN_CELL = 5
"""The rows that must hold a category or a word before it leaves a node, by default."""

_Limit = Annotated[int, Field(ge=1)]


class Limits(BaseModel):
    """How much a server may ask of the node."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    steps: _Limit = 10_000_000
    """Local steps in one run."""
    samples: _Limit = 1_000_000_000
    """Samples in the batches of these steps."""
    messages: _Limit = 100_000
    """Messages in one run, also those that are refused."""
    runs: _Limit = 1000
    """Runs of which the node keeps files."""
    megabytes: _Limit = 1024
    """The size of a message's arrays, and of a table's features."""


class Policy(BaseModel):
    """What a site allows. The default is what a node without a policy does."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    leaves: Annotated[tuple[Category, ...], Field(strict=False)] = CATEGORIES
    """What may leave the node."""
    min_cell: _Limit = MIN_CELL
    """Categories and words that fewer rows hold do not leave; they join one that is called rare."""
    refuse: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """The methods and stages that the node does not run."""
    limits: Limits = Limits()
    kinds: dict[str, str] = {}
    """What columns hold, as in the option ``columns``; a server that says otherwise is refused."""

    @field_validator("refuse")
    @classmethod
    def _refused_names_are_known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in METHODS and name not in _stages():
                raise ValueError(f"{name!r} is neither a method (unskew methods) nor a stage")
        return names

    @field_validator("kinds")
    @classmethod
    def _kinds_are_known(cls, kinds: dict[str, str]) -> dict[str, str]:
        raise_value_error(declared_columns, kinds)
        return kinds

    @property
    def columns(self) -> dict[str, Declared]:
        """What the site says about its columns."""
        return declared_columns(self.kinds)

    @staticmethod
    def of(policy: "Policy | Mapping[str, Any] | str | Path | None") -> "Policy":
        """Return a policy that is given as an object, as values, or as the path of a TOML file."""
        if policy is None or isinstance(policy, Policy):
            return policy or Policy()
        if isinstance(policy, Mapping):
            return validated(Policy, policy, "policy: ")
        try:
            values = tomllib.loads(Path(policy).read_text(encoding="utf-8"))
        except OSError as error:
            raise UnskewError(f"policy: {policy} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise UnskewError(f"policy: {policy} is not a TOML file: {error}") from None
        return validated(Policy, values, f"{policy}: ")

    def narrowed(self, other: "Policy") -> "Policy":
        """Return what both allow, for a policy of the site and one of the app."""
        for name in self.kinds.keys() & other.kinds.keys():
            if self.kinds[name] != other.kinds[name]:
                raise UnskewError(f"policy: two policies differ in kinds.{name}; change one")
        limits = self.limits.model_dump()
        for name in other.limits.model_fields_set:
            limits[name] = min(limits[name], getattr(other.limits, name))
        return Policy(
            leaves=tuple(each for each in self.leaves if each in other.leaves),
            min_cell=max(self.min_cell, other.min_cell),
            refuse=tuple(dict.fromkeys((*self.refuse, *other.refuse))),
            limits=Limits(**limits),
            kinds={**self.kinds, **other.kinds},
        )

    def objection(self, names: Collection[str], leaving: Collection[Category]) -> str | None:
        """Return why the node does not run these methods and stages, or send these values."""
        for name in self.refuse:
            if name in names:
                return f"its policy refuses {name}"
        forbidden = [each for each in CATEGORIES if each in leaving and each not in self.leaves]
        return f"its policy lets no {joined(forbidden, 'or')} leave" if forbidden else None


def _stages() -> set[str]:
    """Return the names of the stages of all methods."""
    return {stage.name for name in METHODS for stage in make_method(name).stages()}
