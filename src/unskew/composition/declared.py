"""What the parts of a method declare, gathered for the whole method."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from unskew.composition.description import described
from unskew.composition.hook_calls import received_by
from unskew.composition.parts import (
    Aspect,
    ClientSide,
    Part,
    Personalization,
    ServerSide,
    Setup,
)
from unskew.composition.upload_values import LABEL_COUNTS, TRAIN_ACCURACY, TRAIN_LOSS, Value
from unskew.composition.values import About


@dataclass(frozen=True)
class Parts:
    """Parts that are applied together, the last part first."""

    parts: tuple[Part, ...] = ()

    @cached_property
    def about(self) -> About:
        """The description of the method."""
        about = described(self.parts)
        return replace(about, level="personal") if self.may_personalize else about

    @cached_property
    def may_personalize(self) -> bool:
        """Whether clients may have models of their own; on some networks they have none."""
        personal = self._personalizations or self._keeps_statistics or self.has_own_personal_models
        return bool(personal)

    @cached_property
    def needs_train_accuracy(self) -> bool:
        """Whether clients measure their accuracy on their own training samples."""
        return any("train_accuracy" in part.needs for part in self.parts)

    @property
    def parts_for_classes(self) -> list[Part]:
        """The parts that cannot train a regression."""
        return [part for part in self.parts if part.needs_classes or part.needs]

    @cached_property
    def _needs_label_counts(self) -> bool:
        return any("label_counts" in part.needs for part in self.parts)

    @cached_property
    def _keeps_statistics(self) -> bool:
        return any(part.buffers == "local" for part in self.parts)

    @cached_property
    def receives(self) -> Mapping[str, Value]:
        """What the server accepts of each value that clients send besides the model."""
        measured = {"train_accuracy": TRAIN_ACCURACY, "label_counts": LABEL_COUNTS}
        values = {"train_loss": TRAIN_LOSS}
        for part in self.parts:
            values |= {name: measured[name] for name in part.needs}
            values |= part.prefixed(received_by(part))
        return values

    @cached_property
    def sends_model(self) -> bool:
        """Whether the model is sent; False where it is trained on the server."""
        return all(part.sends_model for part in self.parts)

    @cached_property
    def works_on_any_device(self) -> bool:
        """Whether models may be on an accelerator wherever parts see them."""
        return all(part.works_on_any_device and part.buffers == "average" for part in self.parts)

    @cached_property
    def has_own_personal_models(self) -> bool:
        """Whether a part computes or fine-tunes the clients' personal models."""
        personal, tuned = Aspect.PERSONAL_MODEL, Aspect.FINE_TUNING
        return self._replacing(personal) is not None or self._replacing(tuned) is not None

    @cached_property
    def _client_sides(self) -> tuple[ClientSide, ...]:
        return tuple(part for part in reversed(self.parts) if isinstance(part, ClientSide))

    @cached_property
    def _server_sides(self) -> tuple[ServerSide, ...]:
        return tuple(part for part in reversed(self.parts) if isinstance(part, ServerSide))

    @cached_property
    def _personalizations(self) -> tuple[Personalization, ...]:
        return tuple(part for part in reversed(self.parts) if isinstance(part, Personalization))

    @cached_property
    def _setups(self) -> tuple[Setup, ...]:
        return tuple(part for part in reversed(self.parts) if isinstance(part, Setup))

    def _replacing(self, aspect: Aspect) -> Any:
        """Return the part that replaces an aspect; None if no part does."""
        return next((part for part in self.parts if aspect in part.replaces), None)
