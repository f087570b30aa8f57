"""The privacy budget of a client in a run, and the limit of a site for all runs."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from unskew.errors import UnskewError
from unskew.utils.specs import OPTIONS, explain


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


class PrivacyLimit(BaseModel):
    """The most that all private releases about the same records may cost, in all runs together.

    It is written ``3/1e-5``: epsilon and delta. Without a delta, noisy steps are never allowed,
    only statistics with Laplace noise.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    epsilon: Annotated[float, Field(ge=0)]
    delta: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @staticmethod
    def parse(value: "str | float | PrivacyLimit", where: str) -> "PrivacyLimit":
        """Read what a site wrote; ``where`` names the option."""
        if isinstance(value, PrivacyLimit):
            return value
        parts = str(value).split("/")
        try:
            if len(parts) > 2:
                raise UnskewError(f"{where}: write epsilon/delta, such as 3/1e-5 (got {value!r})")
            return PrivacyLimit.model_validate(dict(zip(("epsilon", "delta"), parts, strict=False)))
        except ValidationError as error:
            raise UnskewError(f"{where}: {explain(error, PrivacyLimit)}") from None

    def __str__(self) -> str:
        return f"{self.epsilon:.4g}" + (f" at delta {self.delta:g}" if self.delta else "")
