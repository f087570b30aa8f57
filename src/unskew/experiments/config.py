"""The configuration of a run: TOML, checked field by field before anything starts."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.partition.registry import parse_partitioner
from unskew.utils.specs import explain

Model = TypeVar("Model", bound=BaseModel)

_STRICT = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class DataConfig(BaseModel):
    """Which data, and how it is dealt out."""

    model_config = _STRICT

    name: str
    skew: str | None = None
    clients: Annotated[int, Field(ge=1)] | None = None
    holdout: Annotated[float, Field(ge=0, lt=1)] | None = None
    pool: Literal["train", "all"] = "train"
    samples: Annotated[int, Field(ge=1)] | None = None
    common: Literal["source", "union"] = "source"
    label_column: str = "label"
    client_column: str | None = None
    features: list[str] | None = None
    size: Annotated[int, Field(ge=1)] | None = None

    @field_validator("skew")
    @classmethod
    def _skew_is_known(cls, skew: str | None) -> str | None:
        if skew is not None:
            _complain_as_value_error(parse_partitioner, skew)
        return skew


class RunConfig(BaseModel):
    """A run: data, method, network, training, and where to write it down."""

    model_config = _STRICT

    data: DataConfig
    method: str = "fedavg"
    model: str | None = None
    out: str | None = None
    train: Settings = Field(default_factory=Settings)

    @field_validator("method")
    @classmethod
    def _method_is_known(cls, method: str) -> str:
        from unskew.methods.common.registry import make_method  # noqa: PLC0415 (imports torch)

        _complain_as_value_error(make_method, method)
        return method


def read_config(path: str | Path, changes: Sequence[str] = ()) -> RunConfig:
    """Read a TOML file; ``changes`` such as ``train.lr=0.1`` replace single fields."""
    path = Path(path)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnskewError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UnskewError(f"{path}: is not TOML: {error}") from None
    for change in changes:
        _apply(values, change)
    return checked(RunConfig, values, f"{path}: ")


def checked(model: type[Model], values: Mapping[str, Any], label: str = "") -> Model:
    """Build a configuration; every complaint is one line that names the field."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise UnskewError(f"{label}{explain(error, model)}") from None


def set_values(changes: Sequence[str]) -> dict[str, Any]:
    """Read ``field=value`` texts."""
    values: dict[str, Any] = {}
    for change in changes:
        _apply(values, change)
    return values


def _apply(values: dict[str, Any], change: str) -> None:
    place, equals, text = change.partition("=")
    if not equals or not place.strip():
        raise UnskewError(f"--set {change!r}: write it as section.field=value")
    *sections, field = place.strip().split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise UnskewError(f"--set {change!r}: {section} is a value, not a section")
    values[field] = _toml_value(text.strip())


def _toml_value(text: str) -> Any:
    """Read a value as TOML would; what is no TOML value is text, so that quotes can be left out."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _complain_as_value_error(check: Any, value: str) -> None:
    try:
        check(value)
    except UnskewError as error:
        raise ValueError(str(error)) from None
