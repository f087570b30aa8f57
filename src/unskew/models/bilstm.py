"""A bidirectional LSTM for text.

The recurrence is written out in plain tensor operations: torch's own LSTM has no rule for
``torch.vmap``, and needs packed sequences to keep padding out of the backward direction. This one
is as fast as the packed one on a CPU.
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

Pool = Literal["mean", "max"]
Size = Annotated[int, Field(ge=1)]


class Recurrence(nn.Module):
    """Both directions of one LSTM layer, side by side; positions not present change no state."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.weight_input = nn.Parameter(torch.empty(2, inputs, 4 * hidden))
        self.weight_hidden = nn.Parameter(torch.empty(2, hidden, 4 * hidden))
        self.bias = nn.Parameter(torch.empty(2, 4 * hidden))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(hidden**-0.5), hidden**-0.5)

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """Turn N x L x inputs into N x L x 2 hidden; ``present`` is an N x L mask."""
        drive = torch.einsum("nle,deg->dnlg", x, self.weight_input) + self.bias[:, None, None]
        drive = torch.stack([drive[0], drive[1].flip(1)])
        moves = torch.stack([present, present.flip(1)]).unsqueeze(-1)
        state = memory = x.new_zeros(2, x.shape[0], self.weight_hidden.shape[1])
        states = []
        for push, move in zip(drive.unbind(2), moves.unbind(2), strict=True):
            # The gates in torch's order: input, forget, cell, output.
            enter, keep, new, leave = (push + state @ self.weight_hidden).chunk(4, -1)
            updated = keep.sigmoid() * memory + enter.sigmoid() * new.tanh()
            state = torch.where(move, leave.sigmoid() * updated.tanh(), state)
            memory = torch.where(move, updated, memory)
            states.append(state)
        forward, backward = torch.stack(states, 2).unbind(0)
        return torch.cat([forward, backward.flip(1)], -1)


class BiLstmBody(nn.Module):
    """Embedding, recurrence, and a pool over the positions that hold a token."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, pool: Pool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding, padding_idx=PADDING)
        self.recurrence = Recurrence(embedding, hidden)
        self.pool = pool

    def forward(self, tokens: Tensor) -> Tensor:
        """Turn tokens (N x L) into N x 2 hidden; a text without tokens becomes zeros."""
        present = tokens != PADDING
        states = self.recurrence(self.embedding(tokens), present)
        shown = present.unsqueeze(-1)
        if self.pool == "mean":
            return torch.where(shown, states, 0.0).sum(1) / shown.sum(1).clamp(min=1)
        highest = torch.where(shown, states, -torch.inf).amax(1)
        return torch.where(shown.any(1), highest, 0.0)


@dataclass(frozen=True, config=OPTIONS)
class BiLSTM(ModelSpec):
    """Token embedding, bidirectional LSTM, mean or maximum over the tokens, linear head."""

    summary: ClassVar[str] = "bidirectional LSTM over tokens"
    takes: ClassVar[Takes] = "text"

    embedding: Size = 64
    """Numbers that stand for a token."""
    hidden: Size = 64
    """Width of the LSTM, in each direction."""
    pool: Pool = "mean"
    """Whether the head sees the mean or the max over the tokens."""

    def build(
        self, shape: tuple[int, ...], classes: int, vocabulary: int | None = None
    ) -> Classifier:
        """Build the network; ``vocabulary`` is the number of tokens, padding included."""
        del shape
        if vocabulary is None:
            raise UnskewError("vocabulary: a network for text needs the number of tokens")
        body = BiLstmBody(vocabulary, self.embedding, self.hidden, self.pool)
        return Classifier(body, 2 * self.hidden, classes)
