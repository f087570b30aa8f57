"""``unskew run``, ``compare``, ``methods`` and ``models`` as a user types them."""

import html
import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from toys import small_federation

PROGRAM = [sys.executable, "-c", "from unskew.cli import main; main()"]


@dataclass
class Terminal:
    """Types commands and reads what they print; one process, or torch would load each time."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def run(self, *arguments: object) -> tuple[int, str, str]:
        from unskew.cli import main

        self.monkeypatch.setattr("sys.argv", ["unskew", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        assert isinstance(end.value.code, int)
        return end.value.code, *self.capsys.readouterr()

    def output(self, *arguments: object) -> str:
        code, output, errors = self.run(*arguments)
        assert (code, errors) == (0, "")
        return output

    def json(self, *arguments: object) -> Any:
        return json.loads(self.output(*arguments, "--json"), parse_constant=pytest.fail)

    def complaint(self, *arguments: object) -> str:
        """Return the one line that bad input must end with."""
        code, output, errors = self.run(*arguments)
        assert (code, output) == (2, "")
        assert errors.count("\n") == 1
        assert errors.startswith("error: ")
        return errors


@pytest.fixture
def terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.chdir(tmp_path)
    return Terminal(monkeypatch, capsys)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A small saved federation, which opens at once."""
    return small_federation().save(tmp_path_factory.mktemp("data") / "small")


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
    assert "there is a run already; resume it" in message
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
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if (out / "metrics.jsonl").exists() and (out / "metrics.jsonl").stat().st_size > 2000:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert output == ""
    assert errors == "stopped; what has a folder goes on with --resume\n"
    (saved,) = (out / "checkpoints").glob("stage*")
    rounds = int(saved.name[-6:])
    # The stop may fall between a round's line and the note that the round is whole.
    assert (out / "metrics.jsonl").read_text().count("\n") in (rounds, rounds + 1)


