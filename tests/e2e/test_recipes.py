"""The recipe of a page repeats the command, or is not shown."""

import html
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from unskew.data.catalogue import CATALOGUE
from unskew.runs.read import read_runs


def code_of(page):
    """The code of a page's recipe: shell commands and Python."""
    return [html.unescape(each) for each in re.findall(r"<pre><code>(.*?)</code>", page, re.S)]


SMALL = ("--methods", "fedavg,mean", "--seeds", "2", "--rounds", "1", "--model", "logistic")


def schools_table(folder):
    """Write a table where the source ``schools`` is looked for."""
    roles = CATALOGUE["schools"].table
    lines = [",".join([*roles.features, roles.label, roles.client])]
    for i in range(90):
        cells = [f"{'abc'[(i + j) % 3]}" for j, _ in enumerate(roles.features)]
        lines.append(",".join([*cells, f"{300 + i * 7 % 90}.5", "nes"[i % 3]]))
    (folder / "unskew").mkdir()
    (folder / "unskew" / "schools.csv").write_text("\n".join(lines))
    return roles


def test_a_recipe_brings_no_column_back(terminal, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = schools_table(tmp_path).features[:2]
    command = ("compare", "--data", "schools", "--features", ",".join(kept), *SMALL)
    terminal.output(*command, "--out", "some")
    terminal.output("compare", "--data", "schools", *SMALL, "--out", "all")
    (only,) = code_of(Path("some/report.html").read_text())
    assert shlex.split(only)[1:] == [*command, "--out", "some"]
    _, code = code_of(Path("all/report.html").read_text())
    names = {}
    exec(code, names)
    assert str(names["runs"].table()) == str(read_runs("all").table())


@pytest.mark.parametrize("kind", ["csv", "npz", "saved"])
def test_the_recipe_of_files_is_the_command(kind, terminal, tmp_path, data):
    name = f"it's {kind}"
    if kind == "csv":
        rows = [f"{i},{i % 7},{i % 2},{'nes'[i % 3]}" for i in range(60)]
        Path(name := f"{name}.csv").write_text("\n".join(["age,days,ill,site", *rows]))
        given = (name, *("--label-column", "ill", "--client-column", "site", "--features", "age"))
        given += ("--holdout", "0.2")
    elif kind == "npz":
        x, y = np.random.default_rng(0).integers(0, 256, (60, 4, 4), np.uint8), np.arange(60) % 2
        np.savez(name := f"{name}.npz", x_train=x, y_train=y, x_test=x, y_test=y)
        given = (name, "--skew", "iid", "--clients", "3")
    else:
        shutil.copytree(data, name)
        given = (name,)
    terminal.output("compare", "--data", *given, *SMALL, "--out", "runs")
    (command,) = code_of(Path("runs/report.html").read_text())
    assert shlex.split(command)[3] == name
