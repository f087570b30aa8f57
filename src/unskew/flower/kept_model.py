"""The final model of a node in its state folder, and predictions by it without the server.

The file holds the weights and, as metadata, what rebuilds the network and prepares raw rows. It
says as much about the node's samples as the state beside it, and stays on the node too.
"""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from unskew.composition.values import Tensors
from unskew.data.federation import Federation
from unskew.data.preprocessing.fitted import Preprocessing
from unskew.engine.model_factory import is_custom, make_module
from unskew.engine.predictor import InputFormat, Predictor, TargetUnits
from unskew.engine.run_predictor import rebuilt
from unskew.engine.setup import input_metadata
from unskew.errors import UnskewError
from unskew.flower.node_files import NodeFiles, default_state
from unskew.flower.requests import Request
from unskew.methods import names_files
from unskew.models.functional import Model
from unskew.runs.atomic import write_bytes
from unskew.runs.state_files import contiguous_copy
from unskew.utils.specs import explain
from unskew.utils.tables import Table
from unskew.utils.wording import plural

_FOLDER, _FILE, _METADATA = "model", "model.safetensors", "unskew"


class KeptModel(BaseModel):
    """What a model's file says about it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: str
    node: str
    method: str
    network: str
    custom_network: bool
    """Whether the network is user-defined, so that only its weights are in the file."""
    seed: Annotated[int, Field(ge=0)]
    round: int
    loss: str | None
    inputs: InputFormat
    target: TargetUnits | None
    class_names: list[str] | None
    preprocessing: Any = None

    def __str__(self) -> str:
        return f"{self.method} on {self.node}, {plural(self.round, 'round')}, run {self.run}"

    @staticmethod
    def of(
        node: str,
        request: Request,
        federation: Federation,
        model: Model | None,
        preprocessing: Preprocessing | None,
    ) -> "KeptModel":
        """Describe the model that a node uses at the end of a run."""
        names, settings = federation.class_names, request.settings
        network, _ = make_module(federation, model, settings.seed, settings.loss)
        return KeptModel(
            run=request.run,
            node=node,
            method=request.method,
            network=network,
            custom_network=is_custom(model),
            seed=settings.seed,
            round=request.round,
            loss=settings.loss,
            inputs=InputFormat(**input_metadata(federation)["inputs"]),
            target=(
                None
                if request.target is None
                else TargetUnits(center=request.target[0], scale=request.target[1])
            ),
            class_names=None if names is None else list(names),
            preprocessing=None if preprocessing is None else preprocessing.to_json(),
        )


def keep_model(state: Path, kept: KeptModel, tensors: Tensors) -> None:
    """Write a node's model to its state folder."""
    files = NodeFiles(state, kept.run, kept.node, _FOLDER)
    metadata = {_METADATA: kept.model_dump_json()}
    copies = {name: contiguous_copy(tensor) for name, tensor in tensors.items()}
    files.write(_FILE, save(copies, metadata))


def node_predictor(
    state: str | Path | None = None,
    *,
    node: str | None = None,
    run: str | None = None,
    model: nn.Module | None = None,
) -> Predictor:
    """Return the predictor of the model that a node keeps in its folder ``state``.

    The default is the environment variable ``UNSKEW_STATE``, or ``~/.unskew/flower``.
    ``node`` is needed if several nodes share the folder. Of several runs, the last one that ended
    is used, unless ``run`` names one. A network of your own must be given as ``model``.
    """
    return predictor_of(*find_model(state, node, run), model)


