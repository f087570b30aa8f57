"""A bidirectional LSTM for text.

The recurrence is written in plain tensor operations: ``nn.LSTM`` does not support ``torch.vmap``,
and needs packed sequences to keep padding out of the backward direction. This one is as fast on a
CPU as ``nn.LSTM`` with packed sequences.
"""

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from unskew.data.text import PADDING
from unskew.errors import UnskewError
from unskew.models.spec import Classifier, ModelSpec, Takes
from unskew.utils.specs import OPTIONS

Pooling = Literal["mean", "max"]
Size = Annotated[int, Field(ge=1)]


class Recurrence(nn.Module):
    """Both directions of one LSTM layer, stacked; padded positions do not change the state."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.weight_input = nn.Parameter(torch.empty(2, inputs, 4 * hidden))
        self.weight_hidden = nn.Parameter(torch.empty(2, hidden, 4 * hidden))
        self.bias = nn.Parameter(torch.empty(2, 4 * hidden))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(hidden**-0.5), hidden**-0.5)

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """Map N x L x inputs to N x L x 2 hidden; ``present`` is an N x L mask."""
        projected = torch.einsum("nle,deg->dnlg", x, self.weight_input) + self.bias[:, None, None]
        projected = torch.stack([projected[0], projected[1].flip(1)])
        masks = torch.stack([present, present.flip(1)]).unsqueeze(-1)
        hidden = cell = x.new_zeros(2, x.shape[0], self.weight_hidden.shape[1])
        hiddens = []
        for inputs, mask in zip(projected.unbind(2), masks.unbind(2), strict=True):
            # The gates in torch's order: input, forget, cell, output.
            i, f, g, o = (inputs + hidden @ self.weight_hidden).chunk(4, -1)
            new_cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hidden = torch.where(mask, o.sigmoid() * new_cell.tanh(), hidden)
            cell = torch.where(mask, new_cell, cell)
            hiddens.append(hidden)
        forward, backward = torch.stack(hiddens, 2).unbind(0)
        return torch.cat([forward, backward.flip(1)], -1)


class BiLSTMBody(nn.Module):
    """Embedding, recurrence, and pooling over the positions that hold a token."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, pooling: Pooling) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding, padding_idx=PADDING)
        self.recurrence = Recurrence(embedding, hidden)
        self.pooling = pooling

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (N x L) to N x 2 hidden; a text without tokens gives zeros."""
        present = tokens != PADDING
        states = self.recurrence(self.embedding(tokens), present)
        mask = present.unsqueeze(-1)
        if self.pooling == "mean":
            return torch.where(mask, states, 0.0).sum(1) / mask.sum(1).clamp(min=1)
        highest = torch.where(mask, states, -torch.inf).amax(1)
        return torch.where(mask.any(1), highest, 0.0)


@dataclass(frozen=True, config=OPTIONS)
class BiLSTM(ModelSpec):
    """Token embedding, bidirectional LSTM, mean or maximum over the tokens, linear head."""

    summary: ClassVar[str] = "bidirectional LSTM over tokens"
    takes: ClassVar[Takes] = "text"

    embedding: Size = 64
    """Width of the token embeddings."""
    hidden: Size = 64
    """Width of the LSTM, in each direction."""
    pooling: Pooling = "mean"
    """Pooling over the tokens: mean or max."""

    def build(
        self, shape: tuple[int, ...], classes: int, vocabulary: int | None = None
    ) -> Classifier:
        """Build the network; ``vocabulary`` is the number of tokens, padding included."""
        del shape
        if vocabulary is None:
            raise UnskewError("vocabulary: a network for text needs the number of tokens")
        body = BiLSTMBody(vocabulary, self.embedding, self.hidden, self.pooling)
        return Classifier(body, 2 * self.hidden, classes)
