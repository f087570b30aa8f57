"""What every hook must return: type, shape and values, in one table.

Each check receives what a hook returned, and then the arguments that it was called with.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting
from unskew.composition.upload_values import Value
from unskew.composition.values import (
    Beginning,
    Client,
    ExtraTraining,
    Finished,
    Perturbation,
    Server,
    Stage,
    Start,
    Step,
    Tensors,
    Trained,
)
from unskew.models.layout import Layout
from unskew.utils.unwrapped import unwrapped


class WrongReturn(TypeError):
    """A hook returned something else than it must; the text continues the name of the hook."""


def check_weights(returned: Any, uploads: Uploads) -> None:
    """Check the raw weights, and what they are derived from, that a weighting returned."""
    weights, _ = _pair(returned, "weights", "a dict of diagnostics")
    if not isinstance(weights, Tensor):
        raise WrongReturn(f"returned weights as {_kind(weights)}, and must return a tensor")
    if weights.shape != (len(uploads),):
        if weights.dim() == 1:
            raise WrongReturn(f"returned {len(weights)} weights for {len(uploads)} clients")
        shape = tuple(weights.shape)
        raise WrongReturn(f"returned weights of shape {shape} for {len(uploads)} clients")
    usable = torch.isfinite(weights) & (weights >= 0)
    if not bool(usable.all()) or not bool(weights.any()):
        raise WrongReturn(
            "returned weights that are not finite, non-negative and not all zero: "
            f"{weights.tolist()}"
        )


def check_receives(returned: Any) -> None:
    """Check what a part declares of the extras that clients send for it."""
    if not isinstance(returned, Mapping):
        raise WrongReturn(f"returned {_kind(returned)}, and must return a mapping of Value")
    for name, value in returned.items():
        if not isinstance(value, Value):
            raise WrongReturn(f"returned {_kind(value)} for {name!r}, which must be a Value")


def _check_begin(returned: Any, beginning: Beginning) -> None:
    del beginning
    _tensors(returned, "state")


def _check_broadcast(returned: Any, server: Server, client: int) -> None:
    del server, client
    _tensors(returned, "payload")


def _check_receive(returned: Any, server: Server, uploads: Uploads) -> None:
    del server, uploads
    if returned is not None:
        _tensors(returned, "state")


def _check_client_weights(returned: Any, server: Server) -> None:
    del server
    _instance(ClientWeighting, returned)


def _check_combine(returned: Any, server: Server, uploads: Uploads, mean: object) -> None:
    del uploads, mean
    vector, diagnostics = _pair(returned, "a vector", "a dict of diagnostics")
    _vector("the combined vector", vector, server.vector)
    _instance(Mapping, diagnostics)


def _check_step(returned: Any, server: Server, vector: Tensor, uploads: Uploads) -> None:
    del vector, uploads
    _server(returned, server)


def _check_conclude(
    returned: Any, before: Server, after: Server, uploads: Uploads, diagnostics: object
) -> None:
    del before, uploads, diagnostics
    server, added = _pair(returned, "a Server", "a dict of diagnostics")
    _server(server, after)
    _instance(dict, added)


def _check_model(returned: Any, server: Server) -> None:
    _vector("the global model", returned, server.vector)


def _check_prepare(
    returned: Any, client: Client, start: Start, payload: Tensors, state: Tensors
) -> None:
    del payload, state
    _instance(Start, returned)
    _vector("the vector to start from", returned.vector, start.vector)
    _tensors(returned.refs, "refs")
    weights = returned.sample_weights
    if weights is not None:
        _tensor(weights, "sample_weights")
        if weights.shape != client.y.shape:
            found = f"returned sample_weights of shape {tuple(weights.shape)}"
            raise WrongReturn(f"{found} for {len(client.y)} samples")


def _check_loss_term(returned: Any, step: Step, refs: Tensors) -> None:
    del step, refs
    if returned is None:
        return
    if isinstance(returned, int | float):
        if isinstance(returned, bool) or returned:
            raise WrongReturn(
                f"returned {_kind(returned)} {returned}, which does not depend on the weights; "
                "return a tensor computed from them without item(), or None for no term"
            )
        return
    _tensor(returned, "a term of the loss")
    if returned.dim():
        raise WrongReturn(
            f"returned a tensor of shape {tuple(returned.shape)}, and a term of the loss is one "
            "number, for example its mean()"
        )


def _check_losses(returned: Any, step: Step, refs: Tensors) -> None:
    del refs
    _tensor(returned, "the losses")
    expected = tuple(step.batch.scale.shape)
    if returned.shape != expected:
        raise WrongReturn(
            f"returned losses of shape {tuple(returned.shape)}, and must return one per sample of "
            f"the batch, {expected}"
        )
    if unwrapped(step.weights).requires_grad and not unwrapped(returned).requires_grad:
        raise WrongReturn(
            "returned losses that do not depend on the weights; without detach(), item() and "
            "torch.no_grad() they do"
        )


def _check_perturbation(returned: Any, step: Step, refs: Tensors) -> None:
    del refs
    _instance(Perturbation, returned)
    for name in ("shift", "rest"):
        value = getattr(returned, name)
        if value is not None or name == "shift":
            _tensor(value, name)
            _shape(name, value, step.weights)


def _check_next_refs(returned: Any, step: Step, refs: Tensors) -> None:
    del step
    _tensors(returned, "refs")
    for name, value in returned.items():
        if name in refs:
            _shape(name, value, refs[name])


def _check_finish(
    returned: Any, client: Client, start: Start, trained: Trained, state: Tensors
) -> None:
    del client, start, trained, state
    _instance(Finished, returned)
    _tensors(returned.extras, "extras")
    _tensors(returned.state, "state")


def _check_extra_trainings(returned: Any, method: object) -> None:
    del method
    _all(ExtraTraining, returned)


def _check_number(returned: Any) -> None:
    _instance((int, float), returned, "a number")


def _check_mask(returned: Any, layout: Layout) -> None:
    if returned is None:
        return
    _tensor(returned, "a mask")
    if returned.shape != (layout.size,) or returned.dtype != torch.bool:
        found = f"{returned.dtype} of shape {tuple(returned.shape)}"
        raise WrongReturn(
            f"returned {found}, and must return torch.bool of shape ({layout.size},), one per "
            "coordinate of the model"
        )


def _check_personal(returned: Any, model: Tensor, state: Tensors) -> None:
    del state
    _vector("the personal model", returned, model)


def _check_fine_tuning(returned: Any) -> None:
    _instance(ExtraTraining, returned)


def _check_adapt(returned: Any, module: nn.Module, example: Tensor) -> None:
    del module, example
    _instance(nn.Module, returned)


def _check_federation(returned: Any, federation: object) -> None:
    _instance(type(federation), returned)


def _check_shared_samples(returned: Any, federation: object, seed: int) -> None:
    del seed
    shared, held = _pair(returned, "a Federation", "a mapping of tensors")
    _instance(type(federation), shared)
    _tensors(held, "samples")


def _check_candidates(returned: Any, clients: int, round_: int, seed: int) -> None:
    del round_, seed
    ids = list(returned) if isinstance(returned, Iterable) else []
    numbers = bool(ids) and all(isinstance(each, Integral) for each in ids)
    ascending = numbers and all(a < b for a, b in pairwise(ids))
    if not ascending or ids[0] < 0 or ids[-1] >= clients:
        raise WrongReturn(
            f"returned {returned!r}, and must return at least one of the clients 0 to "
            f"{clients - 1}, in ascending order"
        )


def _check_stages(returned: Any, stages: object) -> None:
    del stages
    _all(Stage, returned)
    if not returned:
        raise WrongReturn("returned no stage")


def _check_is_done(returned: Any, server: Server) -> None:
    del server
    _instance((bool, Tensor), returned, "True or False")


def _unchecked(returned: Any, *args: Any) -> None:
    del returned, args


CHECKS: Mapping[str, Callable[..., None]] = {
    "prepare": _check_prepare,
    "loss_term": _check_loss_term,
    "losses": _check_losses,
    "perturbation": _check_perturbation,
    "next_refs": _check_next_refs,
    "proximal_strength": _check_number,
    "finish": _check_finish,
    "extra_trainings": _check_extra_trainings,
    "begin": _check_begin,
    "broadcast": _check_broadcast,
    "receive": _check_receive,
    "client_weights": _check_client_weights,
    "combine": _check_combine,
    "step": _check_step,
    "conclude": _check_conclude,
    "model": _check_model,
    "stays": _check_mask,
    "constant": _check_mask,
    "shares_on_upload": _check_mask,
    "freezes": _check_mask,
    "personal": _check_personal,
    "fine_tuning": _check_fine_tuning,
    "adapt": _check_adapt,
    "transform_federation": _check_federation,
    "shared_samples": _check_shared_samples,
    "candidates": _check_candidates,
    "stages": _check_stages,
    "is_done": _check_is_done,
    "check": _unchecked,
}
"""The check of every hook."""


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__


def _instance(kind: type | tuple[type, ...], value: Any, name: str | None = None) -> None:
    if not isinstance(value, kind):
        expected = name or (kind.__name__ if isinstance(kind, type) else "")
        article = "" if name else "an " if expected[0] in "AEIOU" else "a "
        raise WrongReturn(f"returned {_kind(value)}, and must return {article}{expected}")


def _all(kind: type, values: Any) -> None:
    if not isinstance(values, tuple | list) or not all(isinstance(each, kind) for each in values):
        raise WrongReturn(f"returned {_kind(values)}, and must return a tuple of {kind.__name__}")


def _pair(returned: Any, first: str, second: str) -> tuple[Any, Any]:
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise WrongReturn(f"returned {_kind(returned)}, and must return {first} and {second}")
    return returned


def _tensor(value: Any, what: str) -> None:
    if not isinstance(value, Tensor):
        raise WrongReturn(f"returned {_kind(value)} as {what}, and must return a tensor")


def _tensors(values: Any, name: str) -> None:
    if not isinstance(values, Mapping):
        raise WrongReturn(f"returned {_kind(values)}, and must return a mapping of tensors")
    for key, value in values.items():
        if not isinstance(value, Tensor):
            raise WrongReturn(f"returned {_kind(value)} as {name}[{key!r}], which must be a tensor")


def _shape(name: str, value: Tensor, like: Tensor) -> None:
    if value.shape != like.shape:
        shapes = f"{tuple(value.shape)}, and must have shape {tuple(like.shape)}"
        raise WrongReturn(f"returned {name} of shape {shapes}")


def _vector(name: str, value: Any, like: Tensor) -> None:
    expected = f"it must be a {like.dtype} tensor of {tuple(like.shape)}, like the model"
    if not isinstance(value, Tensor):
        raise WrongReturn(f"returned {_kind(value)} as {name}; {expected}")
    if value.shape != like.shape or value.dtype != like.dtype:
        found = f"{value.dtype} of {tuple(value.shape)}"
        raise WrongReturn(f"returned {found} as {name}; {expected}")


def _server(value: Any, like: Server) -> None:
    _instance(Server, value)
    _vector("the new vector", value.vector, like.vector)
    _tensors(value.state, "state")
