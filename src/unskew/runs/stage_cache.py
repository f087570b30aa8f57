"""Stages before the task that runs of one comparison have in common: played once, then shared.

FedDisk's estimators begin with the same density, and weights by latent discrepancy with the same
VAE whatever alpha is. When such a stage has ended, the run's logs and checkpoint are kept under a
key of everything that shaped them, and a run that would begin the same way goes on from there. Its
rounds, traffic and seconds stand in each run as if it had played them.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from unskew.errors import UnskewError
from unskew.runs.atomic import sync_file
from unskew.runs.checkpoint import Checkpoints
from unskew.runs.file_names import CHECKPOINTS, LOGS

PLACE = ".unskew-stages"
"""A name that nobody else's folder has: it will be removed."""


@contextmanager
def stage_cache_in(folder: Path | None) -> Iterator[Path | None]:
    """Give the place where runs of a folder share stages; removed when all have been played.

    What all clients keep for the sake of a density takes much more room than a run does in the
    end. After an error or Ctrl-C it stays, for the runs that are still to be played.
    """
    if folder is None:
        yield None
        return
    path = folder / PLACE
    yield path
    shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class StageCache:
    """A folder of ended stages, and the keys of one run's, in their order."""

    path: Path
    keys: Sequence[str]

    def adopt(self, folder: Path) -> bool:
        """Begin a folder that has no checkpoint with the most stages there are; say if any."""
        for key in reversed(self.keys):
            kept = self.path / key
            try:
                if kept.is_dir():
                    _copy(kept, folder)
                    return True
            except (FileNotFoundError, UnskewError):  # damaged: the run plays it itself
                shutil.rmtree(kept, ignore_errors=True)
            except OSError:  # such as a full disk
                pass
            Checkpoints(folder / CHECKPOINTS).clear()
        return False

    def keep(self, stage: int, folder: Path) -> None:
        """Keep what a run's folder holds at the end of one of its stages."""
        if stage >= len(self.keys) or (self.path / self.keys[stage]).exists():
            return
        building = self.path / f".{self.keys[stage]}.{os.getpid()}"
        try:
            _copy(folder, building)
            building.rename(self.path / self.keys[stage])
        except (OSError, UnskewError):  # another run was faster, or the disk is full: no matter
            shutil.rmtree(building, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    """Copy the logs, which will grow, then link the checkpoint's files, which never change."""
    target.mkdir(parents=True, exist_ok=True)
    for name in LOGS:
        shutil.copyfile(source / name, target / name)
        sync_file(target / name)
    marks = Checkpoints(source / CHECKPOINTS).link_to(target / CHECKPOINTS)
    if marks is None or any((target / name).stat().st_size < marks[name] for name in LOGS):
        raise UnskewError(f"{source}: is not whole")
