"""A cache of the stages before the task, so that runs of one comparison share equal stages.

FedDisk's estimators start with the same density, and latent discrepancy starts with the same VAE
for every alpha. At the end of such a stage, the run's logs and checkpoint are stored under a key of
everything they depend on, and a run with an equal stage resumes from there. The rounds, traffic and
seconds of the stage are recorded in each run as if it had executed the stage itself.
"""

import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from unskew.errors import UnskewError
from unskew.runs.atomic import sync_file
from unskew.runs.checkpoint import Checkpoints
from unskew.runs.file_names import CHECKPOINTS, LOGS

CACHE_FOLDER = ".unskew-stages"
"""A name that is unlikely to exist already, because its stages are removed in the end."""

_STAGE = re.compile(r"[0-9a-f]{24}|\.[0-9a-f]{24}\.\d+")
"""A stage is named by its key; one that is being written also has a random number."""


@contextmanager
def stage_cache_in(folder: Path | None) -> Iterator[Path | None]:
    """Yield the folder in which runs share stages; it is removed when all runs are finished.

    The states of all clients after a density stage take much more space than a finished run.
    After an error or Ctrl-C the cache is kept for the remaining runs.
    """
    if folder is None:
        yield None
        return
    path = folder / CACHE_FOLDER
    yield path
    for stage in path.iterdir() if path.is_dir() else ():
        if _STAGE.fullmatch(stage.name):
            shutil.rmtree(stage, ignore_errors=True)
    with suppress(OSError):  # there is none, or it holds a file that is not ours
        path.rmdir()


@dataclass(frozen=True)
class StageCache:
    """A folder of completed stages, and the keys of one run's stages in order."""

    path: Path
    keys: Sequence[str]

    def restore(self, folder: Path) -> bool:
        """Copy the latest cached stage into a run's folder; return whether there was one."""
        for key in reversed(self.keys):
            cached = self.path / key
            try:
                if cached.is_dir():
                    _copy(cached, folder)
                    return True
            except (FileNotFoundError, UnskewError):  # damaged: the run executes the stage itself
                shutil.rmtree(cached, ignore_errors=True)
            except OSError:  # such as a full disk
                pass
            Checkpoints(folder / CHECKPOINTS).clear()
        return False

    def keep(self, stage_index: int, folder: Path) -> None:
        """Store the content of a run's folder at the end of one of its stages."""
        if stage_index >= len(self.keys) or (self.path / self.keys[stage_index]).exists():
            return
        # A random number: processes of several machines may have the same number.
        temporary = self.path / f".{self.keys[stage_index]}.{secrets.randbits(32)}"
        try:
            _copy(folder, temporary)
            temporary.rename(self.path / self.keys[stage_index])
        except (OSError, UnskewError):  # another run was faster, or the disk is full
            shutil.rmtree(temporary, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    """Copy the logs, which will grow, and link the checkpoint's files, which never change."""
    target.mkdir(parents=True, exist_ok=True)
    for name in LOGS:
        shutil.copyfile(source / name, target / name)
        sync_file(target / name)
    marks = Checkpoints(source / CHECKPOINTS).link_to(target / CHECKPOINTS)
    if marks is None or any((target / name).stat().st_size < marks[name] for name in LOGS):
        raise UnskewError(f"{source}: is incomplete")
