"""Mistakes in a file of the user lead to its line, and with --debug to the traceback."""

from pathlib import Path

import pytest

COMPARE = ("compare", "--rounds", 1, "--seeds", 1, "--samples", 200, "--clients", 3)
HEAD = """
import torch
from unskew.methods import Aspect, ClientSide, ServerSide
from unskew.aggregation.weighting import ClientWeighting


"""
WEIGHTS = (
    HEAD
    + """
class Mine(ServerSide):
    adds = frozenset({Aspect.WEIGHTS})

    def client_weights(self, server):
        return ClientWeighting("mine", lambda uploads: (WRONG, {}))
"""
)
TERM = (
    HEAD
    + """
class Mine(ClientSide):
    adds = frozenset({Aspect.LOCAL_LOSS})

    def loss_term(self, step, refs):
        return WRONG
"""
)
MISTAKES = [
    (WEIGHTS, "uploads.sample", "client_weights of 'mine' raised AttributeError: 'Uploads' object"),
    (WEIGHTS, "torch.ones(2)", "client_weights of 'mine' returned 2 weights for 3 clients"),
    (TERM, "step.weights * 2", "loss_term of 'mine' returned a tensor of shape ("),
    (TERM, "step.wieghts.sum()", "loss_term of 'mine' raised AttributeError: 'Step' object has"),
]


@pytest.mark.parametrize(("text", "wrong", "message"), MISTAKES)
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_mistake_leads_to_its_line(terminal, text, wrong, message, jobs):
    Path("my.py").write_text(text.replace("WRONG", wrong), encoding="utf-8")
    error = terminal.error(*COMPARE, "--methods", "fedavg,my.py:Mine", "--jobs", jobs)
    assert message in error
    assert "my.py, line 1" in error


def test_debug_shows_the_traceback(terminal):
    Path("my.py").write_text(TERM.replace("WRONG", "step.wieghts"), encoding="utf-8")
    for jobs in (1, 2):
        arguments = ("--methods", "fedavg,my.py:Mine", "--jobs", jobs, "--debug")
        code, output, errors = terminal.run(*COMPARE, *arguments)
        assert (code, output) == (2, "")
        assert "Traceback (most recent call last)" in errors
        assert "return step.wieghts" in errors
        assert errors.splitlines()[-1].startswith("error: client")
    Path("run.toml").write_text('method = "my.py:Mine"\n[data]\nname = "digits"\n')
    assert "Traceback" in terminal.run("run", "run.toml", "--debug")[2]
    assert "Traceback" not in terminal.run("run", "run.toml")[2]
