import pytest
import torch
from torch import nn

from unskew.aggregation.uploads import Uploads
from unskew.errors import UnskewError
from unskew.models.layout import Layout

STACK = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def test_defaults_are_one_sample_each_and_ids_in_order():
    uploads = Uploads.of(STACK)
    assert len(uploads) == 3
    assert uploads.clients == (0, 1, 2)
    assert uploads.samples.tolist() == [1, 1, 1]
    assert uploads.previous.tolist() == [0, 0]
    assert uploads.train_accuracy is None
    assert uploads.layout.size == 2


def test_rows_and_their_fields_are_sorted_by_id():
    uploads = Uploads.of(
        STACK,
        samples=[10, 20, 30],
        clients=[7, 2, 5],
        train_accuracy=[0.1, 0.2, 0.3],
        train_loss=[1, 2, 3],
        label_counts=torch.tensor([[10, 0], [15, 5], [0, 30]]),
        extras={"steps": [torch.tensor(1), torch.tensor(2), torch.tensor(3)]},
    )
    assert uploads.clients == (2, 5, 7)
    assert uploads.stack.tolist() == [[3, 4], [5, 6], [1, 2]]
    assert uploads.samples.tolist() == [20, 30, 10]
    assert uploads.train_accuracy.tolist() == [0.2, 0.3, 0.1]
    assert uploads.train_loss.tolist() == [2, 3, 1]
    assert uploads.label_counts.tolist() == [[15, 5], [0, 30], [10, 0]]
    assert [int(steps) for steps in uploads.extras["steps"]] == [2, 3, 1]


def test_parameters_exclude_statistics_and_counters():
    layout = Layout.of(nn.BatchNorm1d(1))
    uploads = Uploads.of(torch.arange(10.0).view(2, 5), layout=layout)
    assert uploads.parameters.tolist() == [[0, 1], [5, 6]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stack": torch.zeros(3)}, "stack must be clients x coordinates"),
        ({"stack": torch.zeros(0, 3)}, "at least one client"),
        ({"layout": Layout.flat(3)}, "stack has 2 coordinates, but its layout has 3"),
        ({"samples": [1, 2]}, "samples must have one value per client: 3, not 2"),
        ({"train_accuracy": [0.5]}, "train_accuracy must have one value per client: 3, not 1"),
        ({"train_loss": [0.5] * 4}, "train_loss must have one value per client: 3, not 4"),
        ({"clients": [1, 1, 2]}, "clients must be 3 distinct ids"),
        ({"clients": [1, 2]}, "clients must be 3 distinct ids"),
        ({"previous": torch.zeros(3)}, "previous must be a vector of 2 coordinates"),
        (
            {"extras": {"c": [torch.zeros(1)]}},
            "extras 'c' must have one value per client: 3, not 1",
        ),
    ],
)
def test_mismatched_fields_are_named(options, words):
    with pytest.raises(UnskewError, match=words):
        Uploads.of(**({"stack": STACK} | options))
