"""What the end of a stage depends on, as a key: runs with the same key may share it."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from unskew.engine.settings import Settings
from unskew.engine.stage import settings_of
from unskew.methods.base import Stage, Tensors

_OF_THE_RUN = ("network", "layout", "start", "data", "arithmetic")
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
    begun: list[Any] = [{name: identity[name] for name in _OF_THE_RUN}, dict(versions), holds]
    keys = []
    for stage in stages[:-1]:
        name, own = repr(stage), settings_of(stage, settings)
        if _ADDRESS in name:
            break
        begun += [name, stage.rounds or own.rounds, own.runner, own.training_identity()]
        keys.append(hashlib.sha256(json.dumps(begun).encode()).hexdigest()[:24])
    return keys
