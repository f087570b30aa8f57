"""A study: a paper's experiment as a file that is validated, adapted to a scale, and run."""

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
    """The data of a study: as for a run, optionally limited to a number of samples."""

    samples: Positive | None = None
    """The number of training samples to use, drawn at random with the seed; None uses all."""
    test_samples: Positive | None = None


class Changes(BaseModel):
    """The changes of a case or a scale. Tables are merged, strings are replaced."""

    model_config = _STRICT

    data: dict[str, Any] = Field(default_factory=dict)
    train: dict[str, Any] = Field(default_factory=dict)
    model: str | None = None
    methods: dict[str, str] = Field(default_factory=dict)
    """Spec strings of methods, by label; an empty string removes the method."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the study's probes."""


class CaseFile(Changes):
    """One comparison of a study: a column of a table, a panel of a figure."""

    name: str
    paper: dict[str, Values] = Field(default_factory=dict)
    """The paper's values as printed, by measure and label."""
    follows: str | None = None
    """Another case, whose three worst clients get twice their samples in this one."""
    missing: str | None = None
    """The reason why the case cannot be run: its data is not in the catalogue."""


class ScaleFile(Changes):
    """A smaller version of a study: its changes, in words and in settings."""

    changes: str
    seeds: Positive | None = None
    cases: list[str] = Field(default_factory=lambda: ["*"])
    """The cases to run, as patterns of their names."""
    where: dict[str, Changes] = Field(default_factory=dict)
    """Further changes for the cases that match a pattern."""


class Claim(BaseModel):
    """A statement of a paper, as a difference that can be measured over seeds.

    A method's value, averaged over ``cases``, is compared with that of each rival in ``than``, with
    its value in ``than_cases``, or with the number ``than_value``. With ``since``, values are
    changes relative to that case. ``kind`` is the expected difference.
    """

    model_config = _STRICT

    text: str
    measure: str
    method: str
    kind: Literal["better", "worse", "at least", "equivalent"] = "better"
    than: list[str] = Field(default_factory=list)
    cases: list[str] = Field(default_factory=lambda: ["*"])
    than_cases: list[str] | None = None
    than_value: float | None = None
    since: str | None = None
    margin: Annotated[float, Field(ge=0)] | None = None
    """The tolerance of "at least" and "equivalent", by default 0; for "better" and "worse" the
    largest difference that does not matter, by default one point or one per cent."""
    above: float | None = None
    """A value that one of the methods must reach; otherwise too little was learned to compare."""
    scales: list[Scale] = ["paper", "cpu"]
    """The scales at which the claim can be tested; ``why`` is the reason for the others."""
    why: str = "this scale trains too little, on different data"

    @property
    def is_about_order(self) -> bool:
        """Whether the claim says which of two values is higher."""
        return self.kind in ("better", "worse")


class StudyFile(Changes):
    """The contents of a study file."""

    title: str
    paper: Paper
    reproduces: list[str]
    """The tables and figures of the paper that the study reproduces."""
    note: str = ""
    measures: Annotated[list[str], Field(min_length=1)]
    """The names of the measures; the first is drawn in the overview."""
    probes: list[str] = Field(default_factory=list)
    ours: list[str] = Field(default_factory=list)
    """The paper's method, or versions of it; its effective rounds are counted against rivals."""
    fallback: str | None = None
    """The method that ours becomes where it cannot be applied; a claim whose method has its values
    with every seed cannot be tested."""
    reference: str | None = None
    """The method whose model is the reference for parameter bias."""
    seeds: Positive = 3
    cases: Annotated[list[CaseFile], Field(min_length=1)]
    claims: list[Claim] = Field(default_factory=list)
    scales: dict[Literal["cpu", "smoke"], ScaleFile]


class Case(BaseModel):
    """One comparison at a scale, with all settings resolved."""

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
    """Resolve a study at a scale; every error names the study and the case."""
    if scale not in get_args(Scale):
        raise UnskewError(f"scale must be one of smoke, cpu, paper (got {scale!r})")
    if seeds is not None and seeds < 1:
        raise UnskewError(f"seeds must be at least 1 (got {seeds})")
    changes = None if scale == "paper" else file.scales[scale]  # type: ignore[index]
    patterns = ["*"] if changes is None else changes.cases
    chosen = [case for case in file.cases if matches(case.name, patterns)]
    if not chosen:
        raise UnskewError(f"{name}: scale {scale}: cases: no case matches {patterns}")
    cases = [_resolved(name, file, case, changes) for case in chosen]
    scale_seeds = None if changes is None else changes.seeds
    return Study(
        name=name,
        scale=scale,
        file=file,
        seeds=seeds or scale_seeds or file.seeds,
        cases=cases,
        changes="nothing: this is the paper's setting" if changes is None else changes.changes,
    )


def matches(name: str, patterns: list[str]) -> bool:
    """Return whether a case's name matches one of the patterns, such as ``CIFAR-10*``."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def _resolved(name: str, file: StudyFile, case: CaseFile, scale: ScaleFile | None) -> Case:
    layers: list[Changes] = [file, case]
    if scale is not None:
        where = [more for pattern, more in scale.where.items() if matches(case.name, [pattern])]
        layers += [scale, *where]
    label = f"{name}: case {case.name!r}: "
    methods = _merged(layer.methods for layer in layers)
    values: dict[str, Any] = {
        "name": case.name,
        "data": _merged(layer.data for layer in layers),
        "train": _merged_settings([layer.train for layer in layers]),
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


def _merged_settings(layers: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge settings; of two mutually exclusive settings the later one replaces the other."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for pair in (("participation", "cohort"), ("epochs", "steps")):
            if set(pair) & set(layer):
                merged = {key: value for key, value in merged.items() if key not in pair}
        merged |= layer
    return merged
