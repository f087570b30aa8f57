"""The privacy budget of a client: epsilon, delta and the clipping norm."""

from typing import Annotated, Any

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS)
class Privacy:
    """A differential privacy budget for each record of each client.

    ``clip`` is the largest l2 norm of one sample's gradient. It affects accuracy, not privacy,
    since the noise is a multiple of it. As an option of a method, the budget is written
    ``privacy=2/1e-5``: epsilon, delta and, if it is not 1, clip.
    """

    epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        parts = value.split("/")
        if len(parts) not in (2, 3):
            raise ValueError(f"write epsilon/delta, such as 2/1e-5 (got {value!r})")
        return dict(zip(("epsilon", "delta", "clip"), parts, strict=False))

    def __str__(self) -> str:
        text = f"{self.epsilon!r}/{self.delta!r}"
        return text if self.clip == 1 else f"{text}/{self.clip!r}"
