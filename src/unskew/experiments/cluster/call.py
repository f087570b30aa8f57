"""A run as it is sent to a worker, and what the worker does with it."""

import os
import platform
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import cloudpickle

from unskew.composition.method import Method
from unskew.data.federation import Federation
from unskew.engine.hook_checks import ServerFailed
from unskew.engine.round_loop import run_training
from unskew.engine.settings import Settings
from unskew.engine.setup import TrainingSetup
from unskew.errors import FolderError, FolderLockedError, UnskewError, add_traceback_note
from unskew.experiments.cluster.versions import check_versions, own_versions
from unskew.models.functional import Model
from unskew.runs.run import Run
from unskew.utils.threads import threads

CallResult = dict[str, Any]
"""What a worker returns: plain values, so that it can also be a JSON file."""

_SECONDS_BETWEEN_LOOKS = 1.0
"""How often a worker looks whether the command still waits for its runs."""

_one_at_a_time = threading.Lock()
"""A Dask worker may have several threads; random numbers and threads of torch are per process."""


@dataclass(frozen=True, eq=False)
class RunCall:
    """A run for a worker; all paths are on storage that the worker shares with the command."""

    command_folder: Path
    """A folder that exists as long as the command waits for its runs."""
    data: Path
    """The folder of the saved federation."""
    fingerprint: str
    """The hash of the federation."""
    method: Method
    model: Model | None
    settings: Settings
    folder: Path
    notes: Mapping[str, Any]
    stage_cache: Path | None

    @property
    def cores(self) -> int:
        """The number of cores that the run uses."""
        return self.settings.workers or 1

    def __call__(self) -> CallResult:
        """Execute or resume the run.

        If a worker of an earlier command, which was killed, still executes it, wait.
        """
        if not is_seen(self.command_folder):
            raise FolderError(
                f"out: the worker on {platform.node()} does not see {self.command_folder}; choose "
                "a folder on storage that all machines share, at the same path"
            )
        while self.command_folder.is_dir():
            try:
                with threads(self.cores):
                    run = self._train()
                return {"end": [len(self.method.stages()) - 1, run.task_rounds]}
            except FolderLockedError:
                time.sleep(_SECONDS_BETWEEN_LOOKS)
        return {"stopped": True}

    def _train(self) -> Run:
        looked = time.monotonic()

        def stop_if_abandoned(round_: int, metrics: Mapping[str, Any]) -> None:
            nonlocal looked
            del round_, metrics
            if time.monotonic() - looked >= _SECONDS_BETWEEN_LOOKS:
                looked = time.monotonic()
                if not self.command_folder.is_dir():
                    raise KeyboardInterrupt

        federation = _federation(self.command_folder, self.data, self.fingerprint)
        return run_training(
            TrainingSetup.of(federation, self.method, self.model, self.settings),
            self.folder,
            resume=True,
            progress=stop_if_abandoned,
            notes=self.notes,
            stage_cache=self.stage_cache,
        )

    def packed(self) -> bytes:
        """Return the call as bytes for :func:`execute_call`.

        cloudpickle can send lambdas, and classes of a notebook or a script.
        """
        call = cloudpickle.dumps(self)
        packed: bytes = cloudpickle.dumps((own_versions(), str(Path.cwd()), sys.path, call))
        return packed


def execute_call(packed: bytes) -> CallResult:
    """Execute a run on a worker; its results are in its folder.

    The result holds the stage and round at which the run ended, or an error.
    """
    versions, working_folder, path, pickled = cloudpickle.loads(packed)
    with _one_at_a_time:
        try:
            check_versions(versions)
            _work_as(working_folder, path)
            call: RunCall = cloudpickle.loads(pickled)
            return call()
        except KeyboardInterrupt:  # the command no longer waits; the checkpoint is written
            return {"stopped": True}
        except Exception as error:
            if not isinstance(error, UnskewError) or error.__cause__ is not None:
                add_traceback_note(error)
            kind = next((each for each in _ERRORS if isinstance(error, _ERRORS[each])), None)
            text = str(error) if kind else f"{type(error).__name__}: {error}"
            return {"error": text, "kind": kind, "notes": getattr(error, "__notes__", [])}


_ERRORS: Mapping[str, type[UnskewError]] = {
    each.__name__: each for each in (FolderError, ServerFailed, UnskewError)
}


def error_of(result: CallResult) -> Exception | None:
    """Return the error of a result, if it is one."""
    if "error" not in result:
        return None
    error: Exception = _ERRORS.get(result["kind"], RuntimeError)(result["error"])
    for note in result["notes"]:
        error.add_note(note)
    return error


def open_saved(folder: Path, fingerprint: str) -> Federation:
    """Open a federation; its samples stay on disk until they are used."""
    federation = Federation.open(folder)
    if federation.fingerprint != fingerprint:
        raise UnskewError(f"{folder}: its samples were changed; remove the folder and start again")
    return federation


@lru_cache(maxsize=1)
def _federation(command_folder: Path, folder: Path, fingerprint: str) -> Federation:
    """Open a federation once for consecutive runs of one command, which removes it in the end."""
    del command_folder
    return open_saved(folder, fingerprint)


def is_seen(folder: Path) -> bool:
    """Return whether a folder of shared storage exists.

    A network file system may remember that there was none, until the folder above it is listed.
    """
    for parent in (folder.parent.parent, folder.parent):
        with suppress(OSError):
            list(parent.iterdir())
    return folder.is_dir()


def _work_as(working_folder: str, path: Sequence[str]) -> None:
    """Use the working folder and the modules of the command, where they exist on this machine."""
    if Path(working_folder).is_dir():
        os.chdir(working_folder)
    sys.path += [each for each in path if each not in sys.path]