def predictor_of(path: Path, kept: KeptModel, model: nn.Module | None = None) -> Predictor:
    """Return the predictor of a model in a file; ``model`` is a network of the user."""
    if names_files(kept.method) or (kept.custom_network and model is None):
        yours = "network" if kept.custom_network else "method"
        raise UnskewError(
            f"{path}: was trained with your {yours}, whose code is not in the file; give a network "
            "to unskew.flower.node_predictor as model, or read the weights by name with safetensors"
        )
    network = model if kept.custom_network else kept.network
    example = kept.inputs.example(kept.target)
    module = rebuilt(kept.method, network, example, kept.seed, kept.loss).network.module
    try:
        with safe_open(path, "pt") as file:
            module.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except (OSError, SafetensorError, RuntimeError):
        raise UnskewError(f"{path}: its weights do not fit {kept.network}") from None
    return Predictor(
        module=module.eval(),
        inputs=kept.inputs,
        preprocessing=(
            None if kept.preprocessing is None else Preprocessing.from_json(kept.preprocessing)
        ),
        class_names=None if kept.class_names is None else tuple(kept.class_names),
        client_names=(kept.node,),
        clients=1,
        method=kept.method,
    )


def predict_rows(predictor: Predictor, file: Path) -> list[dict[str, Any]]:
    """Return one row per row of a file: what is predicted, and the probabilities of classes."""
    rows = str(file) if predictor.preprocessing is not None else _array(file)
    predicted = predictor.predict(rows).tolist()
    if not predicted:
        raise UnskewError(f"{file}: has no rows")
    table = [{"row": number, "predicted": each} for number, each in enumerate(predicted, start=1)]
    if predictor.predicts_values:
        return table
    names = predictor.class_names or tuple(map(str, range(predictor.inputs.classes)))
    for row, shares in zip(table, predictor.predict_proba(rows).tolist(), strict=True):
        row |= {f"p({name})": round(p, 6) for name, p in zip(names, shares, strict=True)}
    return table


def write_rows(rows: list[dict[str, Any]], out: Path) -> None:
    """Write a table of predictions as CSV."""
    table = Table(list(rows[0]), [list(map(str, row.values())) for row in rows])
    try:
        write_bytes(out, table.to_csv().encode())
    except OSError as error:
        raise UnskewError(f"out: cannot write {out}: {error.strerror}") from None


def _array(file: Path) -> NDArray[Any]:
    """Read the samples of a model that was trained on arrays."""
    try:
        return np.asarray(np.load(file, allow_pickle=False))
    except (OSError, ValueError) as error:
        raise UnskewError(
            f"{file}: is not an .npy file, which this model needs: its nodes had arrays, not "
            f"tables ({error})"
        ) from None


def find_model(
    folder: str | Path | None, node: str | None, run: str | None
) -> tuple[Path, KeptModel]:
    """Return the file of the newest model of a node, and what it says."""
    state = default_state() if folder is None else Path(folder)
    paths = sorted(state.glob(f"*/*/{_FOLDER}/{_FILE}"), key=lambda path: path.stat().st_mtime)
    if not paths:
        raise UnskewError(
            f"{state}: holds no model; a node keeps it when a run ends with an evaluation "
            "(evaluate_every), in the folder state-dir of its config or $UNSKEW_STATE"
        )
    found = [(path, _read(path)) for path in reversed(paths)]
    nodes = sorted({kept.node for _, kept in found})
    if node is None and len(nodes) > 1:
        raise UnskewError(f"node: {state} has models of several; name one: {', '.join(nodes)}")
    if node is not None and node not in nodes:
        raise UnskewError(f"node: {node!r} has no model in {state}; these have: {', '.join(nodes)}")
    of_node = [each for each in found if node in (None, each[1].node)]
    runs = [kept.run for _, kept in of_node]
    if run is not None and run not in runs:
        raise UnskewError(f"run: {run!r} has no model in {state}; these have: {', '.join(runs)}")
    return next(each for each in of_node if run in (None, each[1].run))


def _read(path: Path) -> KeptModel:
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {})[_METADATA]
    except (OSError, SafetensorError, KeyError):
        raise UnskewError(f"{path}: is not the model of a node") from None
    try:
        return KeptModel.model_validate_json(text)
    except ValidationError as error:
        raise UnskewError(f"{path}: {explain(error, KeptModel)}") from None
