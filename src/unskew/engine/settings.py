"""The training settings of a run: validated once, used everywhere, stored with the run."""

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_serializer,
    field_validator,
    model_validator,
)

from unskew.errors import UnskewError
from unskew.utils.specs import raise_value_error, split_list, validated
from unskew.utils.wording import bytes_of

Positive = Annotated[int, Field(ge=1, le=1_000_000_000)]
LARGEST = 1e30
"""The largest number that float32 arithmetic takes as a factor."""


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
    lr: Annotated[float, Field(gt=0, le=LARGEST)] = 0.05
    lr_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Field(ge=0, le=LARGEST)] = 0.0
    clip: Annotated[float, Field(gt=0, le=LARGEST)] | None = None
    """The largest norm of the gradient of a client's step; longer ones are shortened to it."""
    evaluate_every: Annotated[int, Field(ge=0)] = 1
    loss: str | None = None
    """The loss of a regression: ``mse`` (the default), or ``huber:delta=1``."""
    metrics: Annotated[tuple[Any, ...], Field(max_length=1000)] = ()
    """Metrics of all predictions, besides accuracy and loss: names such as ``auc``, or functions of
    targets and scores."""
    metric: Any = None
    """The metric by which runs are tuned and judged; by default the accuracy or, of a regression,
    the first of its metrics."""
    quorum: Positive = 1
    """The smallest number of usable uploads in a round; on Flower half of the nodes by default."""
    max_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """The largest weight of a client in an average; the rest is divided among the others."""
    attack: str | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    engine: Literal["unskew", "flower-ray"] = "unskew"
    """What runs the clients: this library on this machine, or Flower's simulation on Ray."""
    client_cpus: Annotated[float, Field(gt=0)] = 1.0
    client_gpus: Annotated[float, Field(ge=0)] = 0.0
    """What Ray reserves for a client while it trains."""
    runner: Literal["auto", "vectorised", "processes", "loop"] = "auto"
    workers: Positive | None = None
    device: str = "auto"
    """``cpu``, ``cuda``, ``cuda:1``, ``mps``, or ``auto`` for the best that is available."""
    precision: Literal["float32", "bf16", "auto"] = "float32"
    """The type that layers compute in during training; ``auto`` is bf16 where it is faster."""
    memory: str | None = None
    """The memory for clients that are trained as one matrix, such as ``8GiB``; by default half of
    an accelerator's free memory, or a few hundred megabytes of the CPU's."""
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 10.0
    state_megabytes: Annotated[int, Field(ge=0)] = 1024
    """Memory for the states that clients keep between rounds; the rest is on disk."""

    @field_validator("loss")
    @classmethod
    def _loss_is_known(cls, loss: str | None) -> str | None:
        from unskew.models.regression import make_loss  # noqa: PLC0415 (imports torch)

        if loss is not None:
            raise_value_error(make_loss, loss)
        return loss

    @field_validator("device")
    @classmethod
    def _device_is_known(cls, device: str) -> str:
        if re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", device) is None:
            raise ValueError("must be 'auto', 'cpu', 'cuda', 'cuda:1' (or another number) or 'mps'")
        return device

    @field_validator("memory")
    @classmethod
    def _memory_is_an_amount(cls, memory: str | None) -> str | None:
        if memory is not None:
            bytes_of(memory)
        return memory

    @field_validator("metrics", mode="before")
    @classmethod
    def _metrics_are_a_list(cls, metrics: object) -> object:
        if isinstance(metrics, str):
            return tuple(split_list(metrics))
        return tuple(metrics) if isinstance(metrics, list) else metrics

    @field_validator("metrics", "metric")
    @classmethod
    def _metrics_are_named_or_callable(cls, value: Any) -> Any:
        for each in value if isinstance(value, tuple) else (value,):
            if each is not None and not isinstance(each, str) and metric_name(each) is None:
                raise ValueError(f"{each!r} is neither the name of a metric nor a function")
        return value

    @field_serializer("metrics")
    def _names_of_metrics(self, metrics: tuple[Any, ...]) -> list[str]:
        return [str(metric_name(each)) for each in metrics]

    @field_serializer("metric")
    def _name_of_metric(self, metric: Any) -> str | None:
        return metric_name(metric)

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
        values = {**self.model_dump(), "metrics": self.metrics, "metric": self.metric}
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
    def memory_bytes(self) -> int | None:
        """The memory for clients that are trained as one matrix, if it is named."""
        return None if self.memory is None else bytes_of(self.memory)

    @property
    def state_memory(self) -> int:
        """How many bytes of client states stay in memory."""
        return self.state_megabytes * 2**20

    @property
    def worker_count(self) -> int:
        """How many worker processes the runner ``processes`` may use."""
        return self.workers or os.cpu_count() or 1

    def training_identity(self) -> dict[str, object]:
        """Return the settings that decide a run's results, which a resumed run must share."""
        free = {"rounds", "workers", "checkpoint_seconds", "state_megabytes", "runner"}
        free |= {"engine", "client_cpus", "client_gpus", "metric"}
        free |= {name for name in ("metrics", "loss", "clip", "memory") if not getattr(self, name)}
        free |= {"precision"} if self.precision == "float32" else set()
        return {k: v for k, v in self.model_dump().items() if k not in free}


def metric_name(metric: Any) -> str | None:
    """Return the name of a metric that is given by name, as a function or as an object."""
    if metric is None or isinstance(metric, str):
        return metric
    name = getattr(metric, "name", None) or getattr(metric, "__name__", None)
    return name if isinstance(name, str) else None
