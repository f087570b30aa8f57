"""Federations from torch datasets, Hugging Face datasets, and partitioners of flwr-datasets."""

import random

import numpy as np
import pytest
import torch
from PIL import Image

from unskew import Federation
from unskew.errors import UnskewError, UnskewWarning


class Listed:
    """A dataset of given items, each changed by a function when it is read."""

    def __init__(self, items, change=lambda item: item):
        self.items, self.change = items, change

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.change(self.items[index])


def photos(mode="RGB", size=(4, 2), number=6):
    rng = np.random.default_rng(0)
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    return [Image.fromarray(rng.integers(0, 256, shape, np.uint8)) for _ in range(number)]


def test_pil_images_become_channels_first_bytes():
    images = photos()
    federation = Federation.from_dataset(Listed([(image, i % 2) for i, image in enumerate(images)]))
    assert federation.shape == (3, 2, 4)
    assert federation.train.x.dtype == np.uint8
    assert np.array_equal(federation.train.x[1], np.asarray(images[1]).transpose(2, 0, 1))
    grey = Federation.from_dataset(Listed([(image, 0) for image in photos("L")]))
    assert grey.shape == (1, 2, 4)
    palette = Listed([(image.convert("P"), 0) for image in images])
    assert Federation.from_dataset(palette).shape == (3, 2, 4)


@pytest.mark.parametrize("keys", [("image", "label"), ("pixels", "y"), ("x", "target")])
def test_items_may_be_mappings(keys):
    items = [{keys[0]: torch.full((2,), float(i)), keys[1]: i % 2} for i in range(4)]
    federation = Federation.from_dataset(Listed(items), [0, 0, 1, 1])
    assert federation.train.x.tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert federation.train.y.tolist() == [0, 1, 0, 1]


def test_keys_can_be_named():
    items = [{"a": [1.0 * i], "b": [2.0 * i], "c": i, "d": 1} for i in range(3)]
    federation = Federation.from_dataset(Listed(items), features="b", label="c")
    assert federation.train.x.tolist() == [[0], [2], [4]]
    with pytest.raises(UnskewError, match="no label under a usual name; set label to one of: a, b"):
        Federation.from_dataset(Listed(items))
    with pytest.raises(UnskewError, match="no features under a usual name"):
        Federation.from_dataset(Listed(items), label="c")
    with pytest.raises(UnskewError, match="has no 'e'; set features to one of: a, b, d"):
        Federation.from_dataset(Listed(items), features="e", label="c")
    with pytest.raises(UnskewError, match="have no keys"):
        Federation.from_dataset(Listed([([1.0], 0)]), label="c")


@pytest.mark.parametrize("item", [(1, 2, 3), 5, ([1.0], "a"), ([1.0], [1, 2])])
def test_other_items_are_errors(item):
    with pytest.raises(UnskewError, match="dataset must hold"):
        Federation.from_dataset(Listed([item]))


@pytest.mark.parametrize("label", [1.0, True, torch.tensor(1), np.uint8(1)])
def test_labels_are_whole_numbers_of_any_type(label):
    federation = Federation.from_dataset(Listed([([1.0], label), ([2.0], 0)]))
    assert federation.train.y.tolist() == [1, 0]


def flipped(item):
    return (item[0].flip(0) if torch.rand(()) < 0.5 else item[0]), item[1]


def noisy(item):
    return item[0] + random.random(), item[1]


def jittered(item):
    return item[0] + np.random.normal(), item[1]  # noqa: NPY002


@pytest.mark.parametrize("change", [flipped, noisy, jittered])
def test_random_transforms_are_pointed_out(change):
    items = [(torch.arange(3.0) + i, 0) for i in range(30)]
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    expected = [np.asarray(change(item)[0]) for item in items]
    following = torch.rand(()), random.random(), np.random.normal()  # noqa: NPY002
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    with pytest.warns(UnskewWarning, match="applied once, not in each batch"):
        federation = Federation.from_dataset(Listed(items, change))
    # Looking for random transforms changes neither the samples nor later random numbers.
    assert np.array_equal(federation.train.x, np.float32(expected))
    assert (torch.rand(()), random.random(), np.random.normal()) == following  # noqa: NPY002


class Table:
    """What is used of ``datasets.Dataset``."""

    def __init__(self, features=None, **columns):
        self.columns, self.features = columns, features or {}

    @property
    def column_names(self):
        return list(self.columns)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name):
        return self.columns[name]


class ClassLabel:
    names = ("no", "yes")


