"""``us.train``: one method on one federation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unskew.composition.method import Method
from unskew.composition.parts import Part
from unskew.data.federation import Federation
from unskew.data.quality.check import check_before_training
from unskew.engine.preparation import describe_preparation
from unskew.engine.progress import RoundCallback, show_progress_of_many
from unskew.engine.progress_bars import open_bars, surface_for
from unskew.engine.settings import Settings
from unskew.engine.setup import TrainingSetup
from unskew.errors import NotAFederationError, UnskewError
from unskew.experiments.cluster.executor import OpenWorkers, open_cluster
from unskew.experiments.cluster.places import On, find_place
from unskew.experiments.scheduler import RunRequest, RunScheduler, execute
from unskew.experiments.termination import checkpoints_on_sigterm
from unskew.methods import make_method
from unskew.models.functional import Model
from unskew.runs.run import Run


@checkpoints_on_sigterm()
def train(
    federation: Federation,
    method: str | Part | Method = "fedavg",
    *,
    model: Model | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | RoundCallback | None = None,
    notes: Mapping[str, Any] | None = None,
    stage_cache: str | Path | None = None,
    on: On = None,
    settings: Settings | None = None,
    **options: Any,
) -> Run:
    """Train one model on a federation and return what happened.

    ``method`` is a spec string such as ``"fedprox:mu=0.01"`` or a method object. ``model`` is a
    name (see ``unskew models``), a module whose weights every seed starts from, a function that
    returns a module, whose weights then depend on the seed, or None for a network that suits the
    data. ``options`` are the fields of :class:`unskew.engine.settings.Settings`:
    ``rounds``, ``participation`` or ``cohort``, ``epochs`` or ``steps``, ``batch_size``, ``lr``,
    ``evaluate_every`` (0: never), ``metrics`` and ``metric`` (see ``docs/metrics.md``), ``seed``,
    ``workers`` and so on; ``settings`` takes them as one validated object instead. With ``out`` the
    run is written to a folder as it proceeds, and with ``resume`` it continues from the folder's
    last checkpoint, bit for bit. Ctrl-C writes a checkpoint first, and so does SIGTERM, unless your
    program handles it or trains in a thread. ``notes`` are stored in ``run.metadata`` and change
    nothing. ``stage_cache`` is a folder that several runs share: a preparatory stage, such as
    FedDisk's density, is trained by the first of them and reused by the others. ``on`` is a
    cluster that executes the run, as for :func:`unskew.compare`; it needs ``out``.
    """
    if not isinstance(federation, Federation):
        raise NotAFederationError(federation)
    if resume and out is None:
        raise UnskewError("resume: there is nothing to resume without out, the run's folder")
    if stage_cache is not None and out is None:
        raise UnskewError("stage_cache: there is nothing to share without out, the run's folder")
    findings = check_before_training(federation).to_notes()
    settings = Settings.of(settings, options)
    all_notes = {**(notes or {}), **findings}
    place = find_place(on, None, [settings])
    if place is not None:
        request = RunRequest(
            label=make_method(method).spec,
            method=make_method(method),
            data=lambda: federation,
            settings=settings,
            folder=None if out is None else Path(out),
            notes=all_notes,
        )
        return _train_on_cluster(request, place, model, resume, progress, stage_cache)
    setup = TrainingSetup.of(federation, make_method(method), model, settings)
    if not callable(progress):
        _announce_preparation(setup, progress)
    return execute(
        setup,
        out,
        resume=resume,
        progress=progress,
        notes=all_notes,
        stage_cache=stage_cache,
    )


def _train_on_cluster(
    request: RunRequest,
    place: OpenWorkers,
    model: Model | None,
    resume: bool,
    progress: bool | RoundCallback | None,
    stage_cache: str | Path | None,
) -> Run:
    """Execute one run on a cluster; what is shared with it is beside the run's folder."""
    if callable(progress):
        raise UnskewError("progress: a function is called on this machine only; remove on")
    beside = None if request.folder is None else request.folder.resolve().parent
    with (
        show_progress_of_many(progress, 1, request.rounds) as display,
        open_cluster(place, beside) as cluster,
    ):
        cache = None if stage_cache is None else Path(stage_cache)
        return RunScheduler(model, resume, 1, display, cache, cluster).run([request])[0]


def _announce_preparation(setup: TrainingSetup, progress: bool | None) -> None:
    """Show what preparatory stages will cost, where a progress bar is shown too."""
    surface = surface_for(progress)
    if surface in ("terminal", "notebook") and (text := describe_preparation(setup)):
        with open_bars("notebook" if surface == "notebook" else "lines") as bars:
            bars.say(text)
