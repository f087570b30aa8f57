"""Running the probes of a study: each result is measured once and cached."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from threadpoolctl import threadpool_limits

from unskew.engine.custom_code import custom_code
from unskew.experiments.studies.probes import PROBES
from unskew.experiments.studies.probes.base import Drawings, Probe, ProbeResult
from unskew.experiments.studies.study import Case, Study
from unskew.experiments.studies.study_scheduler import content_key
from unskew.experiments.studies.values import Cells
from unskew.methods import make_method
from unskew.runs.atomic import write_json
from unskew.utils.jsonable import to_jsonable
from unskew.utils.specs import lookup
from unskew.utils.threads import threads


def probe_study(study: Study, cache: Path) -> tuple[Cells, dict[str, Drawings]]:
    """Measure the study's probes; results that are in the cache are read.

    Return the measured values, and what is drawn of each probe.
    """
    cells: Cells = {}
    by_probe: dict[str, Drawings] = {}
    for name in study.file.probes:
        probe = lookup(PROBES, name, "probe")
        drawings = by_probe.setdefault(name, {})
        for case in study.cases:
            for seed in range(study.seeds if case.missing is None else 0):
                result = _cached(cache, name, probe, case, seed)
                for label, measures in result.values.items():
                    for measure, value in measures.items():
                        by_measure = cells.setdefault(case.name, {}).setdefault(label, {})
                        by_measure.setdefault(measure, {})[seed] = value
                if seed == 0:
                    drawings[case.name] = result.drawing
    return cells, by_probe


def draw_probes(figures: Path, by_probe: Mapping[str, Drawings]) -> None:
    """Write one figure per probe into a folder."""
    for name, drawings in by_probe.items():
        PROBES[name].draw(drawings).savefig(figures / f"{name}.png", dpi=110)


@contextmanager
def one_core() -> Iterator[None]:
    """Compute in one thread: steps this short slow down when threads share a core."""
    with threads(1), threadpool_limits(1):
        yield


def _cached(cache: Path, name: str, probe: Probe, case: Case, seed: int) -> ProbeResult:
    code = [custom_code(make_method(spec)) for spec in case.methods.values()]
    content = json.dumps(
        [name, seed, case.methods, case.options, *(each for each in code if each)], sort_keys=True
    )
    key = hashlib.sha256(content.encode()).hexdigest()[:8]
    path = cache / f"{name}-{content_key(case, None)}-{key}.json"
    if path.is_file():
        stored = json.loads(path.read_text(encoding="utf-8"))
        return ProbeResult(stored["values"], stored["drawing"])
    with one_core():
        result = probe.measure(case, seed)
    cache.mkdir(parents=True, exist_ok=True)
    write_json(path, to_jsonable({"values": result.values, "drawing": result.drawing}))
    return result
