import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from unskew.models.layout import Layout, TensorKind, assign, flatten, head_name, rows_are_finite


class Block(nn.Module):
    """A head first, a norm in a Sequential, a buffer, a counter and a non-persistent buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 3)
        self.body = nn.Sequential(nn.Linear(4, 2), nn.Sequential(nn.BatchNorm1d(2)))
        self.register_buffer("scale", torch.tensor([0.5]))
        self.register_buffer("scratch", torch.zeros(7), persistent=False)


def kinds(module: nn.Module) -> dict[str, str]:
    return {entry.name: str(entry.kind) for entry in Layout.of(module)}


def test_parameters_come_first_then_buffers_then_counters():
    layout = Layout.of(Block())
    assert [(entry.name, entry.start, entry.stop) for entry in layout] == [
        ("head.weight", 0, 6),
        ("head.bias", 6, 9),
        ("body.0.weight", 9, 17),
        ("body.0.bias", 17, 19),
        ("body.1.0.weight", 19, 21),
        ("body.1.0.bias", 21, 23),
        ("scale", 23, 24),
        ("body.1.0.running_mean", 24, 26),
        ("body.1.0.running_var", 26, 28),
        ("body.1.0.num_batches_tracked", 28, 29),
    ]
    assert (layout.trainable, layout.size) == (23, 29)
    assert layout.counters == slice(28, 29)
    assert layout.parameters[-1].name == "body.1.0.bias"
    assert layout.buffers[0].name == "scale"


def test_kinds_follow_the_type_of_the_module_not_its_name():
    assert kinds(Block()) == {
        "head.weight": "head",
        "head.bias": "head",
        "body.0.weight": "weight",
        "body.0.bias": "bias",
        "body.1.0.weight": "norm affine",
        "body.1.0.bias": "norm affine",
        "scale": "buffer",
        "body.1.0.running_mean": "norm statistic",
        "body.1.0.running_var": "norm statistic",
        "body.1.0.num_batches_tracked": "counter",
    }


@pytest.mark.parametrize(
    "norm",
    [nn.GroupNorm(2, 4), nn.LayerNorm(4), nn.InstanceNorm1d(4, affine=True), nn.BatchNorm2d(4)],
)
def test_every_norm_is_recognised(norm):
    found = kinds(nn.Sequential(norm, nn.Linear(4, 2)))
    assert found["0.weight"] == found["0.bias"] == "norm affine"


def test_group_norm_has_no_buffers():
    layout = Layout.of(nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4)))
    assert layout.buffers == ()
    assert layout.counters == slice(layout.size, layout.size)
    assert layout.trainable == layout.size == 4 * 9 + 4 + 4 + 4


def test_recurrent_biases_are_biases():
    found = kinds(nn.Sequential(nn.LSTM(2, 3), nn.Linear(3, 1)))
    assert found["0.bias_ih_l0"] == "bias"
    assert found["0.weight_hh_l0"] == "weight"


@pytest.mark.parametrize(
    ("module", "head"),
    [
        (Block(), "head"),
        (nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), "2"),
        (nn.Linear(3, 2), ""),
        (nn.Conv2d(1, 2, 3), None),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten()), None),
    ],
)
def test_the_head_is_the_submodule_of_that_name_or_the_last_linear_layer(module, head):
    assert head_name(module) == head


def test_a_single_linear_layer_is_the_head():
    assert set(kinds(nn.Linear(3, 2)).values()) == {"head"}


def test_without_linear_layers_there_is_no_head():
    assert kinds(nn.Conv2d(1, 2, 3)) == {"weight": "weight", "bias": "bias"}


def test_a_head_whose_name_is_a_prefix_of_another_has_only_its_tensors():
    module = nn.Sequential(*[nn.Identity() for _ in range(2)], nn.Linear(2, 2))
    module.add_module("20", nn.Conv1d(1, 1, 1))
    assert kinds(module)["20.weight"] == "weight"


def test_tied_weights_are_in_the_vector_once():
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].weight = module[0].weight
    layout = Layout.of(module)
    assert [entry.name for entry in layout] == ["0.weight", "0.bias", "1.bias"]
    assert layout.size == 9 + 3 + 3
    assign(module, layout, torch.arange(15.0))
    assert module[1].weight is module[0].weight
    assert flatten(module, layout).tolist() == list(range(15))


def test_flatten_and_assign_are_inverse():
    module, other = Block(), Block()
    module.body(torch.randn(5, 4))
    layout = Layout.of(module)
    vector = flatten(module, layout)
    assert vector.dtype == torch.float32
    assert vector[-1] == 1  # one batch was seen
    assign(other, layout, vector)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])
        assert tensor.dtype == other.state_dict()[name].dtype


def test_flatten_copies():
    module = nn.Linear(2, 1)
    flatten(module, Layout.of(module)).zero_()
    assert module.weight.abs().sum() > 0


def test_named_tensors_are_views_of_the_vector():
    layout = Layout.of(nn.Linear(2, 1))
    vector = torch.zeros(3)
    layout.tensors(vector)["weight"].fill_(4)
    assert vector.tolist() == [4, 4, 0]


def test_bytes_count_counters_with_their_own_width():
    layout = Layout.of(nn.BatchNorm1d(10))
    assert layout.size == 10 + 10 + 10 + 10 + 1
    assert layout.nbytes() == 40 * 4 + 8
    assert layout.nbytes(layout.mask(TensorKind.COUNTER)) == 8
    assert layout.nbytes(~layout.mask(TensorKind.COUNTER, TensorKind.NORM_STATISTIC)) == 80


def test_mask_marks_kinds():
    layout = Layout.of(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)))
    assert layout.mask(TensorKind.BIAS).tolist() == [False, True, False, False]
    assert layout.mask(TensorKind.HEAD, TensorKind.WEIGHT).tolist() == [True, False, True, True]


def test_a_flat_layout_has_one_trainable_vector():
    layout = Layout.flat(4)
    assert (layout.size, layout.trainable, layout.nbytes()) == (4, 4, 16)


def test_a_module_without_tensors_has_an_empty_layout():
    layout = Layout.of(nn.ReLU())
    assert (layout.size, layout.trainable, layout.counters) == (0, 0, slice(0, 0))
    assert flatten(nn.ReLU(), layout).shape == (0,)


HUGE = float(torch.finfo(torch.float32).max)


def test_finite_rows():
    rows = torch.full((6, 1000), HUGE)
    rows[1, 3] = torch.nan
    rows[2, 999] = torch.inf
    rows[3, 0] = -torch.inf
    rows[4, 0], rows[4, 1] = torch.inf, -torch.inf
    rows[5] = 0
    assert rows_are_finite(rows).tolist() == [True, False, False, False, False, True]
    assert bool(rows_are_finite(rows[0]))
    assert not bool(rows_are_finite(rows[1]))


@given(st.lists(st.floats(width=32, allow_nan=True, allow_infinity=True), max_size=20))
def test_finite_rows_agree_with_torch(values):
    row = torch.tensor(values, dtype=torch.float32)
    assert bool(rows_are_finite(row)) == bool(torch.isfinite(row).all())
