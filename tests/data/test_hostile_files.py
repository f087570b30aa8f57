"""Files that are damaged, enormous or of another kind are errors of one line."""

import io
import os
import socket
import struct
import zipfile
import zlib

import numpy as np
import pytest

from unskew.data.config import DataConfig
from unskew.data.federation import Federation
from unskew.data.load import open_data
from unskew.data.sources import count_samples, source
from unskew.errors import UnskewError

ARRAYS = {
    "x_train": np.zeros((4, 28, 28), np.uint8), "y_train": np.arange(4),
    "x_test": np.zeros((2, 28, 28), np.uint8), "y_test": np.arange(2),
}  # fmt: skip


@pytest.fixture
def mnist(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path))
    return tmp_path / "mnist.npz"


@pytest.mark.parametrize(
    "change",
    [
        {"x_train": np.uint8(3)}, {"y_train": np.int64(3)},
        {"x_train": np.zeros((0, 28, 28), np.uint8)},
        {"y_train": np.full(4, 10**18)}, {"class_names": np.array("zero")},
        {"group_train": np.int64(1), "group_test": np.int64(1)},
        {"group_train": np.full(4, 10**18), "group_test": np.full(2, 10**18)},
        {"x_train": np.zeros((4, 28, 28))}, {"y_train": np.zeros((4, 2), int)},
    ],
)  # fmt: skip
def test_wrong_arrays_of_a_source_are_one_line(mnist, change):
    np.savez(mnist, **{**ARRAYS, **change})
    with pytest.raises(UnskewError, match=r"mnist\.npz: ") as error:
        source("mnist")
    assert "\n" not in str(error.value)
    assert len(count_samples(mnist)) == 3


def test_a_file_cut_or_changed_anywhere_is_one_line(mnist):
    content = io.BytesIO()
    np.savez_compressed(content, **ARRAYS)
    whole = content.getvalue()
    for position in range(0, len(whole), 23):
        for damaged in (whole[:position], whole[:position] + b"\xfe" + whole[position + 1 :]):
            mnist.write_bytes(damaged)
            try:
                source("mnist")
            except UnskewError as error:
                assert "\n" not in str(error)  # noqa: PT017


def test_an_archive_that_would_fill_the_memory_is_refused(mnist):
    np.savez(mnist, **ARRAYS)
    with zipfile.ZipFile(mnist, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("class_names.npy", b"\x00" * 1000)
    content = mnist.read_bytes()
    true_size, claimed = struct.pack("<I", 1000), struct.pack("<I", 2**32 - 2)
    mnist.write_bytes(content.replace(true_size, claimed))
    with pytest.raises(UnskewError, match="would expand"):
        source("mnist")


def png(width, height):
    def chunk(kind, data):
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\x00" * 1000))
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [15_000, 60_000])
def test_an_image_that_would_fill_the_memory_is_refused(tmp_path, size):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "bomb.png").write_bytes(png(size, size))
    with pytest.raises(UnskewError, match=r"bomb\.png: cannot be read as an image") as error:
        Federation.from_folder(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("label", [10**18, -(10**18), 10**30])
def test_labels_that_are_ids_are_one_line_or_names(tmp_path, label):
    path = tmp_path / "table.csv"
    path.write_text(f"a,label\n1,{label}\n2,{label}\n")
    if label < 10**20:
        with pytest.raises(UnskewError, match="y must hold labels"):
            Federation.from_table(path, label="label")
    else:  # beyond integers it is a name
        assert Federation.from_table(path, label="label").class_names == (str(label),)


@pytest.mark.extras("pyarrow")
@pytest.mark.parametrize("kind", ["list", "struct", "timestamp", "binary", "one-element list"])
def test_parquet_columns_that_are_no_numbers_are_one_line(tmp_path, kind):
    import pyarrow as pa
    from pyarrow import parquet

    values = {
        "list": [[1, 2], [3]],
        "one-element list": [[1], [3]],
        "struct": [{"a": 1}, {"a": 2}],
        "timestamp": pa.array([1, 2], pa.timestamp("s")),
        "binary": [b"\xff", b"x"],
    }[kind]
    path = tmp_path / "table.parquet"
    parquet.write_table(pa.table({"a": values, "label": [0, 1]}), path)
    for options in ({"label": "label"}, {"label": "a"}, {"label": "label", "client": "a"}):
        with pytest.raises(UnskewError, match=r"column 'a' must hold") as error:
            Federation.from_table(path, **options, prepare="none")
        assert "\n" not in str(error.value)
        if kind != "timestamp" or options != {"label": "label"}:  # a date can be a feature
            with pytest.raises(UnskewError, match=r"column 'a' must hold"):
                Federation.from_table(path, **options)


@pytest.mark.extras("pyarrow")
def test_a_parquet_file_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "table.parquet"
    parquet.write_table(pa.table({"label": np.zeros(10**6, int)}), path, row_group_size=10**6)
    monkeypatch.setattr("unskew.data.expansion._HARMLESS_BYTES", 10**6)
    with pytest.raises(UnskewError, match="would expand"):
        Federation.from_table(path, label="label")


@pytest.mark.parametrize("suffix", ["csv", "parquet", "toml"])
def test_pipes_and_sockets_are_refused_at_once(tmp_path, suffix, monkeypatch):
    from unskew.experiments.config import read_config

    monkeypatch.chdir(tmp_path)
    os.mkfifo(f"pipe.{suffix}")
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"socket.{suffix}")
    for name in (f"pipe.{suffix}", f"socket.{suffix}"):
        with pytest.raises(UnskewError, match="is not a file"):
            read_config(name) if suffix == "toml" else open_data(DataConfig(name=name), 0)
    server.close()
