from pathlib import Path

import numpy as np
import pytest

from unskew.data.catalogue import CATALOGUE
from unskew.data.sources import cache_folder, count_samples, find, local_file, source
from unskew.errors import UnskewError


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    (tmp_path / "cache" / "unskew").mkdir(parents=True)
    return tmp_path


def images(samples: int = 4) -> dict[str, np.ndarray]:
    pixels = np.arange(samples * 6, dtype=np.uint8).reshape(samples, 2, 3)
    labels = np.arange(samples, dtype=np.uint8)
    return {"x_train": pixels, "y_train": labels, "x_test": pixels[:2], "y_test": labels[:2]}


def put(folder: Path, file: str, **arrays: np.ndarray) -> Path:
    np.savez(folder / "data" / file, **arrays)
    return folder / "data" / file


def test_digits_are_split_four_to_one_in_every_class():
    digits = source("digits")
    assert (len(digits.y_train), len(digits.y_test)) == (1438, 359)
    assert digits.x_train.shape == (1438, 8, 8)
    assert digits.x_train.dtype == np.float32
    assert digits.x_train.min() == 0
    assert digits.x_train.max() == 1
    assert digits.classes == 10
    train, test = np.bincount(digits.y_train), np.bincount(digits.y_test)
    assert np.all(np.abs(test / (train + test) - 0.2) < 0.005)


def test_digits_are_those_of_scikit_learn(monkeypatch):
    from sklearn.datasets import load_digits

    from unskew.data import sources

    expected = load_digits(return_X_y=True)
    for ours, theirs in zip(sources._digits_arrays(), expected, strict=True):
        assert np.array_equal(ours, theirs)
    monkeypatch.setattr(sources, "find_spec", lambda name: None)  # a package without the file
    for ours, theirs in zip(sources._digits_arrays(), expected, strict=True):
        assert np.array_equal(ours, theirs)


def test_digits_are_complete_and_the_same_each_time():
    from sklearn.datasets import load_digits

    first, second = source("digits"), source("digits")
    assert np.array_equal(first.x_test, second.x_test)
    ours = np.concatenate([first.x_train, first.x_test]).reshape(1797, 64)
    assert np.array_equal(
        np.sort(ours.sum(axis=1)), np.sort(load_digits().data.sum(axis=1).astype(np.float32) / 16)
    )


def test_a_file_becomes_a_source_with_int64_labels_and_class_names(folders):
    put(folders, "mnist.npz", **images())
    mnist = source("mnist")
    assert mnist.kind == "image"
    assert mnist.y_train.dtype == np.int64
    assert mnist.x_train.dtype == np.uint8
    assert mnist.class_names == tuple("0123456789")
    assert mnist.group_train is None
    assert mnist.group_names is None


def test_groups_and_their_names_come_from_the_file(folders):
    groups = {"group_train": np.array([0, 1, 1, 0], np.uint8), "group_test": np.array([1, 0])}
    put(folders, "femnist.npz", **images(), **groups, writer_ids=np.array(["f01", "f02"]))
    femnist = source("femnist")
    assert femnist.group_train is not None
    assert femnist.group_train.tolist() == [0, 1, 1, 0]
    assert femnist.group_train.dtype == np.int64
    assert femnist.group_names == ("f01", "f02")
    assert femnist.classes == 62


def test_pixels_are_read_unchanged(folders):
    arrays = images()
    arrays["x_train"][:] = 255
    put(folders, "femnist.npz", **arrays)
    assert source("femnist").x_train.min() == 255


def test_names_and_shapes_of_medmnist_are_read(folders):
    arrays = images()
    put(
        folders,
        "pneumoniamnist.npz",
        train_images=arrays["x_train"],
        train_labels=np.array([[0], [1], [1], [0]]),
        val_images=arrays["x_test"],
        test_images=arrays["x_test"],
        test_labels=np.array([[1], [0]]),
    )
    assert source("pneumonia").y_train.tolist() == [0, 1, 1, 0]
    assert source("pneumonia").class_names == ("normal", "pneumonia")


def test_text_is_read_as_unicode(folders):
    put(
        folders,
        "airline_tweets.npz",
        x_train=np.array(["late again", "thanks ✈"]),
        y_train=np.array([0, 2]),
        x_test=np.array(["ok"]),
        y_test=np.array([1]),
        class_names=np.array(["negative", "neutral", "positive"]),
    )
    airline = source("airline")
    assert airline.kind == "text"
    assert airline.x_train.tolist() == ["late again", "thanks ✈"]
    assert airline.classes == 3


def test_the_environment_precedes_the_cache(folders):
    np.savez(cache_folder() / "mnist.npz", **images(3))
    assert find("mnist") == folders / "cache" / "unskew" / "mnist.npz"
    put(folders, "mnist.npz", **images(4))
    assert find("mnist") == folders / "data" / "mnist.npz"
    assert len(source("mnist").y_train) == 4


