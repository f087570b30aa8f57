"""The final model of a run as a predictor of raw rows, in memory or from the run's folder."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from unskew.composition.values import Server
from unskew.data import checks
from unskew.data.federation import Federation
from unskew.data.preprocessing.cells import Column
from unskew.data.preprocessing.fitted import Preprocessing
from unskew.data.preprocessing.spec import parse_prepare
from unskew.data.read_tables import RawTable
from unskew.engine.model_factory import make_module
from unskew.engine.placement import to_tensor
from unskew.engine.settings import Settings
from unskew.engine.stage import client_context
from unskew.errors import UnskewError
from unskew.methods import make_method, names_files
from unskew.models.functional import FunctionalModel
from unskew.models.goals import CLASSIFY
from unskew.models.layout import assign
from unskew.runs.checkpoint import Checkpoints
from unskew.runs.file_names import CHECKPOINTS
from unskew.runs.run import Run
from unskew.utils.specs import validated

Rows = Any
"""Raw rows (a file, a DataFrame, dicts or texts), or arrays if nothing was prepared."""

_BATCH = 1024
_Size = Annotated[int, Field(ge=1, le=100_000_000)]


class InputFormat(BaseModel):
    """The samples that a network takes, as ``run.json`` records it."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    shape: list[_Size]
    dtype: Literal["float32", "uint8", "int32"]
    words: _Size | None = None
    """The size of the vocabulary, if samples are tokens."""
    classes: _Size

    def example(self, units: "TargetUnits | None" = None) -> Federation:
        """Return a federation of one client with two samples of this format.

        With units, their targets are those of a regression.
        """
        x = np.zeros((2, *self.shape), self.dtype)
        federation = Federation.from_arrays(
            x,
            [0, 0],
            classes=self.classes if units is None else None,
            tokens=self.words is not None,
            task=None if units is None else "regression",
        )
        return replace(
            federation,
            vocabulary=None if self.words is None else ("",) * self.words,
            target_units=None if units is None else (units.center, units.scale),
        )


