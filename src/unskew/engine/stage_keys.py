"""What the end of a stage depends on, as a key: runs with the same key may share it."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from unskew.engine.settings import Settings
from unskew.engine.stage import settings_of
from unskew.methods.common.base import Stage, Tensors

_IDENTITY = ("network", "layout", "start", "data", "arithmetic")
_ADDRESS = " at 0x"
"""In the name of a function or object that does not say what it does."""


def stage_keys(
    identity: Mapping[str, Any],
    versions: Mapping[str, str],
    held: Tensors,
    settings: Settings,
    stages: Sequence[Stage],
) -> list[str]:
    """Return a key for each stage before the task, up to one that cannot be told by its name.

    ``identity`` is the run's, ``held`` is what the server holds from the start. Of the task's own
    method and settings a key holds no more than the stages take of them.
    """
    holds = {name: hashlib.sha256(held[name].numpy().tobytes()).hexdigest() for name in held}
    shaped_by: list[Any] = [{name: identity[name] for name in _IDENTITY}, dict(versions), holds]
    shaped_by += [settings.seed, settings.attack]
    keys = []
    for stage in stages[:-1]:
        if not _says_what_it_does(stage):
            break
        own = settings_of(stage, settings)
        rounds = stage.rounds or own.rounds
        shaped_by += [repr(stage), rounds, own.runner, own.training_identity()]
        keys.append(hashlib.sha256(json.dumps(shaped_by).encode()).hexdigest()[:24])
    return keys


def _says_what_it_does(stage: Stage) -> bool:
    """Tell whether a stage is made of this package's parts, whose names hold all their options."""
    parts = (stage.method, stage.network)
    ours = all(type(part).__module__.startswith("unskew.") for part in parts if part is not None)
    return ours and _ADDRESS not in repr(stage)