def test_a_table_of_numbers_with_a_column_of_clients():
    table = Table(
        {"ill": ClassLabel()}, age=[1, 2, 3, 4], pulse=[5, 6, 7, 8], ill=[0, 1, 1, 0],
        site=["b", "a", "b", "a"],
    )  # fmt: skip
    federation = Federation.from_huggingface(table, "site", label="ill")
    assert federation.client_names.tolist() == ["a", "b"]
    assert federation.train.x.tolist() == [[2, 6], [4, 8], [1, 5], [3, 7]]
    assert federation.class_names == ("no", "yes")
    one = Federation.from_huggingface(table, "site", label="ill", features=["pulse"])
    assert one.train.x.tolist() == [[6], [8], [5], [7]]


def test_images_and_labels_are_found_and_labels_may_be_texts():
    table = Table(id=["u", "v"] * 3, image=photos(), label=["cat", "dog", "cat"] * 2)
    federation = Federation.from_huggingface(table, np.arange(6) % 2, holdout=0.4)
    assert (federation.shape, len(federation)) == ((3, 2, 4), 2)
    assert federation.class_names == ("cat", "dog")
    assert (federation.train.samples, federation.test.samples) == (4, 2)


def test_the_test_split_is_the_common_test_set():
    splits = {
        "train": Table(x=[[1.0, 2], [3, 4]], y=["b", "a"]),
        "test": Table(x=[[5.0, 6]], y=["b"]),
    }
    federation = Federation.from_huggingface(splits)
    assert federation.common.x.tolist() == [[5, 6]]
    assert federation.common.y.tolist() == [1]
    splits["test"] = Table(x=[[5.0, 6]], y=["c"])
    with pytest.raises(UnskewError, match="no training sample has the label 'c'"):
        Federation.from_huggingface(splits)
    with pytest.raises(UnskewError, match="has the splits train, test, more; pass one"):
        Federation.from_huggingface(splits | {"more": splits["test"]})


@pytest.mark.extras("datasets")
def test_datasets_of_hugging_face_give_their_images_classes_and_splits():
    from datasets import ClassLabel, Dataset, DatasetDict, Features, Image, Value

    features = {
        "image": Image(),
        "label": ClassLabel(names=["cat", "dog"]),
        "site": Value("string"),
    }
    images = photos()
    columns = {"image": images, "label": [0, 1, 1, 0, 1, 0], "site": ["b", "a", "b", "a", "a", "b"]}
    data = Dataset.from_dict(columns, features=Features(features))
    splits = DatasetDict(train=data.select(range(4)), test=data.select([4, 5]))
    federation = Federation.from_huggingface(splits, "site")
    assert federation.client_names.tolist() == ["a", "b"]
    assert federation.class_names == ("cat", "dog")
    assert federation.train.y.tolist() == [1, 0, 0, 1]
    assert np.array_equal(federation.train.x[2], np.asarray(images[0]).transpose(2, 0, 1))
    assert federation.common.y.tolist() == [1, 0]


class Halves:
    """What is used of a partitioner of flwr-datasets."""

    num_partitions = 2
    dataset = None

    def is_dataset_assigned(self):
        return self.dataset is not None

    def load_partition(self, index):
        part = slice(index * 2, index * 2 + 2)
        return Table(**{name: column[part] for name, column in self.dataset.columns.items()})


def test_partitions_of_flower_are_clients():
    table = Table(x=[[1.0], [2], [3], [4]], label=[0, 1, 0, 1])
    partitioner = Halves()
    federation = Federation.from_huggingface(table, partitioner)
    assert federation.client_names is None
    assert [federation.train.client(k)[0].ravel().tolist() for k in (0, 1)] == [[1, 2], [3, 4]]
    partitioner.partition_id_to_natural_id = {0: "north", 1: "south"}
    named = Federation.from_huggingface(table, partitioner)
    assert named.client_names.tolist() == ["north", "south"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"client": "ward"}, "client: the dataset has no column 'ward'; it has: name, x, y"),
        ({"label": "z"}, "has no 'z'; set label to one of"),
        ({"features": ["x", "w"]}, "features: the dataset has no column 'w'"),
        ({"features": ["x", "name"]}, "column 'name' must hold one number per sample"),
    ],
)
def test_wrong_columns_are_named(options, message):
    table = Table(name=["a", "b"], x=[1, 2], y=[0, 1])
    with pytest.raises(UnskewError, match=message):
        Federation.from_huggingface(table, **options)


def test_feature_names_are_saved(tmp_path):
    (tmp_path / "a.csv").write_text("age,pulse,label\n1,2,0\n3,4,1\n")
    federation = Federation.from_table(tmp_path / "a.csv", label="label")
    opened = Federation.open(federation.save(tmp_path / "saved"))
    assert opened.feature_names == federation.feature_names == ("age", "pulse")


def test_missing_labels_are_counted():
    table = Table(x=[[1.0], [2], [3]], label=["a", None, "b"])
    with pytest.raises(UnskewError, match="1 sample without a label; remove them"):
        Federation.from_huggingface(table)
