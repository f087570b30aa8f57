"""A study: what a paper did, as a file that can be checked, changed to a scale, and played."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from unskew.data.config import DataConfig
from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.utils.specs import validated

Scale = Literal["smoke", "cpu", "paper"]
Paper = Literal["feddisk", "fedfusion", "ida", "latent", "fedsa"]
Values = dict[str, float]

PAPERS: dict[str, str] = {
    "feddisk": "Federated Learning for distribution skewed data using sample weights",
    "fedfusion": "Federated Learning with Data-Agnostic Distribution Fusion",
    "ida": "Inverse Distance Aggregation for Federated Learning with Non-IID Data",
    "latent": "Addressing Statistical Heterogeneity through Generative Similarity-Based "
    "Comparison in Federated Learning",
    "fedsa": "The Key of Parameter Skew in Federated Learning",
}

_STRICT = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
Positive = Annotated[int, Field(ge=1)]


class StudyData(DataConfig):
    """Data of a study: as for a run, and perhaps only so many samples of its source."""

    samples: Positive | None = None
    """So many training samples of the source, drawn at random by the seed."""
    test_samples: Positive | None = None


class Changes(BaseModel):
    """What a case or a scale changes. Tables are merged, texts replaced."""

    model_config = _STRICT

    data: dict[str, Any] = Field(default_factory=dict)
    train: dict[str, Any] = Field(default_factory=dict)
    model: str | None = None
    methods: dict[str, str] = Field(default_factory=dict)
    """Another spelling of a method, by its label; an empty one leaves the method out."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the study's probes."""


class CaseFile(Changes):
    """One comparison of a study: a column of a table, a panel of a figure."""

    name: str
    paper: dict[str, Values] = Field(default_factory=dict)
    """What the paper reports: measure, label, figure as printed."""
    follows: str | None = None
    """Another case: the three clients it serves worst in the end get twice their samples here."""
    missing: str | None = None
    """Why the case cannot be played by anyone: its data is not in the catalogue."""


class ScaleFile(Changes):
    """How a study is made smaller: what it changes, in words and in settings."""

    changes: str
    seeds: Positive | None = None
    cases: list[str] = Field(default_factory=lambda: ["*"])
    """The cases that are played, as patterns of their names."""
    where: dict[str, Changes] = Field(default_factory=dict)
    """Further changes, for the cases that match a pattern."""


class Claim(BaseModel):
    """What a paper says, as a difference that can be measured over seeds.

    A method's figure, averaged over ``cases``, stands against that of each rival in ``than``, or
    against its own in ``than_cases``, or against a number, ``than_value``. With ``since``, figures
    are changes since that case. ``kind`` says what the difference is to be; ``margin`` is how much
    "at least" and "level" allow.
    """

    model_config = _STRICT

    text: str
    measure: str
    method: str
    kind: Literal["better", "worse", "at least", "level"] = "better"
    than: list[str] = Field(default_factory=list)
    cases: list[str] = Field(default_factory=lambda: ["*"])
    than_cases: list[str] | None = None
    than_value: float | None = None
    since: str | None = None
    margin: Annotated[float, Field(ge=0)] = 0.0
    above: float | None = None
    """A figure that one of the methods must reach, or equality means that nothing was learned."""
    scales: list[Scale] = ["paper", "cpu"]
    """Where it can be tested; elsewhere ``why`` tells what is lacking."""
    why: str = "this scale plays too little, and other data"


class StudyFile(Changes):
    """The whole file."""

    title: str
    paper: Paper
    makes: list[str]
    """The tables and figures of the paper that the study makes."""
    note: str = ""
    measures: Annotated[list[str], Field(min_length=1)]
    """What is measured; the first is what the overview draws."""
    probes: list[str] = Field(default_factory=list)
    ours: list[str] = Field(default_factory=list)
    """The paper's own method, or versions of it: effective rounds are counted from its side."""
    reference: str | None = None
    """The method whose model parameter bias is measured against."""
    seeds: Positive = 3
    cases: Annotated[list[CaseFile], Field(min_length=1)]
    claims: list[Claim] = Field(default_factory=list)
    scales: dict[Literal["cpu", "smoke"], ScaleFile]


class Case(BaseModel):
    """One comparison at a scale, with everything settled."""

    model_config = _STRICT

    name: str
    data: StudyData
    train: Settings
    model: str | None
    methods: dict[str, str]
    options: dict[str, Any]
    paper: dict[str, Values]
    follows: str | None
    missing: str | None


class Study(BaseModel):
    """A study at a scale."""

    model_config = _STRICT

    name: str
    scale: Scale
    file: StudyFile
    seeds: int
    cases: list[Case]
    changes: str

    def case(self, name: str) -> Case:
        """Return a case by its name."""
        return next(case for case in self.cases if case.name == name)

    def on_device(self, device: str) -> "Study":
        """Return the study with every run on a device."""
        cases = []
        for case in self.cases:
            train = validated(Settings, case.train.model_dump() | {"device": device})
            cases.append(case.model_copy(update={"train": train}))
        return self.model_copy(update={"cases": cases})


def at_scale(name: str, file: StudyFile, scale: str, seeds: int | None = None) -> Study:
    """Settle a study at a scale; every complaint names the study and the case."""
    if scale not in get_args(Scale):
        raise UnskewError(f"scale must be one of smoke, cpu, paper (got {scale!r})")
    if seeds is not None and seeds < 1:
        raise UnskewError(f"seeds must be at least 1 (got {seeds})")
    changes = None if scale == "paper" else file.scales[scale]  # type: ignore[index]
    patterns = ["*"] if changes is None else changes.cases
    chosen = [case for case in file.cases if matches(case.name, patterns)]
    if not chosen:
        raise UnskewError(f"{name}: scale {scale}: cases: no case is called {patterns}")
    cases = [_settled(name, file, case, changes) for case in chosen]
    own = None if changes is None else changes.seeds
    return Study(
        name=name,
        scale=scale,
        file=file,
        seeds=seeds or own or file.seeds,
        cases=cases,
        changes="nothing: this is the paper's setting" if changes is None else changes.changes,
    )


def matches(name: str, patterns: list[str]) -> bool:
    """Tell whether a case's name matches one of some patterns such as ``CIFAR-10*``."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def _settled(name: str, file: StudyFile, case: CaseFile, scale: ScaleFile | None) -> Case:
    layers: list[Changes] = [file, case]
    if scale is not None:
        narrower = [more for pattern, more in scale.where.items() if matches(case.name, [pattern])]
        layers += [scale, *narrower]
    label = f"{name}: case {case.name!r}: "
    methods = _merged(layer.methods for layer in layers)
    values: dict[str, Any] = {
        "name": case.name,
        "data": _merged(layer.data for layer in layers),
        "train": _one_of_each_pair([layer.train for layer in layers]),
        "model": next((layer.model for layer in reversed(layers) if layer.model), None),
        "methods": {key: text for key, text in methods.items() if text},
        "options": _merged(layer.options for layer in layers),
        "paper": case.paper,
        "follows": case.follows,
        "missing": None if scale is not None and scale.data.get("name") else case.missing,
    }
    return validated(Case, values, label)


def _merged(layers: Any) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for layer in layers:
        merged |= layer
    return merged


def _one_of_each_pair(layers: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge settings; one of a pair that excludes the other takes its place."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for pair in (("participation", "cohort"), ("epochs", "steps")):
            if set(pair) & set(layer):
                merged = {key: value for key, value in merged.items() if key not in pair}
        merged |= layer
    return merged
