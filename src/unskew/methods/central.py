"""Central training: all samples in one place; the upper reference for federated learning."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass

from unskew.composition.parts import ClientSide, Setup
from unskew.composition.upload_values import Value
from unskew.composition.values import About, Client, Finished, Start, Tensors, Trained
from unskew.data.columns import Columns
from unskew.data.federation import Federation
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Central(ClientSide, Setup):
    """All clients' samples as those of one client, which takes part in every round.

    The data itself is sent, once; the model is never sent.
    """

    about: ClassVar[About] = About(
        title="All samples in one place",
        paper="reference",
        kind="server",
        down="nothing",
        up="samples (once)",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {}
    sends_model = False

    @property
    def receives(self) -> Mapping[str, Value]:
        """The samples, in the first round; there is only one client."""
        samples = Value(None, None, may_be_undefined=True, times=None, optional=True)
        return {"x": samples, "y": samples}

    def transform_federation(self, federation: Federation) -> Federation:
        """Pool the training samples; the clients' test samples stay per client."""
        pooled = Columns.whole(federation.train.x, federation.train.y)
        return replace(federation, train=pooled)

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Send the samples, as they are stored, in the first round."""
        extras = {} if "sent" in state else {"x": client.x, "y": client.y}
        return Finished(extras, {"sent": torch.tensor(1)})
