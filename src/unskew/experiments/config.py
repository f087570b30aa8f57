"""The configuration of a run: a TOML file, validated field by field before anything starts."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from unskew.data.config import DataConfig
from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.utils.specs import raise_value_error, validated

_STRICT = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class RunConfig(BaseModel):
    """A run: its data, method, network, training settings and output folder."""

    model_config = _STRICT

    data: DataConfig
    method: str = "fedavg"
    model: str | None = None
    out: str | None = None
    on: str | None = None
    """Where the run is executed, such as ``ray``; None means on this machine."""
    train: Settings = Field(default_factory=Settings)

    @field_validator("method")
    @classmethod
    def _method_is_known(cls, method: str) -> str:
        from unskew.methods import make_method  # noqa: PLC0415 (imports torch)

        raise_value_error(make_method, method)
        return method


def read_config(path: str | Path, changes: Sequence[str] = ()) -> RunConfig:
    """Read a TOML file; ``changes`` such as ``train.lr=0.1`` override single fields."""
    path = Path(path)
    values = read_toml(path)
    for change in changes:
        _apply(values, change)
    return validated(RunConfig, values, f"{path}: ")


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file."""
    if path.exists() and not path.is_file():  # a pipe might never end
        raise UnskewError(f"{path}: is not a file")
    try:
        return parse_toml(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise UnskewError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UnskewError(f"{path}: is not TOML: {error}") from None


def parse_toml(text: str, label: str) -> dict[str, Any]:
    """Parse TOML; ``label`` names it in an error."""
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise UnskewError(f"{label}: is not TOML: {error}") from None
    except RecursionError:
        raise UnskewError(f"{label}: is not TOML that can be read: nested too deeply") from None


def set_values(changes: Sequence[str]) -> dict[str, Any]:
    """Parse strings of the form ``field=value`` into nested values."""
    values: dict[str, Any] = {}
    for change in changes:
        _apply(values, change)
    return values


def _apply(values: dict[str, Any], change: str) -> None:
    path, equals, text = change.partition("=")
    if not equals or not path.strip():
        raise UnskewError(f"--set {change!r}: write it as section.field=value")
    *sections, field = path.strip().split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise UnskewError(f"--set {change!r}: {section} is a value, not a section")
    values[field] = _toml_value(text.strip())


def _toml_value(text: str) -> Any:
    """Parse a value as TOML; anything else is a string, so quotes are optional."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
