"""Playing many runs: beside each other where that is possible and worth it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import nn

from unskew.data.federation import Federation
from unskew.engine.model_factory import made_by
from unskew.engine.progress import Board, Watcher
from unskew.engine.rounds import ServerFailed
from unskew.engine.settings import Settings
from unskew.engine.train import keeps_to_one_core, train
from unskew.errors import FolderError, UnskewError
from unskew.experiments.jobs import Job, can_run_beside, cores, play_jobs
from unskew.methods.common.base import Method
from unskew.methods.common.registry import name_of
from unskew.models.functional import Model
from unskew.runs.run import Run
from unskew.utils.specs import explain


@dataclass(frozen=True, eq=False)
class RunRequest:
    """A run that is wanted; its data is dealt out when its turn has come."""

    label: str
    method: Method
    data: Callable[[], Federation]
    settings: dict[str, Any]
    folder: Path | None = None
    model: str | None = None
    """Its network, where it is not the one that the player has for all."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    may_refuse: bool = False
    """Whether a method that cannot be trained here is no error: the run then says why."""


@dataclass(frozen=True)
class RunScheduler:
    """Plays runs, ``jobs`` at once; None means one a core, if a run keeps to one."""

    model: Model | None
    resume: bool
    jobs: int | None
    board: Board
    stages: Path | None = None
    """Where the runs share what they learn before their tasks."""

    def play(self, wanted: Sequence[RunRequest]) -> list[Run]:
        """Play all runs and return them in the order they were named."""
        labels = [each.label for each in wanted]
        rounds = [checked_settings(each.settings).rounds for each in wanted]
        return play_jobs(
            labels,
            lambda place: self._job(wanted[place]),
            self.board,
            self._at_once(wanted),
            rounds,
        )

    def _job(self, wanted: RunRequest) -> Job:
        data = wanted.data()

        def play(watcher: Watcher) -> Run:
            try:
                return train(
                    data,
                    wanted.method,
                    model=wanted.model or self.model,
                    out=wanted.folder,
                    resume=self.resume and wanted.folder is not None,
                    progress=watcher,
                    notes=wanted.notes,
                    stages=self.stages,
                    **wanted.settings,
                )
            except (FolderError, ServerFailed):
                raise
            except UnskewError as error:
                if not wanted.may_refuse:
                    raise
                return _refused(wanted, str(error), data)

        return play

    def _at_once(self, wanted: Sequence[RunRequest]) -> int:
        most = min(len(wanted), cores() if self.jobs is None else self.jobs)
        if most < 2:
            return 1
        first = wanted[0]
        settings = checked_settings(first.settings)
        if not can_run_beside(self._own_network(settings.seed)):
            return 1
        if self.jobs is None and not keeps_to_one_core(
            first.data(), first.method, self.model, settings
        ):
            return 1
        return most

    def _own_network(self, seed: int) -> nn.Module | None:
        """Return the network if it is the user's: as it comes back from where a run is played."""
        if self.model is None or isinstance(self.model, str):
            return None
        return made_by(self.model, seed)


def folder_name(method: str) -> str:
    """Return a method's spelling as the name of a folder."""
    return re.sub(r"[^A-Za-z0-9.=+_-]+", "-", method)


def checked_settings(settings: dict[str, Any]) -> Settings:
    """Check the settings of a run."""
    try:
        return Settings(**settings)
    except ValidationError as error:
        raise UnskewError(f"settings: {explain(error, Settings)}") from None


def _refused(wanted: RunRequest, reason: str, data: Federation) -> Run:
    return Run(
        method=name_of(wanted.method),
        network="",
        data=data.name,
        seed=wanted.settings["seed"],
        clients=len(data),
        facts={"refused": reason},
    )
