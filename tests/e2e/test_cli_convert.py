"""``unskew data convert``: tables, arrays and images become saved federations."""

import shlex

import numpy as np
import pytest
from PIL import Image

from unskew import Federation
from unskew.data.config import DataConfig
from unskew.data.load import depends_on_seed

RNG = np.random.default_rng(0)
X, Y, CLIENT = RNG.normal(size=(40, 3)), np.arange(40) % 2, np.repeat(["b", "a"], 20)


def test_a_table_becomes_a_federation(terminal, tmp_path):
    rows = "".join(
        f"{age:.3f},{'ny'[y]},{c}\n" for (age, *_), y, c in zip(X, Y, CLIENT, strict=True)
    )
    (tmp_path / "visits.csv").write_text("age,ill,site\n" + rows)
    command = ("data", "convert", "visits.csv", "out", "--label-column", "ill", "--features", "age")
    output = terminal.output(*command, "--client-column", "site", "--holdout", "0.25")
    assert output.endswith("written to out; use it with --data out\n")
    saved = Federation.open("out")
    assert (len(saved), saved.class_names, saved.test.samples) == (2, ("n", "y"), 10)
    assert "out: holds a saved federation; replace it with --force" in terminal.error(*command)
    assert "clients: there is one client" in terminal.output(*command, "--force")
    assert len(Federation.open("out")) == 1
    compared = terminal.json("data", "show", "out")
    assert compared["clients"] == 1


def test_the_folder_to_use_is_quoted_for_the_shell(terminal):
    np.savez("a.npz", x=X, y=Y, client=CLIENT)
    output = terminal.output("data", "convert", "a.npz", "it's & out")
    assert shlex.split(output)[-2:] == ["--data", "it's & out"]


def test_arrays_become_a_federation(terminal):
    np.savez("a.npz", x=X, y=Y, client=CLIENT, x_test=X[:5] + 1, y_test=Y[:5])
    terminal.output("data", "convert", "a.npz", "out", "--holdout", "0.2")
    saved = Federation.open("out")
    assert saved.client_names.tolist() == ["a", "b"]
    assert (saved.train.samples, saved.test.samples, saved.common.samples) == (32, 8, 5)
    assert terminal.json("data", "show", "a.npz")["clients"] == 2


def test_a_source_in_a_file_is_partitioned_or_keeps_its_groups(terminal):
    images = RNG.integers(0, 256, (40, 9, 9, 3), np.uint8)
    arrays = {"x_train": images, "y_train": Y, "x_test": images[:8], "y_test": Y[:8]}
    np.savez("plain.npz", **arrays)
    plain = terminal.json(
        "data", "show", "plain.npz", "--skew", "dirichlet:alpha=1", "--clients", 3
    )
    assert (plain["clients"], plain["shape"], plain["common"]) == (3, [3, 9, 9], 8)
    groups = {"group_train": np.arange(40) // 8, "group_test": np.arange(8) % 5}
    np.savez("femnist.npz", **arrays, **groups)
    terminal.output("data", "convert", "femnist.npz", "out")
    assert len(Federation.open("out")) == 5
    texts = np.array(["good day", "bad night"] * 20)
    np.savez("tweets.npz", **{**arrays, "x_train": texts, "x_test": texts[:8]}, **groups)
    terminal.output("data", "convert", "tweets.npz", "tweets")
    opened = Federation.open("tweets")
    assert {"good", "bad", "day", "night"} <= set(opened.vocabulary)
    assert len(opened) == 5


def test_a_folder_of_images_becomes_a_federation(terminal, tmp_path):
    for path in ("north/cat/1.png", "south/dog/2.png"):
        (tmp_path / "pets" / path).parent.mkdir(parents=True)
        Image.new("L", (9, 9)).save(tmp_path / "pets" / path)
    terminal.output("data", "convert", "pets", "out", "--size", "4")
    saved = Federation.open("out")
    assert (saved.shape, saved.client_names.tolist()) == ((1, 4, 4), ["north", "south"])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": X}, "a.npz: must hold the arrays x and y"),
        ({"x": X, "y": Y / 3}, "a.npz: y must be one integer label per sample"),
        ({"x": X, "y": np.int64(3)}, "a.npz: y must have one row per sample"),
        ({"x_train": X, "y_train": Y, "x_test": X, "y_test": Y}, "x_train must be uint8 images"),
    ],
)
def test_other_arrays_are_errors(terminal, arrays, message):
    np.savez("a.npz", **arrays)
    assert message in terminal.error("data", "convert", "a.npz", "out")
    terminal.error("data", "check", "a.npz")


def test_other_files_are_not_mixed_with(terminal, tmp_path):
    np.savez("a.npz", x=X, y=Y)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    assert "choose a folder that is new or empty" in terminal.error(
        "data", "convert", "a.npz", "full"
    )
    error = terminal.error("data", "convert", "a.npz", "out", "--skew", "iid")
    assert "a.npz: defines its own clients; remove skew" in error
    assert "unskew data convert visits.csv" in terminal.output("data", "convert", "--help")


def test_a_file_of_a_source_is_partitioned_by_the_seed(tmp_path):
    arrays = {"x_train": X, "y_train": Y, "x_test": X[:5], "y_test": Y[:5]}
    np.savez(tmp_path / "source.npz", **arrays)
    np.savez(tmp_path / "clients.npz", x=X, y=Y, client=CLIENT)
    assert depends_on_seed(DataConfig(name=str(tmp_path / "source.npz")))
    assert not depends_on_seed(DataConfig(name=str(tmp_path / "clients.npz")))
