"""The recurrence equals torch's LSTM, and ignores padding."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from unskew.models import make
from unskew.models.bilstm import Recurrence

TOKENS = 30


def torch_lstm(recurrence, inputs, hidden):
    """Return torch's LSTM with the same weights; the second of its two biases is zero."""
    lstm = nn.LSTM(inputs, hidden, batch_first=True, bidirectional=True)
    with torch.no_grad():
        for direction, suffix in enumerate(("", "_reverse")):
            getattr(lstm, f"weight_ih_l0{suffix}").copy_(recurrence.weight_input[direction].T)
            getattr(lstm, f"weight_hh_l0{suffix}").copy_(recurrence.weight_hidden[direction].T)
            getattr(lstm, f"bias_ih_l0{suffix}").copy_(recurrence.bias[direction])
            getattr(lstm, f"bias_hh_l0{suffix}").zero_()
    return lstm


def test_recurrence_equals_torch_on_packed_sequences():
    torch.manual_seed(0)
    recurrence = Recurrence(5, 6)
    lstm = torch_lstm(recurrence, 5, 6)
    x, lengths = torch.randn(4, 7, 5), torch.tensor([7, 3, 1, 5])
    present = torch.arange(7) < lengths[:, None]
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    with torch.no_grad():
        expected, _ = pad_packed_sequence(lstm(packed)[0], batch_first=True)
        states = recurrence(x, present)
    torch.testing.assert_close(states[present], expected[present])


@given(
    texts=st.lists(st.lists(st.integers(1, TOKENS - 1), max_size=6), min_size=1, max_size=3),
    extra=st.integers(1, 9),
    pooling=st.sampled_from(["mean", "max"]),
)
@settings(max_examples=40, deadline=None)
def test_padding_does_not_change_the_logits(texts, extra, pooling):
    net = make(f"bilstm:embedding=4,hidden=3,pooling={pooling}", (6,), 2, vocabulary=TOKENS)
    with torch.no_grad():
        net.body.embedding.weight[0] = 100.0  # the embedding of padding must not matter either
        tokens = torch.zeros(len(texts), 6 + extra, dtype=torch.int64)
        for row, text in zip(tokens, texts, strict=True):
            row[: len(text)] = torch.tensor(text, dtype=torch.int64)
        torch.testing.assert_close(net(tokens), net(tokens[:, :6]))


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_a_text_without_tokens_has_zero_features(pooling):
    net = make(f"bilstm:pooling={pooling}", (4,), 2, vocabulary=TOKENS)
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    assert torch.equal(net(tokens)[0], net.head.bias)
    net(tokens).sum().backward()
    assert all(torch.isfinite(tensor.grad).all() for tensor in net.parameters())


def test_order_of_tokens_matters():
    net = make("bilstm", (3,), 2, vocabulary=TOKENS)
    with torch.no_grad():
        logits = net(torch.tensor([[1, 2, 3], [3, 2, 1]]))
    assert not torch.allclose(logits[0], logits[1])


def test_padding_gets_no_gradient():
    net = make("bilstm", (3,), 2, vocabulary=TOKENS)
    net(torch.tensor([[4, 5, 0]])).square().sum().backward()
    with_gradient = net.body.embedding.weight.grad.abs().sum(1).nonzero().flatten()
    assert with_gradient.tolist() == [4, 5]


def test_tokens_may_be_32_bit():
    net = make("bilstm", (3,), 2, vocabulary=TOKENS)
    tokens = torch.tensor([[4, 5, 0]])
    assert torch.equal(net(tokens), net(tokens.to(torch.int32)))
