"""The data of a run and its partition: the `[data]` section of a TOML file."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from unskew.data.preprocessing.declared import declared_columns
from unskew.data.preprocessing.spec import parse_prepare
from unskew.data.targets import TaskName
from unskew.partition.registry import parse_partitioner
from unskew.utils.specs import raise_value_error


class DataConfig(BaseModel):
    """The data of a run and how it is partitioned."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

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
    prepare: str = "federated"
    columns: dict[str, str | list[float] | list[str]] | None = None
    size: Annotated[int, Field(ge=1)] | None = None
    task: TaskName | None = None

    @field_validator("skew")
    @classmethod
    def _skew_is_known(cls, skew: str | None) -> str | None:
        if skew is not None:
            raise_value_error(parse_partitioner, skew)
        return skew

    @field_validator("prepare")
    @classmethod
    def _prepare_is_known(cls, prepare: str) -> str:
        raise_value_error(parse_prepare, prepare)
        return prepare

    @field_validator("columns")
    @classmethod
    def _columns_are_declared(
        cls, columns: dict[str, str | list[float] | list[str]] | None
    ) -> dict[str, str | list[float] | list[str]] | None:
        raise_value_error(declared_columns, columns)
        return columns