def test_ctrl_c_in_a_run_goes_on_to_the_same_end(terminal, config, tmp_path, monkeypatch):
    from unskew.engine import train

    played, play = [], train.play_round

    def interrupted(*arguments):
        played.append(1)
        if len(played) == 3:
            raise KeyboardInterrupt
        return play(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(train, "play_round", interrupted)
        code, output, errors = terminal.run("run", config, "--out", tmp_path / "run")
    assert (code, output) == (130, "")
    assert errors == "stopped; what has a folder goes on with --resume\n"
    assert terminal.json("run", config, "--out", tmp_path / "run", "--resume")["rounds"] == 3
    terminal.json("run", config, "--out", tmp_path / "whole")
    assert torch.equal(newest_vector(tmp_path / "run"), newest_vector(tmp_path / "whole"))


# unskew compare


def compare(data: Path, *options: object) -> tuple[object, ...]:
    return ("compare", "--data", data, "--model", "logistic", "--rounds", 2, "--seeds", 2, *options)


def test_compare_prints_a_row_a_method(terminal, data):
    output = terminal.output(*compare(data, "--methods", "fedavg,fedprox:mu=0.1,buffers=local"))
    assert "custom, 4 clients, logistic, 2 rounds, 2 seeds" in output
    assert "fedprox:buffers=local,mu=0.1" in output
    assert "rounds to" in output


def test_compare_writes_runs_table_and_page(terminal, data, tmp_path):
    out = tmp_path / "comparison"
    output = terminal.output(*compare(data, "--methods", "fedavg,fedprox:mu=0.1", "--out", out))
    assert f"page: {out / 'report.html'}" in output
    for method in ("fedavg", "fedprox-mu=0.1"):
        for seed in (0, 1):
            assert (out / method / f"seed{seed}" / "metrics.jsonl").read_text().count("\n") == 2
    assert (out / "table.md").read_text().startswith("| method | accuracy |")
    assert (out / "table.tex").read_text().startswith("\\begin{tabular}")
    page = (out / "report.html").read_text()
    assert f"unskew compare --data {data} --model logistic" in page
    assert '<figure id="who-holds-what">' in page


def test_report_makes_the_page_of_a_comparison_again(terminal, data, tmp_path):
    out, again = tmp_path / "out", tmp_path / "again.html"
    terminal.output(*compare(data, "--methods", "mean,fedavg", "--out", out, "--target", "0.3"))
    figures = tmp_path / "figures"
    output = terminal.output("report", out, "-o", again, "--figures", figures)
    assert f"page: {again}" in output
    assert "leads by" in output
    assert again.read_text() == (out / "report.html").read_text()
    assert (figures / "global-accuracy.svg").is_file()
    assert (figures / "table.tex").is_file()


def test_report_of_nothing_is_one_line(terminal, tmp_path):
    assert "there is no run in it" in terminal.complaint("report", tmp_path)


def test_a_new_method_or_seed_plays_nothing_else(terminal, data, tmp_path, monkeypatch):
    from unskew.engine import train

    out, played, play = tmp_path / "out", [], train.play_round

    def noted(shop, *arguments):
        played.append(shop.settings.seed)
        return play(shop, *arguments)

    monkeypatch.setattr(train, "play_round", noted)
    for methods, seeds, new in (
        ("fedavg", 1, [0, 0]),
        ("fedavg,mean", 1, [0, 0]),
        ("fedavg,mean", 2, [1, 1] * 2),
        ("fedavg,mean", 2, []),
    ):
        played.clear()
        options = ("--methods", methods, "--out", out, "--seeds", seeds, "--jobs", 1)
        terminal.output(*compare(data, *options))
        assert played == new


def test_a_longer_run_is_not_taken_for_a_shorter(terminal, data, tmp_path):
    command = compare(data, "--methods", "fedavg", "--out", tmp_path / "out", "--rounds", 3)
    terminal.output(*command)
    message = terminal.complaint(*command, "--rounds", 2)
    assert "has 3 already (asked for 2)" in message
    terminal.output(*command, "--rounds", 4)


def test_compare_as_json_has_stdout_for_itself(terminal, data, tmp_path):
    code, output, errors = terminal.run(*compare(data, "--out", tmp_path / "out", "--json"))
    rows = json.loads(output, parse_constant=pytest.fail)
    assert code == 0
    assert errors == f"page: {tmp_path / 'out' / 'report.html'}\n"
    assert [row["method"] for row in rows] == ["fedavg", "mean", "fedprox"]
    assert all(row["seeds"] == 2 for row in rows)


def test_a_target_that_nobody_reaches_is_null(terminal, data):
    rows = terminal.json(*compare(data, "--methods", "mean", "--target", "1"))
    assert (rows[0]["reached"], rows[0]["rounds_to_target"]) == (0, None)


def test_compare_goes_on_with_resume(terminal, data, tmp_path):
    command = compare(data, "--methods", "fedavg", "--out", tmp_path / "out")
    first = terminal.output(*command)
    assert terminal.output(*command) == first
    assert "there is a run already" in terminal.complaint(*command, "--no-resume")
    message = terminal.complaint(*command, "--lr", "1")
    assert "cannot resume, settings.lr was 0.05 and is now 1.0" in message


def test_compare_deals_out_anew_for_each_seed(terminal, tmp_path):
    terminal.output(
        "compare", "--skew", "dirichlet:alpha=0.3", "--clients", 3, "--methods", "mean",
        "--model", "logistic", "--rounds", 1, "--seeds", 2, "--set", "steps=1",
        "--out", tmp_path / "out",
    )  # fmt: skip
    facts = [
        json.loads((tmp_path / "out" / "mean" / f"seed{seed}" / "run.json").read_text())
        for seed in (0, 1)
    ]
    assert facts[0]["identity"]["data"] != facts[1]["identity"]["data"]
    assert facts[0]["identity"]["settings"]["steps"] == 1


TUNED = ("--methods", "fedavg,fedprox,ditto", "--tune", "--tune-lr", "0.01,0.2", "--seeds", 1)


def test_a_tuned_comparison_says_what_was_chosen(terminal, data, tmp_path, monkeypatch):
    out = tmp_path / "out"
    command = compare(data, *TUNED, "--tune-trials", 3, "--tune-rounds", 1, "--out", out)
    output = terminal.output(*command)
    words = "tuned on 20 % of each client's training samples (trials a method: 3, rounds a trial: 1"
    assert words in " ".join(output.split())
    assert "personal accuracy" in output
    for suffix in ("csv", "tex", "md"):
        assert (out / f"tuning.{suffix}").is_file()
    assert (out / "tuning.md").read_text().startswith("| chosen | lr | validation |")
    page = (out / "report.html").read_text()
    assert "<h2>Tuning</h2>" in page
    tune = "tune={'lr': [0.01, 0.2], 'trials': 3, 'rounds': 1}"
    assert tune in html.unescape(page)
    assert "['fedavg', 'fedprox', 'ditto']" in html.unescape(page)
    facts = json.loads((out / "fedprox" / "seed0" / "run.json").read_text())
    assert facts["identity"]["settings"]["lr"] == facts["tuning"]["chosen"]["lr"]
    monkeypatch.setattr("unskew.engine.train.play_round", lambda *_: pytest.fail("played again"))
    assert terminal.output(*command) == output
    again = terminal.output("report", out, "-o", tmp_path / "again.html")
    assert words in " ".join(again.split())
    assert (tmp_path / "again.html").read_text() == page


def test_a_tuned_comparison_as_json(terminal, data):
    rows = terminal.json(*compare(data, *TUNED, "--tune-trials", 3))
    for row, asked in zip(rows, ("fedavg", "fedprox", "ditto"), strict=True):
        assert row["tuning"]["asked"] == asked
        assert row["tuning"]["chosen"]["method"] == row["method"]
        assert len(row["tuning"]["tried"]) == 3
        assert row["tuning"]["rounds"] == 1  # a quarter of two, rounded up


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--methods", "fedavg,fedpro"], "did you mean 'fedprox'?"),
        (["--methods", "fedavg,fedavg"], "methods: each may stand once"),
        (["--methods", ","], "methods: name at least one"),
        (["--lr", "-1"], "lr must be greater than 0"),
        (["--participation", "0"], "participation must be greater than 0"),
        (["--participation", "0.5", "--cohort", "2"], "give participation or cohort, not both"),
        (["--set", "momentun=0.9"], "momentun is not known; did you mean 'momentum'?"),
        (["--set", "seed=3"], "seed: a comparison has several; give seeds"),
        (["--set", "model=mlp"], "model is not known"),
        (["--set", "train.lr=1"], "train is not known"),
        (["--jobs", "0"], "jobs must be at least 1"),
        (["--tune-lr", "0.1,0.2"], "--tune-lr: belongs to a search; give --tune too"),
        (["--tune", "--tune-lr", "0.1;0.2"], "--tune-lr: write numbers with commas between"),
        (["--tune", "--tune-lr", "0.1"], "lr: give at least two learning rates"),
        (["--tune", "--tune-trials", "1"], "trials must be at least the number"),
        (["--tune", "--tune-rounds", "0"], "rounds must be greater than"),
        (["--tune", "--methods", "fedprox,fedprox:mu=1"], "may both become fedprox:mu=1.0"),
        (["--target", "75"], "target must be"),
        (["--target", "-0.1"], "target must be"),
        (["--clients", "3"], "brings its own clients"),
        (["--samples", "3"], "brings its own clients"),
        (["--skew", "dirichlt"], "did you mean 'dirichlet'?"),
    ],
)
def test_bad_comparisons_are_one_line_and_code_two(terminal, data, options, words):
    assert words in terminal.complaint(*compare(data, *options))


def test_nothing_is_left_behind_by_a_bad_comparison(terminal, data, tmp_path):
    terminal.complaint(*compare(data, "--lr", "-1", "--out", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


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
