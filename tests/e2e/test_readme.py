"""The commands and examples of README.md work."""

import re
import shlex
from pathlib import Path

import pytest
import torch

import unskew as us
from toys import vector_of

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SKIPPED = ("unskew data fetch", "unskew flower up")
"""These need a package registry, or a minute of real processes (see tests/flower_deploy)."""


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for name, text in found if name == language]


def commands() -> list[str]:
    (block,) = (text for text in blocks("") if text.startswith("unskew"))
    lines = [line.partition("#")[0] for line in block.splitlines()]
    return [command.strip() for line in lines for command in line.split(";")]


def quick(text: str) -> str:
    """Return the text with two rounds instead of many."""
    text = re.sub(r"rounds=\d+", "rounds=2", text)
    return re.sub(r"--rounds \d+", "--rounds 2", text)


def test_commands_run_in_their_order(terminal):
    (config,) = blocks("toml")
    Path("experiment.toml").write_text(re.sub(r"rounds = \d+", "rounds = 2", config))
    for command in commands():
        if not command.startswith(SKIPPED):
            terminal.output(*shlex.split(quick(command))[1:])
    assert Path("distribution.png").is_file()
    assert Path("figures", "table.tex").is_file()
    assert Path("report.html").is_file()
    assert len(list(Path("runs/three").glob("*/seed*/run.json"))) == 9


def test_python_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "readme"}
    for text in blocks("python"):
        if "unskew.flower" in text:  # only server apps get a grid
            continue
        exec(compile(quick(text), "README", "exec"), names)
    assert names["run"].method == "fedprox:mu=0.1"
    custom = us.train(names["fed"], names["method"], rounds=1)
    assert custom.method == "proximal:mu=0.1+ida"
    assert Path("runs/first/run.json").is_file()
    assert "worst client" in capsys.readouterr().out


def test_the_method_in_the_readme_is_fedprox(federation):
    (snippet,) = [block for block in blocks("python") if "class Proximal" in block]
    assert len(snippet.splitlines()) <= 25
    names = {"__name__": "readme"}
    exec(snippet, names)
    options = {"model": "mlp:hidden=8", "rounds": 2, "lr": 0.1}
    mine, built_in = (
        us.train(federation, method, **options)
        for method in (names["method"], "fedprox:mu=0.1+ida")
    )
    assert torch.equal(vector_of(mine), vector_of(built_in))


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", README))
def test_links_are_valid(link):
    assert (Path(__file__).parents[2] / link).exists()
