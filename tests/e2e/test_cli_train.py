"""``unskew run``, ``methods`` and ``models`` as a user types them."""

import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
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
    facts = terminal.json("run", config, "--out", tmp_path / "run")
    assert facts["method"] == "fedprox:mu=0.1"
    assert (facts["model"], facts["rounds"], facts["seed"]) == ("logistic", 3, 0)
    assert facts["cost"]["parameters_up"] == 3 * 4 * 18
    assert set(facts["levels"]) == {"global", "local", "personal"}
    assert 0 <= facts["levels"]["global"]["accuracy"] <= 1
    assert facts["folder"] == str(tmp_path / "run")
    assert (tmp_path / "run" / "metrics.jsonl").read_text().count("\n") == 3


def test_set_changes_single_fields(terminal, config):
    options = ("--set", "train.rounds=2", "--set", "method=mean", "--set", "train.seed=3")
    facts = terminal.json("run", config, *options)
    assert (facts["rounds"], facts["method"], facts["seed"]) == (2, "mean", 3)


def test_the_file_s_own_folder_is_used_and_the_option_comes_first(terminal, config, tmp_path):
    config.write_text(f'out = "{tmp_path / "own"}"\n' + config.read_text())
    assert terminal.json("run", config)["folder"] == str(tmp_path / "own")
    facts = terminal.json("run", config, "--out", tmp_path / "other")
    assert facts["folder"] == str(tmp_path / "other")


def test_run_goes_on_with_resume(terminal, config, tmp_path):
    half, whole = tmp_path / "half", tmp_path / "whole"
    terminal.json("run", config, "--out", half, "--set", "train.rounds=1")
    assert terminal.json("run", config, "--out", half, "--resume")["rounds"] == 3
    terminal.json("run", config, "--out", whole)
    assert torch.equal(newest_vector(half), newest_vector(whole))


def test_a_source_by_name_is_dealt_out(terminal, tmp_path):
    path = tmp_path / "digits.toml"
    path.write_text(
        'model = "logistic"\n[data]\nname = "digits"\nskew = "dirichlet:alpha=0.3"\nclients = 3\n'
        "[train]\nrounds = 1\nsteps = 2\n"
    )
    facts = terminal.json("run", path)
    assert facts["data"] == "digits"
    assert facts["cost"]["parameters_up"] == 3 * (64 * 10 + 10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "train.lr=-1"], "train.lr must be greater than 0"),
        (["--set", "train.rouns=1"], "train.rouns is not known; did you mean 'rounds'?"),
        (["--set", "lr=0.1"], "lr is not known; did you mean 'train.lr'?"),
        (["--set", "method=fedavgg"], "did you mean 'fedavg'?"),
        (["--set", "model=resnet"], "model"),
        (["--set", "model=resnet18"], "use mlp or logistic"),
        (["--set", "data.skew=iid"], "brings its own clients"),
        (["--set", "data.name=nowhere"], "nowhere"),
        (["--set", "train.device=cuda"], "device: 'cuda' is not available here"),
        (["--set", "nonsense"], "write it as section.field=value"),
    ],
)
def test_bad_input_is_one_line_and_code_two(terminal, config, monkeypatch, options, words):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert words in terminal.complaint("run", config, *options)


def test_a_file_that_is_not_there(terminal):
    assert "none.toml: cannot be read" in terminal.complaint("run", "none.toml")


def test_a_folder_with_a_run_is_not_overwritten(terminal, config, tmp_path):
    terminal.json("run", config, "--out", tmp_path / "run")
    message = terminal.complaint("run", config, "--out", tmp_path / "run")
    assert "there is a run already; go on with it by resume=True (--resume)" in message
    message = terminal.complaint(
        "run", config, "--out", tmp_path / "run", "--resume", "--set", "train.lr=1"
    )
    assert "cannot resume, settings.lr was 0.05 and is now 1.0" in message


