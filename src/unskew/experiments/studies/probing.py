"""Probes: what a figure shows that is not a run's accuracy, measured once and kept."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.experiments.studies.scheduler import content_key
from unskew.experiments.studies.study import Case, Study
from unskew.runs.atomic import write_json
from unskew.utils.jsonable import to_jsonable
from unskew.utils.specs import lookup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Found = dict[str, dict[str, dict[str, dict[int, float]]]]
"""By case, label, measure and seed."""


@dataclass(frozen=True)
class Finding:
    """What a probe found: figures by label and measure, and numbers to draw."""

    values: dict[str, dict[str, float]]
    drawing: dict[str, Any]


@dataclass(frozen=True)
class Probe:
    """Measures a case with a seed, and draws what it found of all cases."""

    measure: Callable[[Case, int], Finding]
    draw: Callable[[dict[str, dict[str, Any]]], "Figure"]


def probe_study(study: Study, cache: Path, figures: Path) -> Found:
    """Measure and draw what the study's probes ask for; what was measured before is read."""
    found: Found = {}
    for name in study.file.probes:
        probe = _probe(name)
        drawn: dict[str, dict[str, Any]] = {}
        for case in study.cases:
            for seed in range(study.seeds if case.missing is None else 0):
                finding = _cached(cache, name, probe, case, seed)
                for label, measures in finding.values.items():
                    for measure, value in measures.items():
                        by_seed = found.setdefault(case.name, {}).setdefault(label, {})
                        by_seed.setdefault(measure, {})[seed] = value
                if seed == 0:
                    drawn[case.name] = finding.drawing
        figures.mkdir(parents=True, exist_ok=True)
        probe.draw(drawn).savefig(figures / f"{name}.png", dpi=110)
    return found


@contextmanager
def one_core() -> Iterator[None]:
    """Compute in one thread: these are short steps, which lose dearly where a core is shared."""
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 (comes with scikit-learn)

    from unskew.engine.threads import threads  # noqa: PLC0415 (imports torch)

    with threads(1), threadpool_limits(1):
        yield


def _probe(name: str) -> Probe:
    from unskew.experiments.studies.probes import PROBES  # noqa: PLC0415 (imports torch)

    return lookup(PROBES, name, "probe")


def _cached(cache: Path, name: str, probe: Probe, case: Case, seed: int) -> Finding:
    asked = json.dumps([name, seed, case.methods, case.options], sort_keys=True)
    key = hashlib.sha256(asked.encode()).hexdigest()[:8]
    path = cache / f"{name}-{content_key(case, None)}-{key}.json"
    if path.is_file():
        known = json.loads(path.read_text(encoding="utf-8"))
        return Finding(known["values"], known["drawing"])
    with one_core():
        finding = probe.measure(case, seed)
    cache.mkdir(parents=True, exist_ok=True)
    write_json(path, to_jsonable({"values": finding.values, "drawing": finding.drawing}))
    return finding
