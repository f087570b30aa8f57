"""Methods in files of the user: ``my.py:GradNorm:mu=0.5``."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import unskew as us
from toys import vector_of
from unskew.errors import UnskewError
from unskew.methods import make_method, names_files

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


class Other:
    pass
'''
OPTIONS = {"model": "mlp:hidden=6", "rounds": 2, "batch_size": 4, "lr": 0.1}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my.py").write_text(FILE, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "spec",
    [
        "my.py:Proximal",
        "my.py:Proximal:mu=0.5",
        "my.py:Proximal:mu=0.5+ida",
        "ida+my.py:Proximal:mu=0.5",
        "ida:norm=2+my.py:Proximal:mu=1e+2,buffers=local+fedavgm",
    ],
)
def test_specs_round_trip(spec):
    method = make_method(spec)
    assert make_method(str(method)) == method
    assert str(method) == spec.replace("1e+2", "100.0").replace(
        "mu=100.0,buffers=local", "buffers=local,mu=100.0"
    )


@pytest.mark.parametrize("path", ["./my.py", "sub/../my.py", "{folder}/my.py"])
def test_a_file_has_one_name(path, folder):
    (folder / "sub").mkdir()
    spec = f"ida+{path.format(folder=folder)}:Proximal:mu=0.5"
    assert str(make_method(spec)) == "ida+my.py:Proximal:mu=0.5"
    assert make_method(spec) == make_method("ida+my.py:Proximal:mu=0.5")


def test_a_file_in_another_folder(folder, monkeypatch):
    (folder / "2nd").mkdir()
    monkeypatch.chdir("2nd")
    method = make_method("ida+../my.py:Proximal")
    assert str(method) == "ida+../my.py:Proximal"
    Path("3rd.py").write_text(FILE, encoding="utf-8")
    assert str(make_method("ida+3rd.py:Proximal")) == "ida+3rd.py:Proximal"


def test_it_trains_as_the_class_does(federation):
    run = us.train(federation, "my.py:Proximal:mu=0.5+ida", **OPTIONS)
    same = us.train(federation, "fedprox:mu=0.5+ida", **OPTIONS)
    assert torch.equal(vector_of(run), vector_of(same))
    assert run.method == "my.py:Proximal:mu=0.5+ida"


def test_an_edited_file_is_another_method(federation, folder):
    first = make_method("my.py:Proximal")
    us.train(federation, first, out=folder / "run", **OPTIONS)
    us.train(federation, "my.py:Proximal", out=folder / "run", resume=True, **OPTIONS)
    Path("my.py").write_text(FILE.replace("self.mu / 2", "self.mu / 3"), encoding="utf-8")
    assert make_method("my.py:Proximal") != first
    with pytest.raises(UnskewError, match="code"):
        us.train(federation, "my.py:Proximal", out=folder / "run", resume=True, **OPTIONS)


def test_a_file_may_import_its_neighbour(folder):
    Path("neighbour_of_my.py").write_text("STRENGTH = 3.0\n", encoding="utf-8")
    text = "from neighbour_of_my import STRENGTH\n" + FILE.replace("0.01\n", "STRENGTH\n")
    Path("my.py").write_text(text, encoding="utf-8")
    assert make_method("my.py:Proximal").parts[0].mu == 3.0
    assert str(folder) not in sys.path


def test_a_hook_may_import_its_neighbour(federation, folder, monkeypatch):
    Path("imported_late.py").write_text("from also_late import HALF\n", encoding="utf-8")
    Path("also_late.py").write_text("HALF = 0.5\n", encoding="utf-8")
    text = "def one(y, scores):\n    import metric_late\n    return metric_late.ONE\n"
    Path("metric.py").write_text(text, encoding="utf-8")
    Path("metric_late.py").write_text("ONE = 1.0\n", encoding="utf-8")
    late = "        from imported_late import HALF\n        return HALF * self.mu"
    Path("my.py").write_text(FILE.replace("        return self.mu / 2", late), encoding="utf-8")
    method = make_method(f"{folder}/my.py:Proximal:mu=0.5")
    monkeypatch.chdir("/")
    for runner in ("loop", "processes"):
        metrics = [f"{folder}/metric.py:one"]
        run = us.train(federation, method, runner=runner, workers=2, metrics=metrics, **OPTIONS)
        same = us.train(federation, "fedprox:mu=0.5", runner=runner, workers=2, **OPTIONS)
        assert torch.equal(vector_of(run), vector_of(same))
        assert run.last("local", "one") == 1.0
    assert str(folder) not in sys.path


@pytest.mark.long
def test_a_new_process_can_unpickle_a_part(folder):
    pickled = pickle.dumps(make_method("my.py:Proximal:mu=0.5"))
    code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()))"
    command = [sys.executable, "-c", code]
    shown = subprocess.run(command, input=pickled, capture_output=True, check=True).stdout
    assert shown == b"my.py:Proximal:mu=0.5\n"
    assert pickle.loads(pickled) == make_method("my.py:Proximal:mu=0.5")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("no.py:Proximal", "method: no.py cannot be read: No such file or directory"),
        ("my.py:Proximl", "method: my.py has no class 'Proximl'; did you mean 'Proximal'?"),
        ("my.py:Xyz", "method: my.py has no class 'Xyz'; its parts: Proximal"),
        ("my.py:Other", "Other in my.py is not a part; derive it from ClientSide"),
        ("my.py:replace", "replace in my.py is not a part"),
        ("my.py", "'my.py': write the file, the class and then options"),
        ("my.py:mu=0.5", "'my.py:mu=0.5': write the file, the class and then options"),
        ("my.py:Proximal:mu=x", "'my.py:Proximal': mu must be a valid number"),
        ("my.py:Proximal:my=1", "'my.py:Proximal' has no option 'my'; did you mean 'mu'?"),
        ("my.py:Proximal:mu=1+my.py:Proximal", "proximal is listed twice"),
    ],
)
def test_errors_name_the_fix(spec, message):
    with pytest.raises(UnskewError) as error:
        make_method(spec)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ny = x / 0\n", "my.py, line 2: ZeroDivisionError: division by zero"),
        ("x = (\n", "my.py, line 1: SyntaxError: '(' was never closed"),
        ("import sys\nsys.exit('bye')\n", "my.py, line 2: SystemExit: bye"),
        ("import json\n\njson.loads('')\n", "my.py, line 3: JSONDecodeError: Expecting value"),
        (FILE.replace("prepare", "preapre"), "Proximal defines preapre; did you mean prepare?"),
    ],
)
def test_a_file_that_fails_is_named_with_its_line(text, message):
    Path("my.py").write_text(text, encoding="utf-8")
    with pytest.raises(UnskewError) as error:
        make_method("my.py:Proximal")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_part_that_is_not_a_dataclass():
    plain = FILE.replace("@dataclass(frozen=True, kw_only=True)\n", "")
    Path("my.py").write_text(plain, encoding="utf-8")
    with pytest.raises(
        UnskewError, match="has an option mu but is not a dataclass; add @dataclass"
    ):
        make_method("my.py:Proximal:mu=0.5")


def test_which_specs_name_files():
    assert names_files("ida+my.py:Proximal")
    assert names_files("my.py")
    assert not names_files("ida+fedprox:mu=0.1")
