"""The app that ``unskew flower new`` writes, without running a federation."""

import tomllib

import pytest

from unskew.errors import UnskewError
from unskew.flower.loopback.apps import load_task, read_app_config, with_changes
from unskew.flower.scaffolding import write_app

OPTIONS = {"method": "fedprox:mu=0.1+ida", "data": "digits", "skew": "dirichlet:alpha=0.5"}


@pytest.fixture
def app(tmp_path):
    write_app(tmp_path / "My App_2", **OPTIONS, clients=3, rounds=7)
    return tmp_path / "My App_2"


def test_the_files_are_short_and_valid_python(app):
    names = {
        ".gitignore",
        "README.md",
        "client_app.py",
        "pyproject.toml",
        "server_app.py",
        "task.py",
    }
    assert {path.name for path in app.iterdir()} == names
    for path in app.glob("*.py"):
        compile(path.read_text(), path, "exec")
        assert len(path.read_text().splitlines()) < 40
        assert "$" not in path.read_text()


def test_flower_accepts_the_project(app):
    config = pytest.importorskip("flwr.common.config")
    project = tomllib.loads((app / "pyproject.toml").read_text())
    valid, errors, warnings = config.validate_config(project, check_module=True, project_dir=app)
    assert valid, errors
    assert warnings == []
    assert project["project"]["name"] == "my-app-2"


def test_the_configuration_is_flat_like_flowers(app):
    config = read_app_config(app)
    assert config["nodes"] == 3
    assert config["train.rounds"] == 7
    assert with_changes(config, {"nodes": 5}, app) == {**config, "nodes": 5}
    with pytest.raises(UnskewError, match=r"has no train\.momentum; add it there"):
        with_changes(config, {"train.momentum": 0.9}, app)


def test_the_task_has_the_given_options(app):
    task, config = load_task(app), read_app_config(app)
    assert (task.METHOD, task.MODEL) == ("fedprox:mu=0.1+ida", None)
    federation = task.federation({**config, "nodes": 5})
    assert len(federation) == 5
    assert task.settings(config) == {
        "rounds": 7, "epochs": 1, "batch_size": 32, "lr": 0.1, "evaluate_every": 1,
        "seed": 0,
    }  # fmt: skip


def test_nothing_is_overwritten(app):
    before = (app / "task.py").read_text()
    with pytest.raises(
        UnskewError, match="it already exists; choose a folder that is new or empty"
    ):
        write_app(app, **{**OPTIONS, "method": "fedavg"})
    assert (app / "task.py").read_text() == before


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        ({"method": "idaa"}, "idaa"),
        ({"data": "digit"}, "digits"),
        ({"skew": "dirichlett"}, "skew"),
        ({"model": "mlpp"}, "mlp"),
        ({"clients": 0}, "clients"),
        ({"method": "central"}, "they stay on their nodes"),
        ({"method": "feddisk:estimator=oracle"}, "they stay on their nodes"),
    ],
)
def test_invalid_options_are_rejected_before_anything_is_written(tmp_path, invalid, message):
    with pytest.raises(UnskewError, match=message):
        write_app(tmp_path / "app", **{**OPTIONS, **invalid})
    assert not (tmp_path / "app").exists()


def test_a_folder_without_an_app_is_rejected(tmp_path):
    with pytest.raises(UnskewError, match="unskew flower new DIR writes an app"):
        read_app_config(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'a'\n")
    with pytest.raises(UnskewError, match="is it a Flower app"):
        read_app_config(tmp_path)
    with pytest.raises(UnskewError, match=r"--check-parity needs the task\.py"):
        load_task(tmp_path)
    (tmp_path / "task.py").write_text("METHOD = 'ida'\n")
    with pytest.raises(UnskewError, match="has no MODEL, federation, settings"):
        load_task(tmp_path)
