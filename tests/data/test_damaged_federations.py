"""Arrays and folders go through the same checks: bad values are one line, never accepted."""

import json
import os
from contextlib import suppress

import numpy as np
import pytest

import unskew as us
from toys import small_federation
from unskew.data.federation import Federation
from unskew.errors import UnskewError

X, Y = np.ones((6, 2), np.float32), np.array([0, 1, 2, 0, 1, 2])


def with_values(*values):
    x = X.copy()
    x.flat[: len(values)] = values
    return x


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (with_values(np.nan), r"\(1 NaN of 12\)"),
        (with_values(np.nan, np.inf, -np.inf), r"\(1 NaN and 2 infinite of 12\)"),
        (np.full((6, 2), 1e300), r"\(12 infinite of 12\)"),
        (np.ones((6, 0)), "at least one feature"),
        ([[1, 2], [3]], "cannot be made an array"),
        (np.ones((6, 2), complex), "must hold numbers"),
    ],
)
def test_features_that_cannot_be_trained_on_are_refused(x, message):
    with pytest.raises(UnskewError, match=message):
        Federation.from_arrays(x, Y)


def test_common_test_samples_are_checked_too():
    with pytest.raises(UnskewError, match=r"common x: has values .*\(1 NaN of 12\)"):
        Federation.from_arrays(X, Y, common=(with_values(np.nan), Y))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y": [0, 1, 2, 0, 1, 10**18]}, "below 1,000,000"),
        ({"classes": 10**18}, "classes must be from 1"),
        ({"classes": "3"}, "whole number"),
        ({"client": [0.0, 1.0, np.nan, 0.0, 1.0, 1.0]}, "1 are not finite"),
        ({"client": [1j] * 6}, "numbers or texts"),
        ({"holdout": "much"}, "holdout must be"),
        ({"common": X}, "pair"),
        ({"name": 3}, "name must be text"),
        ({"x": -np.ones((6, 2), int), "tokens": True}, "tokens from 0"),
    ],
)
def test_other_arguments_are_checked(options, message):
    with pytest.raises(UnskewError, match=message):
        Federation.from_arrays(**{"x": X, "y": Y, **options})


def test_labels_of_the_other_byte_order_can_be_used():
    federation = Federation.from_arrays(X, Y.astype(">i4"), [0, 0, 0, 1, 1, 1])
    assert us.train(federation, rounds=1, model="logistic").rounds == 1


@pytest.fixture
def saved(tmp_path):
    return small_federation().save(tmp_path / "saved")


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("train_x.npy", lambda x: np.where(np.arange(x.size).reshape(x.shape) == 3, np.nan, x)),
        ("train_x.npy", lambda x: x.astype(np.float64)),
        ("train_x.npy", lambda x: x.astype(">f4")),
        ("train_x.npy", lambda x: x.astype(complex)),
        ("train_x.npy", lambda x: x[:, 0]),
        ("train_x.npy", lambda x: np.float32(1)),
        ("test_x.npy", lambda x: x[:, :2]),
        ("train_y.npy", lambda y: y + 7),
        ("train_y.npy", lambda y: -y),
        ("train_y.npy", lambda y: y.astype(np.float32)),
        ("train_y.npy", lambda y: y[:, None]),
        ("train_offsets.npy", lambda o: o.astype(np.float64)),
        ("train_offsets.npy", lambda o: o[::-1]),
        ("train_offsets.npy", lambda o: o[:, None]),
        ("test_offsets.npy", lambda o: np.delete(o, 1)),
        ("common_offsets.npy", lambda o: np.array([0, 3, o[-1]])),
        ("client_names.npy", lambda o: np.array(["one"])),
        ("client_names.npy", lambda o: np.array([1j] * 4)),
    ],
)
def test_a_damaged_array_is_one_line(saved, file, change):
    path = saved / file
    np.save(path, change(np.load(path) if path.exists() else None))
    with pytest.raises(UnskewError, match=r"saved: is damaged") as error:
        Federation.open(saved)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        {"classes": "3"}, {"classes": None}, {"classes": -1}, {"classes": 10**20}, {"classes": 3.5},
        {"name": 5}, {"class_names": "abc"}, {"class_names": ["a"]}, {"class_names": [1, 2, 3]},
        {"vocabulary": 5}, {"report": 5}, {"report": {"skew": 1}}, {"format": [1]},
    ],
)  # fmt: skip
def test_damaged_metadata_is_one_line(saved, change):
    path = saved / "federation.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UnskewError, match=r"saved: ") as error:
        Federation.open(saved)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 100_000, b"[]", b"null", b'"text"'])
def test_metadata_of_another_kind_is_one_line(saved, content):
    (saved / "federation.json").write_bytes(content)
    with pytest.raises(UnskewError, match="is damaged"):
        Federation.open(saved)


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": [1]}, {"sizes": "x"}, {"label_counts": [[1]]}, {"dropped": "x"}, {"notes": [1]},
        {"notes": 5}, {"skew": None}, {"options": [1]}, {"seed": "x"}, {"diagnosis": 7},
        {"diagnosis": {"clients": 1}},
    ],
)  # fmt: skip
def test_a_damaged_partition_report_is_one_line(tmp_path, change):
    folder = us.load("digits", "iid", 3).save(tmp_path / "saved")
    path = folder / "federation.json"
    metadata = json.loads(path.read_text())
    metadata["report"] |= change
    path.write_text(json.dumps(metadata))
    with pytest.raises(UnskewError, match="is damaged"):
        Federation.open(folder)


def test_a_pipe_in_place_of_an_array_is_refused(saved):
    (saved / "train_x.npy").unlink()
    os.mkfifo(saved / "train_x.npy")
    with pytest.raises(UnskewError, match=r"train_x\.npy is not a file"):
        Federation.open(saved)


def test_a_file_cut_or_changed_anywhere_is_one_line_or_the_same_values(saved):
    before = Federation.open(saved)
    content = (saved / "train_x.npy").read_bytes()
    for position in range(0, 128, 3):
        for changed in (content[:position], content[:position] + b"\xf7" + content[position + 1 :]):
            (saved / "train_x.npy").write_bytes(changed)
            with suppress(UnskewError):
                assert len(Federation.open(saved)) == len(before)
