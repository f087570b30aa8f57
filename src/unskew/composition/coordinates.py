"""Which coordinates of a model are trained, which are sent, and which stay on the client."""

from torch import Tensor

from unskew.composition.declared import Parts
from unskew.composition.hook_calls import call
from unskew.composition.values import Tensors
from unskew.models.layout import Layout, TensorKind
from unskew.models.masks import none_if_empty, union_of_masks, without

KEPT = "kept"
"""The key of a client's state that holds the coordinates which stay on the client."""


class Coordinates(Parts):
    """The masks of the coordinates that a method trains, sends and keeps."""

    def trains(self, layout: Layout) -> Tensor | None:
        """Mark the trainable coordinates that local training may change; None means all."""
        mask = None
        for part in self._personalizations:
            frozen = call(part, "freezes", layout)
            mask = mask if frozen is None else without(mask, frozen)
        return mask

    def sent_mask(self, layout: Layout) -> Tensor | None:
        """Mark the coordinates that are sent and averaged; None means all."""
        statistics = self._statistics(layout)
        mask = None if statistics is None else ~statistics
        if layout.frozen is not None:
            mask = without(mask, layout.frozen)
        for part in self._personalizations:
            stays = call(part, "stays", layout)
            mask = mask if stays is None else without(mask, stays)
        return mask

    def shares_on_upload(self, layout: Layout) -> Tensor | None:
        """Mark the coordinates that stay on the client but are also uploaded; None means none."""
        mask = self._statistics(layout)
        for part in self._personalizations:
            shared = call(part, "shares_on_upload", layout)
            mask = mask if shared is None else union_of_masks(mask, shared)
        if mask is None or layout.frozen is None:
            return mask
        return none_if_empty(mask & ~layout.frozen)

    def _statistics(self, layout: Layout) -> Tensor | None:
        """Mark the norm statistics if a part keeps them on clients; None means none."""
        if not self._keeps_statistics:
            return None
        return none_if_empty(layout.mask(TensorKind.NORM_STATISTIC, TensorKind.COUNTER))

    def kept(self, layout: Layout) -> Tensor | None:
        """Mark the coordinates that the client keeps between rounds; None means none."""
        if not self._personalizations and not self._keeps_statistics:
            return None
        sent_mask = self.sent_mask(layout)
        mask = None if sent_mask is None else ~sent_mask
        own = (call(part, "constant", layout) for part in self._personalizations)
        for constant in (layout.frozen, *own):
            if mask is not None and constant is not None:
                mask = none_if_empty(mask & ~constant)
        return mask

    def has_personal_models(self, layout: Layout) -> bool:
        """Return whether clients may use models other than the global one."""
        return self.has_own_personal_models or self.kept(layout) is not None

    def has_global_model(self, layout: Layout) -> bool:
        """Return whether the server has a trained model.

        It has none if coordinates that stay on clients keep their initial values there.
        """
        shared, trained = self.shares_on_upload(layout), True
        for part in self._personalizations:
            untrained = None if part.works_without_own else call(part, "stays", layout)
            for others in (shared, call(part, "constant", layout)):
                if untrained is not None and others is not None:
                    untrained = untrained & ~others
            trained = trained and (untrained is None or not bool(untrained.any()))
        return trained

    def with_kept(self, layout: Layout, model: Tensor, state: Tensors) -> Tensor:
        """Return a received model with the client's own coordinates restored."""
        kept = self.kept(layout)
        if kept is None or KEPT not in state:
            return model
        own = model.clone()
        own[kept] = state[KEPT]
        return own
