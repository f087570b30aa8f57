"""Comparisons as runs, from folders or from memory, each with the name of its federation."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unskew.errors import UnskewError
from unskew.report.page import COMPARISON, read_comparison
from unskew.runs.consistency import differences
from unskew.runs.find_folders import folders_with
from unskew.runs.read import read_runs
from unskew.runs.runs import Runs
from unskew.utils.wording import joined, plural


def read_comparisons(sources: Iterable[str | Path | Runs]) -> list[Runs]:
    """Return the runs of each comparison: of ``us.compare``, or in or below a folder.

    Tuned methods have the name by which they were requested, because every federation may have
    chosen other options.
    """
    found: list[Runs] = []
    folders: dict[Path, None] = {}
    for source in sources:
        if isinstance(source, Runs):
            found.append(source)
        else:
            folders |= dict.fromkeys(comparison_folders(source))
    found += [_read(folder) for folder in folders]
    if not found:
        raise UnskewError("runs: pass two or more folders written by unskew compare --out")
    empty = next((runs for runs in found if not any(run.metrics for run in runs)), None)
    if empty is not None:
        place = f"{empty[0].folder}: " if len(empty) and empty[0].folder else ""
        raise UnskewError(f"{place}there is nothing to summarise, because no round is finished yet")
    return [_as_requested(runs) for runs in found]


def comparison_folders(path: str | Path) -> list[Path]:
    """Return the folders of comparisons at or below a path, sorted by name."""
    path = Path(path)
    if (path / COMPARISON).is_file():
        return [path]
    found = folders_with(path, COMPARISON)
    if not found:
        raise UnskewError(
            f"{path}: there is no comparison in it (a folder with a {COMPARISON}, which unskew "
            "compare --out writes at its end)"
        )
    return found


def federation_names(comparisons: Sequence[Runs]) -> list[str]:
    """Return a name per comparison: data and skew, and the network if the networks differ.

    Names that are still equal get what distinguishes them: clients, rounds, cohorts, a number.
    """
    names = [_data_text(runs) for runs in comparisons]
    if len({runs[0].network for runs in comparisons}) > 1:
        names = [f"{n}, {runs[0].network}" for n, runs in zip(names, comparisons, strict=True)]
    for detail in _DETAILS:
        texts = [detail(runs) for runs in comparisons]
        variants: dict[str, set[str]] = {}
        for name, text in zip(names, texts, strict=True):
            variants.setdefault(name, set()).add(text)
        names = [
            f"{name}, {text}" if text and len(variants[name]) > 1 else name
            for name, text in zip(names, texts, strict=True)
        ]
    seen = Counter[str]()
    for place, name in enumerate(names):
        seen[name] += 1
        if seen[name] > 1:
            names[place] = f"{name} ({seen[name]})"
    return names


def remarks_on_comparisons(comparisons: Sequence[Runs], names: Sequence[str]) -> list[str]:
    """Return what a reader must know: repeated federations, mixed settings, unfinished runs."""
    keys = [_fingerprints(runs) for runs in comparisons]
    found = [
        f"{names[j]} and {names[i]} are the same federation (same data, network and settings) and "
        "count twice: pass one of them."
        for i in range(len(keys))
        for j in range(i)
        if keys[i] & keys[j]
    ]
    for name, runs in zip(names, comparisons, strict=True):
        found += [
            f"{name}: runs differ in {what} ({', '.join(values)})."
            for what, values in differences(runs).items()
        ]
        unfinished = [run for run in runs if not run.is_finished]
        if unfinished:
            found.append(f"{name}: {plural(len(unfinished), 'run')} of {len(runs)} unfinished.")
    levels = dict.fromkeys(runs.level for runs in comparisons)
    if len(levels) > 1:
        found.append(f"Some comparisons are judged at the {joined(list(levels))} level each.")
    tuned = {_is_tuned(runs) for runs in comparisons}
    if len(tuned) > 1:
        found.append("Methods were tuned in some federations only.")
    return found


def _read(folder: Path) -> Runs:
    return read_comparison(folder).sorted(read_runs([folder], tables=False))


def _as_requested(runs: Runs) -> Runs:
    renamed = [
        replace(run, method=str(run.metadata["tuning"].get("requested", run.method)))
        if "tuning" in run.metadata
        else run
        for run in runs
    ]
    return runs.with_same_judging(renamed)


def _is_tuned(runs: Runs) -> bool:
    return any("tuning" in run.metadata for run in runs)


def _data_text(runs: Runs) -> str:
    skew = runs[0].metadata.get("data", {}).get("skew")
    return f"{runs[0].data}, {skew}" if skew else runs[0].data


def _cohort(runs: Runs) -> str:
    settings = _settings(runs)
    if settings.get("cohort"):
        return f"{settings['cohort']} per round"
    share = settings.get("participation")
    return f"{100 * share:g} % per round" if share else ""


def _settings(runs: Runs) -> dict[str, Any]:
    found: dict[str, Any] = runs[0].metadata.get("configuration", {})
    return found


_DETAILS: tuple[Callable[[Runs], str], ...] = (
    lambda runs: plural(runs[0].clients, "client"),
    lambda runs: plural(runs[0].task_rounds, "round"),
    _cohort,
    lambda runs: runs[0].folder.absolute().parent.parent.name if runs[0].folder else "",
)


def _fingerprints(runs: Runs) -> set[str]:
    """Return the data, network and settings of every seed, without what tuning may change.

    Runs without a folder have no hash of their data, but a description of it.
    """
    found = set()
    for run in runs:
        identity, metadata = run.metadata.get("identity", {}), run.metadata
        data = identity.get("data") or (
            metadata.get("data") if "configuration" in metadata else None
        )
        if data:
            settings = {name: _settings(runs).get(name) for name in _COMPARED}
            found.add(f"{data} {run.network} {settings}")
    return found


_COMPARED = (
    *("rounds", "participation", "cohort", "epochs", "steps", "batch_size", "optimizer"),
    *("momentum", "weight_decay", "clip", "lr_decay", "attack"),
)
"""The settings that make two trainings on the same data different federations of a summary."""
