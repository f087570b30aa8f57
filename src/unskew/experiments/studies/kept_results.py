"""Results of studies in their folders, which anybody may have changed, checked when read."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from unskew.runs.json_files import read_checked

_Seed = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}$")]


class _Part(BaseModel):
    """A part of a result; what is not used again is not checked."""

    model_config = ConfigDict(strict=True, extra="allow")


class _Measured(_Part):
    mean: float | None
    sd: float | None
    values: dict[_Seed, float | None]


class _Row(_Part):
    method: str
    measured: dict[str, _Measured]
    paper: dict[str, float]


class _Case(_Part):
    name: str
    rows: list[_Row]


class _Claim(_Part):
    text: str
    measure: str
    verdict: str
    evidence: str


class _Result(_Part):
    study: str
    paper: str
    reproduces: list[str]
    scale: str
    seeds: Annotated[int, Field(ge=1)]
    cases: list[_Case]
    claims: list[_Claim]


def read_result(path: Path) -> dict[str, Any]:
    """Read a result.json."""
    return read_checked(path, _Result, "run the study again")