def test_a_failing_client_is_named_without_a_traceback(terminal, config, monkeypatch):
    from unskew.methods.fedprox import FedProx

    def broken(*arguments):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(FedProx, "prepare", broken)
    message = terminal.complaint("run", config)
    assert "client 0 failed in round 1, in prepare: RuntimeError: out of luck" in message


def test_ctrl_c_leaves_a_checkpoint_and_says_how_to_go_on(config, tmp_path):
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
    assert errors == "stopped; what has a folder goes on with --resume\n"
    (saved,) = (out / "checkpoints").glob("stage*")
    rounds = int(saved.name[-6:])
    # The stop may fall between a round's line and the note that the round is whole.
    assert (out / "metrics.jsonl").read_text().count("\n") in (rounds, rounds + 1)


def test_ctrl_c_in_a_run_goes_on_to_the_same_end(terminal, config, tmp_path, monkeypatch):
    from unskew.engine import stage

    played, play = [], stage.play_round

    def interrupted(*arguments):
        played.append(1)
        if len(played) == 3:
            raise KeyboardInterrupt
        return play(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(stage, "play_round", interrupted)
        code, output, errors = terminal.run("run", config, "--out", tmp_path / "run")
    assert (code, output) == (130, "")
    assert errors == "stopped; what has a folder goes on with --resume\n"
    assert terminal.json("run", config, "--out", tmp_path / "run", "--resume")["rounds"] == 3
    terminal.json("run", config, "--out", tmp_path / "whole")
    assert torch.equal(newest_vector(tmp_path / "run"), newest_vector(tmp_path / "whole"))


# unskew methods, unskew models, help


def test_methods_are_listed_with_their_options(terminal):
    rows = {row["name"]: row for row in terminal.json("methods")}
    assert rows["fedprox"]["options"] == {"buffers": "average", "mu": 0.01}
    assert rows["fedprox"]["searched"] == {"mu": [0.001, 0.01, 0.1, 1.0]}
    assert rows["fedbn"]["trained"] == "in the pool"
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
    for row in rows:
        for word in (row["name"], *row["title"].split(), *row["paper"].split()):
            assert word in output  # whole, on one line


def test_one_method_in_detail(terminal):
    output = terminal.output("methods", "scaffold")
    (line,) = (line for line in output.splitlines() if "sent to clients" in line)
    assert line.split(maxsplit=3)[3].strip() == "model, variate"
    assert "Karimireddy et al. 2020" in output
    assert "did you mean 'scaffold'?" in terminal.complaint("methods", "scafold")


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
    assert "did you mean 'vae'?" in terminal.complaint("models", "vea")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([], "unskew compare --data digits"),
        (["run"], "unskew run first.toml --set train.lr=0.05"),
        (["compare"], "--methods fedavg,mean,fedprox:mu=0.1"),
        (["compare"], "--tune --tune-lr 0.01,0.05,0.1"),
        (["methods"], "unskew compare --methods fedavg,fedprox:mu=0.1"),
        (["methods"], "unskew methods scaffold"),
        (["models"], "--model resnet18:norm=group"),
        (["models"], "unskew models vae"),
    ],
)
def test_help_teaches_by_example(terminal, command, words):
    for option in ("--help", "-h"):
        assert words in " ".join(terminal.output(*command, option).split())


def test_the_example_in_the_help_of_run_is_a_configuration(terminal):
    from unskew.config import read_config

    text = terminal.output("run", "--help")
    lines = [line.strip(" │\n") for line in text.splitlines()]
    start = next(i for i, line in enumerate(lines) if line.startswith('method = "fedprox'))
    stop = next(i for i, line in enumerate(lines) if line.startswith("lr = 0.1")) + 1
    Path("first.toml").write_text("\n".join(lines[start:stop]))
    assert read_config("first.toml").train.participation == 0.5


def test_a_real_process_prints_the_error_alone(config):
    done = subprocess.run(
        [*PROGRAM, "run", str(config), "--set", "train.rounds=0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {config}: train.rounds must be greater than")
    assert done.stderr.count("\n") == 1
