"""The studies that are included in the package, by name."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

from unskew.errors import UnskewError
from unskew.experiments.config import parse_toml, read_toml
from unskew.experiments.studies.study import Claim, Scale, Study, StudyFile, at_scale, matches
from unskew.utils.specs import lookup, validated


def study_names() -> list[str]:
    """Return the names of all studies, sorted."""
    folder = files("unskew.experiments.studies") / "files"
    return sorted(Path(file.name).stem for file in folder.iterdir() if file.name.endswith(".toml"))


def read_study(name: str) -> StudyFile:
    """Return an included study by name, or the study in a TOML file by its path."""
    path = Path(name)
    if path.suffix == ".toml" and path.is_file():
        return _study_of(path.stem, read_toml(path))
    lookup(dict.fromkeys(study_names()), name, "study")
    text = (files("unskew.experiments.studies") / "files" / f"{name}.toml").read_text(
        encoding="utf-8"
    )
    return parse_study(name, text)


def open_study(name: str, scale: str, seeds: int | None = None) -> Study:
    """Read a study and resolve it at a scale."""
    return at_scale(Path(name).stem if name.endswith(".toml") else name, read_study(name), scale,
                    seeds)  # fmt: skip


def parse_study(name: str, text: str) -> StudyFile:
    """Parse a study from TOML, and resolve it at every scale so that mistakes are found at once."""
    return _study_of(name, parse_toml(text, name))


def _study_of(name: str, values: Mapping[str, Any]) -> StudyFile:
    file = validated(StudyFile, values, f"{name}: ")
    if set(file.scales) != {"cpu", "smoke"}:
        raise UnskewError(f"{name}: scales must have cpu and smoke (got {sorted(file.scales)})")
    for scale in get_args(Scale):
        at_scale(name, file, scale)
    if file.fallback is not None and file.fallback not in file.methods:
        raise UnskewError(f"{name}: fallback: no method is called {file.fallback!r}")
    for claim in file.claims:
        _check_claim(name, file, claim)
    return file


def _check_claim(name: str, file: StudyFile, claim: Claim) -> None:
    """Raise if a claim names a case or a method that the study does not have."""
    names = [case.name for case in file.cases]
    patterns = [*claim.cases, *(claim.than_cases or []), *([claim.since] if claim.since else [])]
    for pattern in patterns:
        if not any(matches(case, [pattern]) for case in names):
            raise UnskewError(f"{name}: claim {claim.text!r}: no case matches {pattern!r}")
    known = {label for part in (file, *file.cases) for label in part.methods}
    if known and not file.probes:
        for label in (claim.method, *claim.than):
            if label not in known:
                raise UnskewError(f"{name}: claim {claim.text!r}: no method is called {label!r}")
    rivals = (bool(claim.than), claim.than_cases is not None, claim.than_value is not None)
    if sum(rivals) != 1:
        raise UnskewError(
            f"{name}: claim {claim.text!r}: give one of than, than_cases and than_value"
        )
