"""Cache keys of preparatory stages: runs with the same key can share a finished stage."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from unskew.composition.values import Stage, Tensors
from unskew.engine.settings import Settings
from unskew.engine.stage import settings_of
from unskew.utils.reprs import shows_address

_IDENTITY = ("network", "layout", "start", "data", "arithmetic")


def stage_keys(
    identity: Mapping[str, Any],
    versions: Mapping[str, str],
    initial_state: Tensors,
    settings: Settings,
    stages: Sequence[Stage],
) -> list[str]:
    """Return a key for each stage before the task, up to the first whose repr is incomplete.

    ``identity`` is the run's, and ``initial_state`` that of the server. Of the task's method and
    settings, a key contains only what the stages use.
    """
    hashes = {
        name: hashlib.sha256(initial_state[name].numpy().tobytes()).hexdigest()
        for name in initial_state
    }
    inputs: list[Any] = [{name: identity[name] for name in _IDENTITY}, dict(versions), hashes]
    inputs += [settings.seed, settings.attack]
    keys = []
    for stage in stages[:-1]:
        if not _has_complete_repr(stage):
            break
        stage_settings = settings_of(stage, settings)
        rounds = stage.rounds or stage_settings.rounds
        inputs += [repr(stage), rounds, stage_settings.runner, stage_settings.training_identity()]
        keys.append(hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:24])
    return keys


def _has_complete_repr(stage: Stage) -> bool:
    """Return whether a stage uses only this package's classes, whose reprs show every option."""
    parts = (*stage.method.parts, stage.network)
    built_in = all(
        type(part).__module__.startswith("unskew.") for part in parts if part is not None
    )
    return built_in and not shows_address(repr(stage))