class TargetUnits(BaseModel):
    """The mean and standard deviation of regression targets, as ``run.json`` records them."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    center: float
    scale: Annotated[float, Field(gt=0)]


@dataclass(frozen=True, eq=False)
class Predictor:
    """Predicts the class of raw samples, or their number, with the global model of a run.

    If the run's features were prepared, samples are raw rows: a CSV or Parquet file, a DataFrame,
    a list of dicts, one dict, or a list of texts. Otherwise they are arrays like the ones that the
    network was trained on.
    """

    module: nn.Module
    inputs: InputFormat
    preprocessing: Preprocessing | None = None
    class_names: tuple[str, ...] | None = None
    client_names: tuple[str, ...] | None = None

    def predict(self, rows: Rows, client: str | int | None = None) -> NDArray[Any]:
        """Return the most probable class of each row: its name, or its number if it has none.

        For a regression, return the predicted number of each row, in units of the target.
        ``client`` is needed if every client scales its numbers by itself (``prepare=local``).
        """
        network = FunctionalModel(self.module)
        if network.goal.predicts == "values":
            values = network.goal.predictions(self._outputs(network, rows, client))
            return np.asarray(values.numpy(), np.float64)
        best = self.predict_proba(rows, client).argmax(1)
        return np.asarray(best if self.class_names is None else np.array(self.class_names)[best])

    def predict_proba(self, rows: Rows, client: str | int | None = None) -> NDArray[np.float64]:
        """Return the probability of each class: one row per sample."""
        network = FunctionalModel(self.module)
        if network.goal is not CLASSIFY:
            raise UnskewError(f"predictor: {type(self.module).__name__} has no classes to predict")
        scores = self._outputs(network, rows, client)[:, : self.inputs.classes].double()
        probabilities: Tensor = torch.softmax(scores, dim=-1)
        return np.asarray(probabilities.numpy(), np.float64)

    def _outputs(self, network: FunctionalModel, rows: Rows, client: str | int | None) -> Tensor:
        x = self.features(rows, client)
        self.module.eval()
        with torch.no_grad():
            parts = [
                self.module(network.inputs(to_tensor(x[first : first + _BATCH])))
                for first in range(0, len(x), _BATCH)
            ]
        return torch.cat(parts)

    def features(self, rows: Rows, client: str | int | None = None) -> NDArray[Any]:
        """Return what the network receives for raw samples."""
        if self.preprocessing is None:
            x = checks.features(rows, "rows", tokens=self.inputs.words is not None)
        else:
            transform = self.preprocessing.transform
            if parse_prepare(self.preprocessing.spec).mode == "local":
                transform = self.preprocessing.of_client(self._client_number(client))
            x = transform.apply(_raw_columns(rows, transform.names))
        if x.shape[1:] != tuple(self.inputs.shape):
            raise UnskewError(
                f"rows: samples must have the shape {tuple(self.inputs.shape)} (got {x.shape[1:]})"
            )
        return x.astype(self.inputs.dtype, copy=False)

    def _client_number(self, client: str | int | None) -> int:
        assert self.preprocessing is not None
        count = len(self.preprocessing.own)
        if not count:
            raise UnskewError("predictor: every node scales its numbers by itself (prepare=local)")
        names = self.client_names or tuple(map(str, range(count)))
        if client is None:
            raise UnskewError(
                "client: every client scales its numbers by itself (prepare=local); name the one "
                f"that the rows belong to, such as {names[0]!r}"
            )
        if str(client) in names:
            return names.index(str(client))
        raise UnskewError(f"client: {client!r} is not one of the run's clients")


def predictor_of(run: Run) -> Predictor:
    """Return the predictor of a run; its model is read from its folder if it is not in memory."""
    if "inputs" not in run.metadata:
        raise UnskewError("predictor: the run does not record its inputs; run it again")
    inputs = validated(InputFormat, run.metadata["inputs"], "run.json: inputs: ")
    prepared, data = run.metadata.get("preprocessing"), run.metadata.get("data", {})
    names, clients = data.get("class_names"), data.get("client_names")
    return Predictor(
        module=_module_in_folder(run, inputs) if run.model is None else run.model,
        inputs=inputs,
        preprocessing=None if prepared is None else Preprocessing.from_json(prepared),
        class_names=None if names is None else tuple(names),
        client_names=None if clients is None else tuple(clients),
    )


def _module_in_folder(run: Run, inputs: InputFormat) -> nn.Module:
    """Build a run's network and load the weights of its last checkpoint."""
    if run.folder is None:
        raise UnskewError("predictor: the run has neither a model nor a folder")
    if run.metadata.get("custom_network") or names_files(run.method):
        raise UnskewError(
            f"predictor: {run.folder} was trained with your network or method, whose code is not "
            "in the folder; use the predictor of the run that us.train returned"
        )
    found = Checkpoints(run.folder / CHECKPOINTS).load()
    method = make_method(run.method)
    stages = method.stages()
    server = None if found is None or found[0].stage < len(stages) - 1 else found[0].server
    if server is None:
        raise UnskewError(f"{run.folder}: its task has no checkpoint yet; resume the run first")
    target = run.metadata.get("target")
    units = None if target is None else validated(TargetUnits, target, "run.json: target: ")
    example = inputs.example(units)
    loss = run.metadata.get("configuration", {}).get("loss")
    _, module = make_module(example, run.network, run.seed, loss)
    context = client_context(
        stages[-1], module, example, Settings(seed=run.seed), torch.device("cpu"), last=True
    )
    network = context.network
    _check_size(server, network.layout.size, run)
    assign(network.module, network.layout, context.method.model(server))
    return network.module.eval()


def _check_size(server: Server, size: int, run: Run) -> None:
    if len(server.vector) != size:
        raise UnskewError(
            f"{run.folder}: its checkpoint has {len(server.vector)} numbers, and {run.network} has "
            f"{size}; it was written by another version"
        )


def _raw_columns(rows: Rows, names: list[str]) -> Mapping[str, Column]:
    """Return the raw columns of rows; texts are the column of a preprocessing that has one."""
    texts = [rows] if isinstance(rows, str) and not _is_file(rows) else rows
    if len(names) == 1 and not isinstance(rows, Mapping) and checks.are_texts(texts):
        return {names[0]: Column.of(np.asarray(texts, object), names[0])}
    return RawTable.of(rows, "rows").cells(names)


def _is_file(text: str) -> bool:
    return text.endswith((".csv", ".parquet", ".pq"))
