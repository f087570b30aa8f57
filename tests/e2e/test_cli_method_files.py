"""Methods in files of the user, on the command line and in TOML files."""

from pathlib import Path

import pytest

from unskew.runs.read import read_runs

FILE = '''
from dataclasses import dataclass, replace

from unskew.methods import Aspect, ClientSide


@dataclass(frozen=True, kw_only=True)
class Proximal(ClientSide):
    """FedProx."""

    mu: float = 0.01
    """Strength of the term."""
    adds = frozenset({Aspect.LOCAL_LOSS})
    grid = {"mu": (0.01, 0.1)}

    def prepare(self, client, start, payload, state):
        trainable = client.network.layout.trainable
        return replace(start, refs={"center": start.received[:trainable]})

    def loss_term(self, step, refs):
        return self.mu / 2 * (step.weights - refs["center"]).square().sum()
'''


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my.py").write_text(FILE, encoding="utf-8")
    return tmp_path


def test_the_command_line(terminal, folder):
    compare = ("compare", "--rounds", 2, "--seeds", 2, "--out", "runs", "--methods")
    terminal.output(*compare, "fedavg,my.py:Proximal:mu=0.5+ida,mean")
    methods = {run.method for run in read_runs(["runs"])}
    assert methods == {"fedavg", "my.py:Proximal:mu=0.5+ida", "mean"}
    assert (folder / "runs" / "my.py-Proximal-mu=0.5+ida" / "seed0" / "run.json").is_file()
    assert "my.py:Proximal:mu=0.5+ida" in (folder / "runs" / "report.html").read_text()
    assert "Strength of the term." in terminal.output("methods", "my.py:Proximal")
    assert "no class" in terminal.error(*compare, "my.py:Proximl")


def test_what_a_method_does_not_declare_is_not_claimed(terminal):
    lines = {line.strip() for line in terminal.output("methods", "my.py:Proximal").splitlines()}
    for key in ("kind", "sent to clients", "sent to the server", "needs individual updates"):
        assert any(line.startswith(key) and line.endswith("not declared") for line in lines)
    (alone,) = terminal.json("methods", "my.py:Proximal")
    assert alone["needs individual updates"] is None
    composed = terminal.json("methods", "my.py:Proximal+ida")
    assert composed["needs individual updates"] is True
    assert composed["sent to the server"] is None
    assert "not declared" in terminal.output("flower", "sends", "my.py:Proximal")
    assert terminal.json("methods", "ida+fedprox")["sent to clients"] == "model"


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_a_hook_that_changes_what_it_receives_is_an_error_that_leads_to_the_line(terminal, runner):
    line = "        trainable ="
    impure = FILE.replace(line, f"        start.received.mul_(0.9)\n{line}")
    Path("impure.py").write_text(impure, encoding="utf-8")
    options = ("--clients", 4, "--rounds", 2, "--seeds", 1, "--set", f"runner={runner}")
    error = terminal.error("compare", "--methods", "fedavg,impure.py:Proximal", *options)
    text = " ".join(error.split())
    assert "prepare of 'proximal' (impure.py, line 16) changed" in text
    assert "start.received in place" in text


def test_tuning_searches_the_grid_of_the_class(terminal):
    rows = terminal.json(
        *("compare", "--rounds", 2, "--seeds", 1, "--methods", "my.py:Proximal", "--tune"),
        *("--tune-lr", "0.1,0.2", "--tune-budget", 5, "--tune-rounds", 1),
    )
    assert rows[0]["method"].startswith("my.py:Proximal")
    assert rows[0]["tuning"]["requested"] == "my.py:Proximal"


def test_a_toml_file(terminal):
    text = 'method = "my.py:Proximal:mu=0.5+ida"\n[data]\nname = "digits"\n[train]\nrounds = 2\n'
    Path("run.toml").write_text(text, encoding="utf-8")
    assert terminal.json("run", "run.toml")["method"] == "my.py:Proximal:mu=0.5+ida"
    Path("run.toml").write_text(text.replace("Proximal", "Proximl"), encoding="utf-8")
    assert "did you mean 'Proximal'?" in terminal.error("run", "run.toml")


def test_a_report_imports_no_file(terminal, folder):
    terminal.output("compare", "--rounds", 1, "--seeds", 1, "--out", "runs", "--methods",
                    "fedavg,my.py:Proximal")  # fmt: skip
    Path("my.py").write_text("open('imported', 'w').close()", encoding="utf-8")
    terminal.output("report", "runs", "-o", "page.html")
    assert "my.py:Proximal" in Path("page.html").read_text(encoding="utf-8")
    assert not Path("imported").exists()