def test_samples_are_counted_without_reading_images(folders):
    path = put(folders, "mnist.npz", **images(), group_train=np.zeros(4), group_test=np.zeros(2))
    assert count_samples(path) == (4, 2, True)
    path.write_bytes(b"nothing")
    with pytest.raises(UnskewError, match=r"mnist\.npz: cannot be read"):
        count_samples(path)
    np.savez(path, x=np.zeros(3))
    with pytest.raises(UnskewError, match=r"mnist\.npz: has no labels"):
        count_samples(path)


@pytest.mark.parametrize("name", [name for name, entry in CATALOGUE.items() if entry.package])
def test_the_error_for_a_missing_source_names_the_fetch_command(name):
    with pytest.raises(UnskewError, match=f"unskew data fetch {name}"):
        local_file(name)


def test_the_error_for_a_source_without_a_package_names_file_and_folder():
    with pytest.raises(UnskewError) as caught:
        source("ham10000")
    message = str(caught.value)
    for part in ("ham10000.npz", str(cache_folder()), "$UNSKEW_DATA", "Tschandl", "x_train"):
        assert part in message


def test_the_error_for_an_unknown_source_suggests_the_nearest():
    with pytest.raises(UnskewError, match="did you mean 'cifar10'"):
        source("cifar-10")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_train": np.array([0, 1, 2])}, r"y_train has shape \(3,\) for 4 samples"),
        ({"y_train": np.array([0, 1, 2, -1])}, "y_train must hold integers of at least 0"),
        ({"y_train": np.array([0.0, 1, 2, 3])}, "y_train must hold integers of at least 0"),
        ({"y_test": np.array([0, 10])}, "y_test goes up to 10, but there are only 10 names"),
        ({"x_train": np.zeros((4, 2, 3))}, "x_train must be uint8 images"),
        ({"x_train": np.zeros((4, 6), np.uint8)}, "x_train must be uint8 images"),
        (
            {"x_test": np.zeros((2, 3, 3), np.uint8)},
            "samples of x_train and x_test differ in shape",
        ),
        ({"group_train": np.zeros(4, int)}, "both group_train and group_test"),
        (
            {
                "group_train": np.array([0, 1, 2, 0]),
                "group_test": np.array([0, 0]),
                "group_names": np.array(["a", "b"]),
            },
            "group_train goes up to 2, but there are only 2 names",
        ),
    ],
)
def test_wrong_arrays_are_named_with_their_file(folders, change, message):
    path = put(folders, "mnist.npz", **{**images(), **change})
    with pytest.raises(UnskewError, match=message) as caught:
        source("mnist")
    assert str(path) in str(caught.value)


def test_missing_array_is_named(folders):
    arrays = images()
    del arrays["y_test"]
    put(folders, "mnist.npz", **arrays)
    with pytest.raises(UnskewError, match=r"mnist\.npz: has no array 'y_test'"):
        source("mnist")


def test_numbers_are_not_text(folders):
    put(folders, "sent140.npz", **images())
    with pytest.raises(UnskewError, match="x_train must be one text per sample"):
        source("sent140")


@pytest.mark.parametrize("keep", [0, 10, 300, -30])
def test_truncated_file_is_named(folders, keep):
    path = put(folders, "mnist.npz", **images())
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UnskewError, match=r"mnist\.npz: cannot be read .*fetch or copy it again"):
        source("mnist")


def test_damaged_bytes_are_detected(folders):
    path = put(folders, "mnist.npz", **images())
    content = bytearray(path.read_bytes())
    content[200] ^= 0xFF  # within x_train's pixels, which the zip's checksum covers
    path.write_bytes(content)
    with pytest.raises(UnskewError, match=r"mnist\.npz: cannot be read"):
        source("mnist")


def test_pickled_objects_are_rejected(folders):
    arrays = images() | {"y_train": np.array([0, 1, 2, "x"], object)}
    put(folders, "mnist.npz", **arrays)
    with pytest.raises(UnskewError, match=r"mnist\.npz: cannot be read"):
        source("mnist")


def test_single_array_is_not_a_source(folders):
    with (folders / "data" / "mnist.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(UnskewError, match="single array"):
        source("mnist")


def test_catalogue_is_complete():
    assert set(CATALOGUE) == {
        "digits", "mnist", "fashion", "femnist", "cifar10", "cifar100",
        "ham10000", "pneumonia", "chest-xray", "sent140", "airline",
        "heart", "schools", "lung", "penguins",
    }  # fmt: skip
    for entry in CATALOGUE.values():
        assert entry.title
        assert entry.licence
        assert entry.origin
        assert entry.class_names is None or len(entry.class_names) == entry.classes
