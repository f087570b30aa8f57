"""Log a run's metrics to trackers: TensorBoard, MLflow, Weights & Biases (offline).

Trackers read the metrics that a run has recorded, so training does not depend on them. The packages
are in the extra ``trackers``.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from unskew.errors import UnskewError
from unskew.runs.run import Run
from unskew.utils.specs import lookup


class Tracker(Protocol):
    """Logs the metrics of one run."""

    def log(self, step: int, row: Mapping[str, Any]) -> None:
        """Log one row of metrics."""

    def close(self) -> None:
        """Write all pending metrics and close the tracker."""


def open_tracker(spec: str, run: Run) -> Tracker:
    """Open a tracker for one run; specs are ``tensorboard`` or ``mlflow:FOLDER``."""
    name, _, folder = spec.partition(":")
    make = lookup(_TRACKERS, name, "tracker")
    return make(run, Path(folder or name))


def scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a row of metrics, by names such as ``global/accuracy``."""
    found: dict[str, float] = {}
    for name in ("train_loss", "seconds", "clients"):
        if row.get(name) is not None:
            found[name] = row[name]
    for group in ("global", "local", "personal", "traffic"):
        for name, value in row.get(group, {}).items():
            if value is not None:
                found[f"{group}/{name}"] = value
    return found


class _TensorBoard:
    def __init__(self, run: Run, folder: Path) -> None:
        tensorboard = _package("torch.utils.tensorboard", "tensorboard")
        self._writer = tensorboard.SummaryWriter(str(folder / _label(run)))

    def log(self, step: int, row: Mapping[str, Any]) -> None:
        for name, value in scalars(row).items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _MLflow:
    def __init__(self, run: Run, folder: Path) -> None:
        tracking = _package("mlflow.tracking", "mlflow")
        folder.mkdir(parents=True, exist_ok=True)
        self._client = tracking.MlflowClient(f"sqlite:///{(folder / 'mlflow.db').absolute()}")
        known = self._client.get_experiment_by_name(run.data)
        experiment = known.experiment_id if known else self._client.create_experiment(run.data)
        started = self._client.create_run(experiment, run_name=_label(run))
        self._id = started.info.run_id
        for name, value in _parameters(run).items():
            self._client.log_param(self._id, name, value)

    def log(self, step: int, row: Mapping[str, Any]) -> None:
        for name, value in scalars(row).items():
            self._client.log_metric(self._id, name, value, step=step)

    def close(self) -> None:
        self._client.set_terminated(self._id)


class _Wandb:
    def __init__(self, run: Run, folder: Path) -> None:
        wandb = _package("wandb", "wandb")
        folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project="unskew", group=run.data, name=_label(run), config=_parameters(run),
            dir=str(folder), mode="offline", reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
        )  # fmt: skip

    def log(self, step: int, row: Mapping[str, Any]) -> None:
        self._run.log(scalars(row), step=step)

    def close(self) -> None:
        self._run.finish()


_TRACKERS: dict[str, Callable[[Run, Path], Tracker]] = {
    "tensorboard": _TensorBoard,
    "mlflow": _MLflow,
    "wandb": _Wandb,
}


def _label(run: Run) -> str:
    return f"{run.method.replace('/', '-')} seed {run.seed}"


def _parameters(run: Run) -> dict[str, Any]:
    settings = {k: v for k, v in run.metadata.get("configuration", {}).items() if v is not None}
    skew = run.metadata.get("data", {}).get("skew")
    return {
        "method": run.method,
        "network": run.network,
        "data": run.data,
        "skew": skew,
        **settings,
    }


def _package(module: str, name: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise UnskewError(
            f"tracker: {name} is not installed; pip install 'unskew[trackers]'"
        ) from None
