"""Check whether a federation and a single process end with the same weights."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from unskew.composition.values import Server
from unskew.engine.round_loop import run_training
from unskew.engine.settings import Settings
from unskew.engine.setup import TrainingSetup
from unskew.errors import UnskewError
from unskew.flower.loopback.apps import Config, load_task
from unskew.methods import make_method
from unskew.runs.checkpoint import Checkpoints
from unskew.runs.file_names import CHECKPOINTS, NODE_PREPROCESSING

TOLERANCE = 1e-6
"""The largest difference allowed; different processors may sum in a different order."""


@dataclass(frozen=True)
class Parity:
    """How the final weights of two runs compare."""

    numbers: int
    largest_difference: float
    """The largest difference of all numbers; infinite if the tensors do not match."""

    @property
    def holds(self) -> bool:
        """Whether the weights are the same within the tolerance."""
        return self.largest_difference <= TOLERANCE

    def __str__(self) -> str:
        if self.largest_difference == 0:
            return f"parity: all {self.numbers:,} numbers are bit-identical to a single process"
        verdict = "allowed" if self.holds else "NOT allowed"
        return (
            f"parity: numbers differ from a single process by up to {self.largest_difference:.3g} "
            f"({verdict}: {TOLERANCE:g})"
        )


def check_parity(app: Path, config: Config, run: Path) -> Parity:
    """Repeat an app's run in this process and compare the final state of the server.

    Raise if the nodes had tables of their own.
    """
    if (run / NODE_PREPROCESSING).is_file():
        raise UnskewError(
            "--check-parity: the nodes trained on their own tables (NodeTable), which are not the "
            "dataset of task.federation, so there is nothing to compare; run without it"
        )
    task = load_task(app)
    settings = Settings.validated({**task.settings(config), "runner": "loop", "evaluate_every": 0})
    with TemporaryDirectory() as folder:
        setup = TrainingSetup.of(
            task.federation(config), make_method(task.METHOD), task.MODEL, settings
        )
        run_training(setup, folder, resume=False, progress=False)
        return compare_tensors(final_tensors(run), final_tensors(Path(folder)))


def final_tensors(run: Path) -> dict[str, Tensor]:
    """Return the final tensors of a run's server, including those of earlier stages."""
    found = Checkpoints(run / CHECKPOINTS).load()
    position = None if found is None else found[0]
    if position is None or position.server is None:
        raise UnskewError(f"{run}: it has no checkpoint to compare")
    servers: dict[str, Server] = {**position.earlier, "": position.server}
    return {
        f"{stage_name}/{name}": tensor
        for stage_name, server in servers.items()
        for name, tensor in {"vector": server.vector, **server.state}.items()
    }


def compare_tensors(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> Parity:
    """Compare tensors by name."""
    numbers = sum(tensor.numel() for tensor in ours.values())
    if ours.keys() != theirs.keys() or any(ours[k].shape != theirs[k].shape for k in ours):
        return Parity(numbers, float("inf"))
    differences = (_largest_difference(ours[k], theirs[k]) for k in ours)
    return Parity(numbers, max(differences, default=0.0))


def _largest_difference(one: Tensor, other: Tensor) -> float:
    """Return the largest absolute difference; NaN equals NaN."""
    if torch.equal(one, other):
        return 0.0
    difference = (one.double() - other.double()).abs()
    same = one.isnan() & other.isnan() if one.is_floating_point() else one == other
    return float(difference.masked_fill(same, 0.0).nan_to_num(nan=float("inf")).max())
