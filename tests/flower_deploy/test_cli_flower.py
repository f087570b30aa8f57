"""``unskew flower`` as a user types it; the federation is played in this process."""

import json

import pytest

pytest.importorskip("psutil")
pytest.importorskip("trustme")

import unskew as us
from unskew.cli import flower_up
from unskew.flower.loopback.apps import changed, load_task, read_app_config
from unskew.flower.loopback.federation import Outcome


@pytest.fixture
def unskew(tmp_path, monkeypatch, capsys):
    """Type a command; return its exit code, and what it prints on both streams."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def type_(*arguments: object) -> tuple[int, str, str]:
        from unskew.cli import main

        monkeypatch.setattr("sys.argv", ["unskew", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, *capsys.readouterr()

    return type_


class PlayedHere:
    """Stands in for the programs of a federation: it trains in this process, on the side."""

    seed_shift, status = 0, "finished:completed"

    def __init__(self, folder, nodes, *, tls, kept):
        self.nodes = nodes

    def __enter__(self):
        return self

    def __exit__(self, *reason):
        pass

    def run(self, app, changes, seconds, watch):
        config = changed(read_app_config(app), changes, app)
        assert config["nodes"] == self.nodes
        task = load_task(app)
        settings = {**task.settings(config), "runner": "loop"}
        settings["seed"] += self.seed_shift
        us.train(
            task.federation(config), task.METHOD, model=task.MODEL, out=config["out"],
            resume=config["resume"], progress=False, **settings,
        )  # fmt: skip
        watch()
        return Outcome(1, self.status, "the server said\nsomething last")


@pytest.fixture
def app(unskew, monkeypatch):
    monkeypatch.setattr(flower_up, "Loopback", PlayedHere)
    monkeypatch.setattr("unskew.cli.flower.find_spec", lambda name: object())
    code, output, errors = unskew(
        "flower", "new", "app", "--method", "ida", "--model", "mlp:hidden=4", "--clients", 3,
        "--rounds", 4,
    )  # fmt: skip
    assert (code, errors) == (0, "")
    assert "app/server_app.py" in output
    assert output.endswith("try it: unskew flower up app --nodes 3 --tls --check-parity\n")
    return "app"


def test_rounds_are_shown_and_parity_is_said(unskew, app):
    code, output, errors = unskew(
        "flower", "up", app, "--nodes", 2, "--rounds", 2, "--check-parity"
    )
    assert (code, errors) == (0, "")
    lines = output.splitlines()
    assert lines[0] == "2 nodes, no TLS; logs: app/runs/1/logs"
    assert " ".join(lines[1].split()) == "stage round nodes train loss global local seconds"
    assert [line.split()[:3] for line in lines[2:4]] == [["task", "1", "2/2"], ["task", "2", "2/2"]]
    assert lines[-1].startswith("parity: in one process, all ")
    assert unskew("flower", "up", app, "--rounds", 1)[1].startswith(
        "3 nodes, no TLS; logs: app/runs/2"
    )


def test_other_weights_exit_with_one(unskew, app, monkeypatch):
    monkeypatch.setattr(PlayedHere, "seed_shift", 1)
    code, output, _ = unskew("flower", "up", app, "--rounds", 1, "--check-parity")
    assert code == 1
    assert "NOT allowed" in output


def test_a_run_that_failed_is_told_with_its_last_words(unskew, app, monkeypatch):
    monkeypatch.setattr(PlayedHere, "status", "finished:failed")
    code, _, errors = unskew("flower", "up", app, "--rounds", 1)
    assert code == 2
    assert errors.startswith("error: the run ended as finished:failed; logs are in app/runs/1/logs")
    assert "    something last" in errors


def test_a_run_goes_on_where_it_was(unskew, app):
    assert unskew("flower", "up", app, "--rounds", 1, "--out", "kept")[0] == 0
    code, output, _ = unskew("flower", "up", app, "--rounds", 3, "--out", "kept", "--resume")
    assert code == 0
    assert [line.split()[1] for line in output.splitlines() if line.startswith("task")] == list(
        "123"
    )


def test_what_to_go_on_with_must_be_said(unskew, app):
    code, output, errors = unskew("flower", "up", app, "--resume")
    assert (code, output) == (2, "")
    assert errors == "error: --resume: give --out too, the folder of the run to go on with\n"


def test_without_flower_the_fix_is_said(unskew, monkeypatch):
    monkeypatch.setattr("unskew.cli.flower.find_spec", lambda name: None)
    code, output, errors = unskew("flower", "up", "app")
    assert (code, output) == (2, "")
    assert errors == 'error: flower: it is not installed; pip install "unskew[flower]"\n'


def test_what_is_sent_is_told(unskew):
    code, output, _ = unskew("flower", "sends", "fedper", "feddisco", "--json")
    assert code == 0
    personal, histograms = json.loads(output)
    assert personal["of the model stays"] == "head"
    assert histograms["up besides the model"] == "label_counts"
    assert "label_counts" in unskew("flower", "sends", "feddisco")[1]


def test_rounds_say_who_was_missing_and_why(capsys, tmp_path):
    row = {
        "stage": "task", "round": 3, "clients": 4, "train_loss": None, "seconds": 1.25,
        "missing": {"1": "clinic-b: it is not connected"},
        "rejected": {"2": "clinic-c: it raised ValueError"},
        "kept_model": "fewer than 3 good uploads: the old model stays",
        "local": {"accuracy": 0.5, "loss": 1.0},
    }  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    flower_up.Rounds(tmp_path).show()
    _, line, *notes = capsys.readouterr().out.splitlines()
    assert line.split() == ["task", "3", "2/4", "-", "-", "50.00%", "1.2"]
    assert notes == [
        "  missing clinic-b: it is not connected",
        "  rejected clinic-c: it raised ValueError",
        "  fewer than 3 good uploads: the old model stays",
    ]
