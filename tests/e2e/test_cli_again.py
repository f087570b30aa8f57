"""A finished comparison is printed again without reading its runs, unless something changed."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

import unskew as us
from terminal import PROGRAM
from toys import small_federation
from unskew.cli import main
from unskew.cli.recorded_output import RECORD
from unskew.errors import UnskewError
from unskew.experiments import comparison

OPTIONS = ("--methods", "fedavg,mean", "--rounds", 1, "--seeds", 2, "--jobs", 1, "--out", "out")


@pytest.fixture
def calls(monkeypatch):
    """The calls of ``compare``, which reads and judges the runs."""
    calls, compare = [], comparison.compare

    def counted(*args, **kwargs):
        calls.append(args)
        return compare(*args, **kwargs)

    monkeypatch.setattr(comparison, "compare", counted)
    return calls


COMMAND = ("compare", "--data", "samples", *OPTIONS)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with samples and a finished comparison."""
    folder = tmp_path_factory.mktemp("finished")
    small_federation().save(folder / "samples")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "200")
        patch.setenv("TERM", "dumb")
        patch.setattr("sys.argv", ["unskew", *map(str, COMMAND)])
        with pytest.raises(SystemExit, match="0"):
            main()
    return folder


@pytest.fixture
def command(finished, tmp_path, terminal, calls):
    """The command of a comparison that is finished in the terminal's folder."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return COMMAND


def test_a_finished_comparison_is_printed_again_without_reading_its_runs(
    terminal, command, calls, tmp_path
):
    record = (tmp_path / "out" / RECORD).read_bytes()
    first = terminal.run(*command)
    assert not calls
    (tmp_path / "out" / RECORD).unlink()
    assert terminal.run(*command) == first
    assert len(calls) == 1
    assert (tmp_path / "out" / RECORD).read_bytes() == record
    assert "fedavg" in first[1]
    assert first[1].endswith("page: out/report.html\n")


def test_it_needs_neither_pytorch_nor_scipy(command, tmp_path):
    program = [sys.executable, "-X", "importtime", *PROGRAM[1:], *map(str, command)]
    done = subprocess.run(program, cwd=tmp_path, check=True, capture_output=True, text=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "unskew.cli.recorded_output" in imported
    assert not {"torch", "scipy", "pandas", "matplotlib"} & imported
    assert "page: out/report.html" in done.stdout


def test_a_changed_digit_of_a_run_is_noticed(terminal, command, calls, tmp_path):
    path = tmp_path / "out/fedavg/seed0/metrics.jsonl"
    text = path.read_text()
    at = text.index('"accuracy": 0.') + len('"accuracy": 0.')
    path.write_text(f"{text[:at]}{(int(text[at]) + 1) % 10}{text[at + 1 :]}")
    code, _, errors = terminal.run(*command)
    assert (code, len(calls)) == (2, 1)
    assert "metrics.jsonl" in errors


@pytest.mark.parametrize("name", ["report.html", "table.csv"])
def test_a_removed_or_changed_file_is_written_again(terminal, command, calls, tmp_path, name):
    path = tmp_path / "out" / name
    content = path.read_bytes()
    path.unlink()
    terminal.run(*command)
    assert path.read_bytes() == content
    path.write_bytes(content.replace(b"fedavg", b"fedavv"))
    terminal.run(*command)
    assert path.read_bytes() == content
    assert len(calls) == 2
    terminal.run(*command)
    assert len(calls) == 2


def test_changed_samples_are_noticed(terminal, command, calls, tmp_path):
    path = tmp_path / "samples/train_x.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    code, _, errors = terminal.run(*command)
    assert (code, len(calls)) == (2, 1)
    assert "data" in errors


def test_other_options_and_terminals_are_noticed(terminal, command, calls, tmp_path, monkeypatch):
    assert "mean" in terminal.run(*command, "--margin", 2)[1]
    json.loads(terminal.run(*command, "--json")[1])
    monkeypatch.setenv("COLUMNS", "90")
    terminal.run(*command)
    assert len(calls) == 3
    code, _, errors = terminal.run(*command, "--no-resume")
    assert code == 2
    assert "there is a run already" in errors


def test_other_packages_and_another_version_of_the_code_are_noticed(
    terminal, command, calls, tmp_path, monkeypatch
):
    (tmp_path / "site/another_package-1.0.dist-info").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path / "site")
    terminal.run(*command)
    assert len(calls) == 1
    (tmp_path / "code/cli").mkdir(parents=True)
    monkeypatch.setattr("unskew.cli.recorded_output.__file__", f"{tmp_path}/code/cli/a.py")
    for text in ("a = 1", "a = 2"):
        (tmp_path / "code/cli/a.py").write_text(text)
        terminal.run(*command)
    assert len(calls) == 3
    terminal.run(*command)
    assert len(calls) == 3


DAMAGED = ("[]", "5", "[" * 100_000, '{"output": 5, "warnings": []}', '{"output": "a"}', "\x00")


@pytest.mark.parametrize("content", ["", *DAMAGED])
def test_a_damaged_record_is_not_used(terminal, command, tmp_path, monkeypatch, content):
    (tmp_path / "out" / RECORD).write_text(content)

    def read_again(*args, **kwargs):
        raise UnskewError("the runs are read again")

    monkeypatch.setattr(comparison, "compare", read_again)
    assert "the runs are read again" in terminal.error(*command)


@pytest.mark.parametrize("field", ["output", "warnings"])
def test_a_record_with_commands_to_the_terminal_is_not_printed(
    terminal, command, calls, tmp_path, field
):
    path = tmp_path / "out" / RECORD
    record = json.loads(path.read_text())
    record[field] = "\x1b]0;title\x07" if field == "output" else ["\x1b[2J"]
    path.write_text(json.dumps(record))
    code, output, errors = terminal.run(*command)
    assert (code, len(calls)) == (0, 1)
    assert "\x1b" not in output + errors


@pytest.mark.filterwarnings("always")
def test_warnings_are_repeated(terminal, calls, tmp_path):
    x, y = np.arange(80, dtype=np.float32).reshape(40, 2), np.arange(40) % 2
    federation = us.Federation.from_arrays(x, y, np.arange(40) % 3, common=(x[:20], y[:20]))
    federation.save(tmp_path / "samples")
    first, again = (terminal.run(*COMMAND) for _ in range(2))
    assert len(calls) == 1
    warnings = [line for line in first[2].splitlines() if line.startswith("warning: ")]
    assert warnings
    assert again[2].splitlines() == warnings
    assert again[1] == first[1]


def test_code_of_the_user_and_budgets_of_time_are_not_recorded(terminal, command, tmp_path):
    (tmp_path / "my.py").write_text(
        "import unskew as us\n\nclass Mine(us.ClientSide):\n    name = 'mine'\n"
    )
    for change in (("--methods", "my.py:Mine"), ("--decide", "--budget", "1m")):
        out = tmp_path / change[0]
        assert terminal.run(*command[:-1], out, *change)[0] == 0
        assert (out / "report.html").exists()
        assert not (out / RECORD).exists()


def test_a_folder_with_a_linked_folder_is_not_recorded(terminal, command, calls, tmp_path):
    (tmp_path / "out/link").symlink_to(tmp_path / "samples")
    for _ in range(2):
        assert terminal.run(*command)[0] == 0
    assert len(calls) == 2


@pytest.mark.filterwarnings("ignore")
def test_a_comparison_that_trained_nothing_fails_again(terminal, command, calls):
    diverging = ("--lr", "1e30", "--batch-size", 2, "--model", "mlp:hidden=8")
    codes = [terminal.run(*command[:-1], "failed", *diverging)[0] for _ in range(2)]
    assert (codes, len(calls)) == ([1, 1], 2)
