"""What the files of a run hold, checked when they are read: anybody may have changed them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict

from unskew.errors import UnskewError
from unskew.runs.json_files import check_json, damaged

_Count = Annotated[int, Field(ge=0, le=2**62)]
_Rounds = Annotated[int, Field(ge=1, le=2**62)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Number = float | None
_Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f]*$")]
_Levels = dict[str, _Number]


class _Part(BaseModel):
    """A part of a file; further fields are allowed, and unset fields keep their defaults."""

    model_config = ConfigDict(strict=True, extra="allow", protected_namespaces=())


class _Traffic(_Part):
    model_config = ConfigDict(extra="forbid")

    parameters_up: _Count
    parameters_down: _Count
    bytes_up: _Count
    bytes_down: _Count


class _Row(_Part):
    stage: str
    round: _Rounds
    train_loss: _Number
    traffic: _Traffic
    clients: _Count = 0
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0
    global_: _Levels = Field({}, alias="global")
    local: _Levels = {}
    personal: _Levels = {}
    outputs: _Levels = {}
    rejected: dict[str, str] = {}
    missing: dict[str, str] = {}
    not_evaluated: list[str] = []
    kept_model: str = ""
    diagnostics: dict[str, Any] = {}


class _Summary(_Part):
    count: _Count
    mean: _Finite = 0


class _Table(_Part):
    kind: str
    stage: str = ""
    round: _Count
    client: list[_Count]
    samples: list[_Count] = []
    weight: list[_Number] = []
    train_loss: list[_Number] = []
    accuracy: list[_Number] = []
    loss: list[_Number] = []
    diagnostics: dict[str, list[Any]] = {}
    of: _Count | None = None
    summary: dict[str, _Summary] = {}


class _Settings(_Part):
    rounds: _Rounds
    lr: _Finite = 0
    cohort: int | None = None
    participation: _Number = None
    epochs: int | None = None
    steps: int | None = None
    batch_size: int = 1
    optimizer: str
    metrics: list[str] = []
    metric: str | None = None


class _Data(_Part):
    name: str
    clients: _Count
    classes: _Count = 0
    skew: str | None = None
    seed: int | None = None
    options: dict[str, str | float | None] = {}
    class_names: list[str] | None = None
    client_names: list[str] | None = None
    label_counts: list[list[_Count]] | None = None
    diagnosis: _Levels | None = None
    majority: _Levels = {}


class _IdentitySettings(_Part):
    seed: _Count


class _Identity(_Part):
    method: _Line
    network: _Line
    data: str = ""
    settings: _IdentitySettings


class _Densities(_Part):
    kappa_mean: float
    kappa_max: float
    clients: int
    budgets: list[str | None]


_Range = Annotated[list[_Finite], Field(min_length=2, max_length=2)]


class _Trial(_Part):
    method: str
    lr: float
    clip: float | None = None
    rounds: int
    value: _Number
    values: list[_Number]
    failures: list[str]


class _Tuning(_Part):
    requested: str
    given: str = ""
    chosen: _Trial
    edges: dict[str, str]
    results: list[_Trial]
    lr: _Range
    searched_lr: _Range
    clips: list[float]
    share: float
    budget: int
    spent: int
    rounds: int
    seeds: list[int]
    level: str
    metric: str


class _Metric(_Part):
    model_config = ConfigDict(extra="forbid")

    name: str
    more_is_better: bool
    is_share: bool
    worst_key: str | None
    no_skill: float | None = None


class _Models(_Part):
    model_config = ConfigDict(extra="forbid")

    global_: bool = Field(alias="global")
    personal: bool


class _Finding(_Part):
    severity: Literal["error", "warning", "note"]
    subject: str
    text: str
    fix: str


class _Target(_Part):
    center: _Finite
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Metadata(_Part):
    identity: _Identity
    data: _Data
    configuration: _Settings = None  # type: ignore[assignment]  # may be absent, but not null
    versions: dict[str, str] = {}
    densities: _Densities | None = None
    tuning: _Tuning | None = None
    target: _Target = None  # type: ignore[assignment]  # may be absent, but not null
    stages: list[Annotated[tuple[str, _Rounds], Strict(False)]] = []
    custom_network: bool = False
    fixed_split: bool = False
    metric: _Metric = None  # type: ignore[assignment]  # may be absent, but not null
    metrics: list[_Metric] = []
    findings: list[_Finding] = []
    no_effect: str = ""
    models: _Models = None  # type: ignore[assignment]  # may be absent, but not null


class _SampleWeights(_Part):
    log10_edges: Annotated[list[_Finite], Field(min_length=2)]
    client: list[_Count]
    samples: list[_Count]
    effective: list[_Finite]
    counts: list[list[_Count]]


_FIX = "move the run's folder away and run it again"
_COLUMNS = ("samples", "weight", "train_loss", "accuracy", "loss")


def check_metadata(metadata: Mapping[str, Any], path: Path) -> None:
    """Raise unless ``run.json`` has what a report uses."""
    _check(_Metadata, metadata, path)
    data = metadata["data"]
    clients, classes = data["clients"], data.get("classes")
    names, counts, labels = (data.get(n) for n in ("client_names", "label_counts", "class_names"))
    wrong = [
        ("client_names", names is not None and len(names) != clients),
        ("label_counts", counts is not None and len(counts) != clients),
        ("label_counts", counts is not None and any(len(row) != classes for row in counts)),
        ("class_names", labels is not None and len(labels) != classes),
    ]
    for name, is_wrong in wrong:
        if is_wrong:
            raise _damaged(path, f"data.{name} does not fit {clients} clients, {classes} classes")


def check_row(row: Mapping[str, Any], path: Path) -> None:
    """Raise unless a line of the metrics is a round."""
    _check(_Row, row, path)


def check_table(table: Mapping[str, Any], clients: int, path: Path) -> None:
    """Raise unless a line of the clients' tables is a table of these clients."""
    _check(_Table, table, path)
    rows = len(table["client"])
    columns = [table[name] for name in _COLUMNS if name in table]
    columns += list(table.get("diagnostics", {}).values())
    if any(len(column) != rows for column in columns):
        raise _damaged(path, f"the columns of round {table['round']} differ in length")
    # Baselines that pool the data are evaluated on the clients whose data it was.
    if table["kind"] == "round" and rows and max(table["client"]) >= clients:
        raise _damaged(path, f"round {table['round']} has client {max(table['client'])}")
    missing = {"stage", "weight", "samples", "train_loss", "diagnostics"} - set(table)
    if table["kind"] == "round" and missing:
        raise _damaged(path, f"round {table['round']} has no {min(missing)}")


def check_sample_weights(table: Mapping[str, Any], path: Path) -> None:
    """Raise unless a file holds histograms of sample weights."""
    _check(_SampleWeights, table, path)
    lengths = {len(table[name]) for name in ("client", "samples", "effective", "counts")}
    bins = len(table["log10_edges"]) - 1
    if len(lengths) > 1 or any(len(row) != bins for row in table["counts"]):
        raise _damaged(path, "its columns differ in length")


def _check(model: type[BaseModel], value: object, path: Path) -> None:
    check_json(value, model, path, _FIX)


def _damaged(path: Path, problem: str) -> UnskewError:
    return damaged(path, problem, _FIX)
