"""The final models of a run as a predictor of raw rows, in memory or from the run's folder."""

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from unskew.data import checks
from unskew.data.federation import Federation
from unskew.data.preprocessing.cells import Column
from unskew.data.preprocessing.fitted import Preprocessing
from unskew.data.preprocessing.spec import parse_prepare
from unskew.data.preprocessing.transform import Transform
from unskew.data.read_tables import RawTable
from unskew.engine.personal import ClientModels
from unskew.engine.placement import to_tensor
from unskew.errors import UnskewError, UnskewWarning
from unskew.models.functional import FunctionalModel
from unskew.models.goals import CLASSIFY
from unskew.models.layout import assign
from unskew.utils.wording import joined

Rows = Any
"""Raw rows (a file, a DataFrame, dicts or texts), or arrays if nothing was prepared."""

_BATCH = 1024
_MAX_NAMES = 10
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
    """Predicts the class of raw samples, or their number, with the models of a run.

    ``client`` names the client whose model predicts. Without it, the global model does; a method
    that trains none, such as ``local``, needs a client.

    If the run's features were prepared, samples are raw rows: a CSV or Parquet file, a DataFrame,
    a list of dicts, one dict, or a list of texts. Otherwise they are arrays like the ones that the
    network was trained on.
    """

    module: nn.Module
    """The global model."""
    inputs: InputFormat
    preprocessing: Preprocessing | None = None
    class_names: tuple[str, ...] | None = None
    client_names: tuple[str, ...] | None = None
    clients: int = 0
    method: str = ""
    models: ClientModels | None = None
    """The models that clients use; None if only the global one is known."""

    @property
    def predicts_values(self) -> bool:
        """Whether numbers are predicted, not classes."""
        return FunctionalModel(self.module).goal.predicts == "values"

    def predict(self, rows: Rows, client: str | int | None = None) -> NDArray[Any]:
        """Return the most probable class of each row: its name, or its number if it has none.

        For a regression, return the predicted number of each row, in units of the target.
        ``client`` is also needed if every client scales its numbers by itself (``prepare=local``).
        """
        network = FunctionalModel(self.module)
        if self.predicts_values:
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
        module = self.module_of(client).eval()
        with torch.no_grad():
            parts = [
                module(network.inputs(to_tensor(x[first : first + _BATCH])))
                for first in range(0, len(x), _BATCH)
            ]
        return torch.cat(parts)

    def module_of(self, client: str | int | None) -> nn.Module:
        """Return the model that a client uses; without a client, the global model if it is trained.

        The model of a client is a copy.
        """
        models = self.models
        if client is None:
            if models is not None and models.are_personal:
                self._use_of_global_model(models)
            return self.module
        number = self._client_number(client)
        module = copy.deepcopy(self.module)
        if models is not None and models.are_personal:
            if models.vector_of is None:
                raise UnskewError(f"client: {self.method} has personal models, but {models.where}")
            self._check_took_part(models, number)
            assign(module, FunctionalModel(module).layout, models.vector_of(number))
        return module.eval()

    def _use_of_global_model(self, models: ClientModels) -> None:
        """Warn that the global model predicts; raise if the method trains none."""
        if not models.has_global:
            advice = f"name the client whose personal model predicts: {self._names()}"
            if models.vector_of is None:
                advice = f"clients have personal ones, but {models.where}"
            raise UnskewError(f"client: {self.method} trains no global model; {advice}")
        advice = f"to use one, set client to {self._names()}"
        if models.vector_of is None:
            advice = models.where
        warnings.warn(
            f"predictor: the global model of {self.method} predicts, and clients have personal "
            f"ones; {advice}",
            UnskewWarning,
            stacklevel=2,
        )

    def _check_took_part(self, models: ClientModels, number: int) -> None:
        if models.has_trained is None or models.has_trained(number):
            return
        name = self._name(number)
        if not models.has_global:
            raise UnskewError(
                f"client: {name!r} never took part in the training, and {self.method} trains no "
                "model for others; name another client, or train more rounds"
            )
        warnings.warn(
            f"predictor: {name!r} never took part in the training, so the global model predicts",
            UnskewWarning,
            stacklevel=2,
        )

    def features(self, rows: Rows, client: str | int | None = None) -> NDArray[Any]:
        """Return what the network receives for raw samples."""
        if self.preprocessing is None:
            x = checks.features(rows, "rows", tokens=self.inputs.words is not None)
        else:
            transform = self.preprocessing.transform
            if parse_prepare(self.preprocessing.spec).mode == "local":
                transform = self._scaled_by(client, self.preprocessing)
            x = transform.apply(_raw_columns(rows, transform.names))
        if x.shape[1:] != tuple(self.inputs.shape):
            raise UnskewError(
                f"rows: samples must have the shape {tuple(self.inputs.shape)} (got {x.shape[1:]})"
            )
        return x.astype(self.inputs.dtype, copy=False)

    def _scaled_by(self, client: str | int | None, preprocessing: Preprocessing) -> Transform:
        """Return the transformation of a client that scales its numbers by itself."""
        if not preprocessing.own:
            raise UnskewError(
                "predictor: every node scales its numbers by itself (prepare=local); there, unskew "
                "flower predict does it"
            )
        if client is None:
            raise UnskewError(
                "client: every client scales its numbers by itself (prepare=local); name the one "
                f"that the rows belong to: {self._names()}"
            )
        return preprocessing.of_client(self._client_number(client))

    def _client_number(self, client: str | int) -> int:
        names = self.client_names
        if names is not None and str(client) in names:
            return names.index(str(client))
        if names is None and str(client).isdecimal() and int(client) < self.clients:
            return int(client)
        raise UnskewError(
            f"client: {client!r} is not one of the run's clients; use {self._names()}"
        )

    def _name(self, number: int) -> str:
        return str(number) if self.client_names is None else self.client_names[number]

    def _names(self) -> str:
        """Return the names of the clients, or the first ones of many."""
        if self.client_names is None:
            return f"a number from 0 to {self.clients - 1}"
        first = [repr(name) for name in self.client_names[:_MAX_NAMES]]
        more = self.clients - len(first)
        return joined([*first, f"{more} others"] if more else first, "or")


def _raw_columns(rows: Rows, names: list[str]) -> Mapping[str, Column]:
    """Return the raw columns of rows; texts are the column of a preprocessing that has one."""
    texts = [rows] if isinstance(rows, str) and not _is_file(rows) else rows
    if len(names) == 1 and not isinstance(rows, Mapping) and checks.are_texts(texts):
        return {names[0]: Column.of(np.asarray(texts, object), names[0])}
    return RawTable.of(rows, "rows").cells(names)


def _is_file(text: str) -> bool:
    return text.endswith((".csv", ".parquet", ".pq"))
