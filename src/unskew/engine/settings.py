"""The training settings of a run: validated once, used everywhere, stored with the run."""

import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from unskew.errors import UnskewError
from unskew.utils.specs import validated

Positive = Annotated[int, Field(ge=1)]


class Settings(BaseModel):
    """Everything about training except the data, the network and the method."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    rounds: Positive = 50
    participation: Annotated[float, Field(gt=0, le=1)] | None = None
    cohort: Positive | None = None
    epochs: Positive | None = None
    steps: Positive | None = None
    batch_size: Positive = 32
    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: Annotated[float, Field(gt=0)] = 0.05
    lr_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    evaluate_every: Annotated[int, Field(ge=0)] = 1
    quorum: Positive = 1
    max_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """The largest weight of a client in an average; the rest is divided among the others."""
    attack: str | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    engine: Literal["unskew", "flower-ray"] = "unskew"
    """What runs the clients: this library on this machine, or Flower's simulation on Ray."""
    client_cpus: Annotated[float, Field(gt=0)] = 1.0
    client_gpus: Annotated[float, Field(ge=0)] = 0.0
    """What Ray reserves for a client while it trains."""
    runner: Literal["auto", "vectorised", "pool", "loop"] = "auto"
    workers: Positive | None = None
    device: Literal["auto", "cpu", "cuda", "mps"] = "cpu"
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 10.0
    state_megabytes: Annotated[int, Field(ge=0)] = 1024
    """Memory for the states that clients keep between rounds; the rest is on disk."""

    @model_validator(mode="after")
    def _one_of_each_pair(self) -> "Settings":
        if self.participation is not None and self.cohort is not None:
            raise ValueError("give participation or cohort, not both")
        if self.epochs is not None and self.steps is not None:
            raise ValueError("give epochs or steps, not both")
        if self.optimizer == "adam" and self.momentum:
            raise ValueError("momentum belongs to sgd; adam has its own")
        return self

    @classmethod
    def validated(cls, values: Mapping[str, Any]) -> "Settings":
        """Build settings from keyword arguments; an error is one line that names each field."""
        return validated(cls, values, "settings: ")

    @classmethod
    def of(cls, settings: "Settings | None", options: Mapping[str, Any]) -> "Settings":
        """Return settings that are given as an object or as keyword arguments, not as both."""
        if settings is not None and options:
            raise UnskewError(f"settings: given as an object; remove {', '.join(options)}")
        return settings or cls.validated(options)

    def changed(self, changes: Mapping[str, Any]) -> "Settings":
        """Return these settings with changes; setting one of a pair resets the other."""
        values = self.model_dump()
        for pair in (("participation", "cohort"), ("epochs", "steps")):
            if set(pair) & set(changes):
                values |= dict.fromkeys(pair)
        return Settings(**{**values, **changes})

    def cohort_size(self, clients: int) -> int:
        """Return how many of ``clients`` take part in a round."""
        if self.cohort is not None:
            return min(self.cohort, clients)
        return max(1, round((self.participation or 1.0) * clients))

    def lr_in(self, round_: int) -> float:
        """Return the learning rate of a round, where the first round is 0."""
        return self.lr * self.lr_decay**round_

    @property
    def state_memory(self) -> int:
        """How many bytes of client states stay in memory."""
        return self.state_megabytes * 2**20

    @property
    def worker_count(self) -> int:
        """How many worker processes a pool may use."""
        return self.workers or os.cpu_count() or 1

    def training_identity(self) -> dict[str, object]:
        """Return the settings that decide a run's results, which a resumed run must share."""
        free = {"rounds", "workers", "checkpoint_seconds", "state_megabytes", "runner"}
        free |= {"engine", "client_cpus", "client_gpus"}
        return {k: v for k, v in self.model_dump().items() if k not in free}
