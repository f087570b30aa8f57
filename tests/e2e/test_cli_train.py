"""The commands ``unskew run``, ``methods`` and ``models``."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from terminal import PROGRAM


@pytest.fixture
def config(tmp_path, data) -> Path:
    path = tmp_path / "first.toml"
    path.write_text(
        f'method = "fedprox:mu=0.1"\nmodel = "logistic"\n[data]\nname = "{data}"\n'
        "[train]\nrounds = 3\nbatch_size = 8\n"
    )
    return path


def newest_vector(folder: Path) -> torch.Tensor:
    newest = sorted((folder / "checkpoints").glob("stage*"))[-1]
    return load_file(newest / "server.safetensors")["now:vector"]


# unskew run


def test_run_prints_a_table_and_the_cost(terminal, config):
    output = terminal.output("run", config)
    assert "fedprox:mu=0.1 on custom" in output
    assert "worst client" in output
    rows = [line.split()[0] for line in output.splitlines() if line.count("%") > 1]
    assert rows == ["1", "2", "3"]
    assert "3 rounds, 0.00 MB up, 0.00 MB down" in output
    assert "written to" not in output


def test_run_as_json(terminal, config, tmp_path):
    printed = terminal.json("run", config, "--out", tmp_path / "run")
    assert printed["method"] == "fedprox:mu=0.1"
    assert (printed["model"], printed["rounds"], printed["seed"]) == ("logistic", 3, 0)
    assert printed["cost"]["parameters_up"] == 3 * 4 * 18
    assert set(printed["levels"]) == {"global", "local", "personal"}
    assert 0 <= printed["levels"]["global"]["accuracy"] <= 1
    assert printed["folder"] == str(tmp_path / "run")
    assert (tmp_path / "run" / "metrics.jsonl").read_text().count("\n") == 3


def test_set_changes_single_fields(terminal, config):
    options = ("--set", "train.rounds=2", "--set", "method=mean", "--set", "train.seed=3")
    printed = terminal.json("run", config, *options)
    assert (printed["rounds"], printed["method"], printed["seed"]) == (2, "mean", 3)


def test_the_option_out_overrides_the_folder_of_the_file(terminal, config, tmp_path):
    config.write_text(f'out = "{tmp_path / "first"}"\n' + config.read_text())
    assert terminal.json("run", config)["folder"] == str(tmp_path / "first")
    printed = terminal.json("run", config, "--out", tmp_path / "other")
    assert printed["folder"] == str(tmp_path / "other")


def test_run_resumes(terminal, config, tmp_path):
    half, whole = tmp_path / "half", tmp_path / "whole"
    terminal.json("run", config, "--out", half, "--set", "train.rounds=1")
    assert terminal.json("run", config, "--out", half, "--resume")["rounds"] == 3
    terminal.json("run", config, "--out", whole)
    assert torch.equal(newest_vector(half), newest_vector(whole))


def test_a_named_source_is_partitioned(terminal, tmp_path):
    path = tmp_path / "digits.toml"
    path.write_text(
        'model = "logistic"\n[data]\nname = "digits"\nskew = "dirichlet:alpha=0.3"\nclients = 3\n'
        "[train]\nrounds = 1\nsteps = 2\n"
    )
    printed = terminal.json("run", path)
    assert printed["data"] == "digits"
    assert printed["cost"]["parameters_up"] == 3 * (64 * 10 + 10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "train.lr=-1"], "train.lr must be greater than 0"),
        (["--set", "train.rouns=1"], "train.rouns is not known; did you mean 'rounds'?"),
        (["--set", "lr=0.1"], "lr is not known; did you mean 'train.lr'?"),
        (["--set", "method=fedavgg"], "did you mean 'fedavg'?"),
        (["--set", "model=resnet"], "model"),
        (["--set", "model=resnet18"], "use mlp or logistic"),
        (["--set", "data.skew=iid"], "defines its own clients"),
        (["--set", "data.name=nowhere"], "nowhere"),
        (["--set", "train.device=cuda"], "device: 'cuda' is not available here"),
        (["--set", "nonsense"], "write it as section.field=value"),
    ],
)
def test_invalid_input_prints_one_line_and_exits_with_2(
    terminal, config, monkeypatch, options, words
):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert words in terminal.error("run", config, *options)


def test_a_missing_file_is_an_error(terminal):
    assert "none.toml: cannot be read" in terminal.error("run", "none.toml")


def test_a_folder_with_a_run_is_not_overwritten(terminal, config, tmp_path):
    terminal.json("run", config, "--out", tmp_path / "run")
    message = terminal.error("run", config, "--out", tmp_path / "run")
    assert "there is a run already; resume it with resume=True (--resume)" in message
    message = terminal.error(
        "run", config, "--out", tmp_path / "run", "--resume", "--set", "train.lr=1"
    )
    assert "cannot resume, settings.lr was 0.05 and is now 1.0" in message


def test_a_failing_client_is_named_without_a_traceback(terminal, config, monkeypatch):
    from unskew.methods.fedprox import FedProx

    def broken(*arguments):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(FedProx, "prepare", broken)
    message = terminal.error("run", config)
    assert "client 0 failed in round 1, in prepare: RuntimeError: out of luck" in message


@pytest.mark.long
def test_ctrl_c_leaves_a_checkpoint_and_explains_how_to_resume(config, tmp_path):
    out = tmp_path / "run"
    options = ["run", str(config), "--out", str(out), "--set", "train.rounds=100000"]
    process = subprocess.Popen(
        [*PROGRAM, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 600
    while process.poll() is None and time.monotonic() < deadline:
        if (out / "metrics.jsonl").exists() and (out / "metrics.jsonl").stat().st_size > 2000:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    try:
        output, errors = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 130
    assert output == ""
    assert errors == "stopped; continue runs that have a folder with --resume\n"
    (saved,) = (out / "checkpoints").glob("stage*")
    rounds = int(saved.name[-6:])
    # The interrupt may fall between writing a round's metrics and marking the round as complete.
    assert (out / "metrics.jsonl").read_text().count("\n") in (rounds, rounds + 1)


def test_an_interrupted_run_resumes_to_the_same_result(terminal, config, tmp_path, monkeypatch):
    from unskew.engine import round_loop

    calls, run_round = [], round_loop.run_round

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return run_round(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(round_loop, "run_round", interrupted)
        code, output, errors = terminal.run("run", config, "--out", tmp_path / "run")
    assert (code, output) == (130, "")
    assert errors == "stopped; continue runs that have a folder with --resume\n"
    assert terminal.json("run", config, "--out", tmp_path / "run", "--resume")["rounds"] == 3
    terminal.json("run", config, "--out", tmp_path / "whole")
    assert torch.equal(newest_vector(tmp_path / "run"), newest_vector(tmp_path / "whole"))


# unskew methods, unskew models, help


def test_methods_are_listed_with_their_options(terminal):
    rows = {row["name"]: row for row in terminal.json("methods")}
    assert rows["fedprox"]["options"] == {"buffers": "average", "mu": 0.01}
    assert rows["fedprox"]["searched"] == {"mu": [0.001, 0.01, 0.1, 1.0]}
    assert rows["fedbn"]["runner"] == "processes"
    assert all(row["title"] and row["paper"] and row["sent to clients"] for row in rows.values())
    for option in ([], ["--long"]):
        table = terminal.output("methods", *option)
        assert all(name in table for name in rows)


@pytest.mark.parametrize("options", [[], ["--long"], ["fedprox+ida"]])
def test_methods_are_readable_in_80_columns(terminal, monkeypatch, options):
    monkeypatch.setenv("COLUMNS", "80")
    output = terminal.output("methods", *options)
    assert max(map(len, output.splitlines())) <= 80
    assert "…" not in output
    rows = terminal.json("methods", *(o for o in options if o != "--long"))
    for row in rows if isinstance(rows, list) else rows["parts"]:
        for word in (row["name"], *row["title"].split(), *row["paper"].split()):
            assert word in output  # whole, on one line


def test_one_method_in_detail(terminal):
    output = terminal.output("methods", "scaffold")
    (line,) = (line for line in output.splitlines() if "sent to clients" in line)
    assert line.split(maxsplit=3)[3].strip() == "model, variate"
    assert "Karimireddy et al. 2020" in output
    assert "did you mean 'scaffold'?" in terminal.error("methods", "scafold")


def test_the_parts_of_a_composition_are_shown_with_their_options(terminal):
    output = terminal.output("methods", "fedprox:mu=0.1+moon:mu=0.5+ida")
    assert output.startswith("fedprox:mu=0.1+moon:mu=0.5+ida: 3 parts")
    fedprox, moon, ida = output.split("\n\n")[1:4]
    assert fedprox.startswith("fedprox: ")
    assert "mu=0.1" in fedprox
    assert "mu=0.5" in moon
    assert "center=mean" in ida
    assert "adds to" in ida
    shown = terminal.json("methods", "fedprox:mu=0.1+ida")
    assert [part["name"] for part in shown["parts"]] == ["fedprox", "ida"]
    assert shown["parts"][0]["options"]["mu"] == 0.1
    error = terminal.error("methods", "median+ida")
    assert "median replaces the clients' weights, to which ida adds" in error


def test_models_are_listed_with_their_options(terminal):
    rows = {row["name"]: row for row in terminal.json("models")}
    assert rows["mlp"]["options"]["hidden"] == "200"
    assert rows["bilstm"]["takes"] == "text"
    table = terminal.output("models")
    assert all(name in table for name in rows)


def test_one_model_in_detail(terminal):
    output = terminal.output("models", "feddisk-cnn:padding=2")
    assert output.startswith("feddisk-cnn:padding=2: FedDisk's network")
    (line,) = (line for line in output.splitlines() if "smallest image" in line)
    assert line.split()[2:] == ["4", "x", "4"]
    (row,) = terminal.json("models", "mlp")
    assert row["meanings"]["hidden"] == "Widths of the layers, such as 64-32."
    assert "smallest image" not in terminal.output("models", "mlp")
    assert "did you mean 'vae'?" in terminal.error("models", "vea")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([], "unskew compare --data digits"),
        (["run"], "unskew run first.toml --set train.lr=0.05"),
        (["compare"], "--methods fedavg,mean,fedprox:mu=0.1"),
        (["compare"], "--tune --tune-lr 0.005,0.5"),
        (["methods"], "unskew compare --methods fedavg,fedprox:mu=0.1"),
        (["methods"], "unskew methods scaffold"),
        (["models"], "--model resnet18:norm=group"),
        (["models"], "unskew models vae"),
    ],
)
def test_help_shows_an_example(terminal, command, words):
    for option in ("--help", "-h"):
        assert words in " ".join(terminal.output(*command, option).split())


def test_the_example_in_the_help_of_run_is_a_configuration(terminal):
    from unskew.experiments.config import read_config

    text = terminal.output("run", "--help")
    lines = [line.strip(" │\n") for line in text.splitlines()]
    start = next(i for i, line in enumerate(lines) if line.startswith('method = "fedprox'))
    stop = next(i for i, line in enumerate(lines) if line.startswith("lr = 0.1")) + 1
    Path("first.toml").write_text("\n".join(lines[start:stop]))
    assert read_config("first.toml").train.participation == 0.5


@pytest.mark.long
def test_a_separate_process_prints_only_the_error(config):
    done = subprocess.run(
        [*PROGRAM, "run", str(config), "--set", "train.rounds=0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {config}: train.rounds must be greater than")
    assert done.stderr.count("\n") == 1


@pytest.mark.filterwarnings("ignore:.*left the model as it was")
def test_a_training_that_diverged_completely_is_not_a_success(terminal, data):
    options = [
        "--data",
        data,
        "--methods",
        "fedavg",
        "--rounds",
        2,
        "--seeds",
        1,
        "--lr",
        1e30,
        "--batch-size",
        2,
    ]
    code, output, errors = terminal.run("compare", *options)
    assert code == 1
    assert "failed rounds" in output
    assert "error: no round changed the model of fedavg (seed 0)" in errors
    code, output, errors = terminal.run("compare", *options, "--json")
    (row,) = json.loads(output)
    assert (code, row["failed_rounds"], row["verdict"]) == (1, 2, None)
    Path("run.toml").write_text(
        f'[data]\nname = "{data}"\n[train]\nrounds = 2\nlr = 1e30\nbatch_size = 2\n'
    )
    code, output, errors = terminal.run("run", "run.toml", "--json")
    assert (code, json.loads(output)["failed_rounds"]) == (1, 2)


@pytest.mark.parametrize("content", [b"a = \xff", b"a = " + b"[" * 5000, b"a = " + b"9" * 5000])
def test_toml_that_cannot_be_read_is_one_line(terminal, content):
    Path("bad.toml").write_bytes(content)
    assert "bad.toml: is not TOML" in terminal.error("run", "bad.toml")
    assert "is not TOML" in terminal.error("study", "show", "bad.toml")


def test_a_full_disk_is_one_line(terminal, config, monkeypatch):
    def fail(tensors, path):
        raise SafetensorError("Error while serializing: I/O error: No space left on device")

    monkeypatch.setattr("unskew.runs.checkpoint.save_file", fail)
    error = terminal.error("run", config, "--out", "run")
    assert "the checkpoint cannot be written (Error while serializing: I/O error: No space" in error


@pytest.mark.long
@pytest.mark.usefixtures("unmeasured")
def test_sigterm_saves_a_checkpoint_as_ctrl_c_does(config, tmp_path):
    out = tmp_path / "run"
    command = [*PROGRAM, "run", config, "--out", out, "--set", "train.rounds=100000"]
    command += ["--set", "train.checkpoint_seconds=1000"]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 600
    while not ((out / "metrics.jsonl").is_file() and (out / "metrics.jsonl").stat().st_size):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.terminate()
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 143
    assert errors.splitlines()[-1] == "stopped; continue runs that have a folder with --resume"
    assert list((out / "checkpoints").glob("stage0-round*"))
