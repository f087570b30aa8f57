"""The predictor of a run: from its models in memory, or from its folder."""

import torch
from torch import nn

from unskew.composition.values import Server
from unskew.data.federation import Federation
from unskew.data.preprocessing.fitted import Preprocessing
from unskew.engine.client import ClientContext
from unskew.engine.model_factory import make_module
from unskew.engine.personal import ON_NODES, ClientModels
from unskew.engine.predictor import InputFormat, Predictor, TargetUnits
from unskew.engine.settings import Settings
from unskew.engine.stage import client_context
from unskew.errors import UnskewError
from unskew.methods import make_method, names_files
from unskew.models.functional import Model
from unskew.models.layout import assign
from unskew.runs.checkpoint import Checkpoints
from unskew.runs.file_names import CHECKPOINTS, NODES
from unskew.runs.run import Run
from unskew.utils.specs import validated


def predictor_of(run: Run) -> Predictor:
    """Return the predictor of a run; its models are read from its folder if not in memory."""
    if "inputs" not in run.metadata:
        raise UnskewError("predictor: the run does not record its inputs; run it again")
    inputs = validated(InputFormat, run.metadata["inputs"], "run.json: inputs: ")
    prepared, data = run.metadata.get("preprocessing"), run.metadata.get("data", {})
    names, clients = data.get("class_names"), data.get("client_names")
    module, models = run.model, run.client_models
    lacks_models = models is not None and models.are_personal and models.vector_of is None
    if module is None or (lacks_models and run.folder is not None and not _is_custom(run)):
        loaded, models = _models_in_folder(run, inputs)
        module = loaded if module is None else module
    return Predictor(
        module=module,
        inputs=inputs,
        preprocessing=None if prepared is None else Preprocessing.from_json(prepared),
        class_names=None if names is None else tuple(names),
        client_names=None if clients is None else tuple(clients),
        clients=run.clients,
        method=run.method,
        models=models,
    )


def _is_custom(run: Run) -> bool:
    """Return whether a run's network or method is user-defined."""
    return bool(run.metadata.get("custom_network")) or names_files(run.method)


def _models_in_folder(run: Run, inputs: InputFormat) -> tuple[nn.Module, ClientModels]:
    """Build a run's network with the global weights of its last checkpoint; also those of clients.

    The checkpoint of a run on Flower nodes has no client's model.
    """
    if run.folder is None:
        raise UnskewError("predictor: the run has neither a model nor a folder")
    if _is_custom(run):
        raise UnskewError(
            f"predictor: {run.folder} was trained with your network or method, whose code is not "
            "in the folder; use the predictor of the run that us.train returned"
        )
    found = Checkpoints(run.folder / CHECKPOINTS).load()
    method = make_method(run.method)
    last_stage = len(method.stages()) - 1
    position = None if found is None or found[0].stage < last_stage else found[0]
    if position is None or position.server is None:
        raise UnskewError(f"{run.folder}: its task has no checkpoint yet; resume the run first")
    target = run.metadata.get("target")
    units = None if target is None else validated(TargetUnits, target, "run.json: target: ")
    loss = run.metadata.get("configuration", {}).get("loss")
    context = rebuilt(run.method, run.network, inputs.example(units), run.seed, loss)
    network = context.network
    _check_size(position.server, network.layout.size, run)
    assign(network.module, network.layout, context.method.model(position.server))
    models = ClientModels.of(context.method, network.layout, position)
    if (run.folder / NODES).is_file():
        models = models.elsewhere(ON_NODES)
    elif method.fine_tuning() is not None and not position.tuned:
        models = models.elsewhere("they are fine-tuned when a run ends; resume it first")
    return network.module.eval(), models


def rebuilt(
    method: str, network: Model | None, example: Federation, seed: int, loss: str | None
) -> ClientContext:
    """Build the network of a method's task, as the method adapts it; its weights are initial."""
    _, module = make_module(example, network, seed, loss)
    stage, settings = make_method(method).stages()[-1], Settings(seed=seed)
    return client_context(stage, module, example, settings, torch.device("cpu"), last=True)


def _check_size(server: Server, size: int, run: Run) -> None:
    if len(server.vector) != size:
        raise UnskewError(
            f"{run.folder}: its checkpoint has {len(server.vector)} numbers, and {run.network} has "
            f"{size}; it was written by another version"
        )
