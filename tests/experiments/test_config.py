"""Configurations: an error is one line that names the field."""

import pytest

import unskew as us
from toys import small_federation
from unskew.data.config import DataConfig
from unskew.data.load import open_data
from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.experiments.config import RunConfig, read_config, set_values
from unskew.utils.specs import validated

COMPLETE = """
method = "fedprox:mu=0.5"
model = "mlp:hidden=8"
out = "runs/first"

[data]
name = "digits"
skew = "dirichlet:alpha=0.1"
clients = 5
holdout = 0.1

[train]
rounds = 3
participation = 0.5
lr = 0.2
"""


@pytest.fixture
def config(tmp_path):
    def write(text: str):
        path = tmp_path / "run.toml"
        path.write_text(text)
        return path

    return write


def error_message(path, *changes) -> str:
    with pytest.raises(UnskewError) as caught:
        read_config(path, changes)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith((f"{path}: ", "--set "))
    return message.removeprefix(f"{path}: ")


def test_a_complete_configuration(config):
    parsed = read_config(config(COMPLETE))
    assert parsed.method == "fedprox:mu=0.5"
    assert parsed.data == DataConfig(
        name="digits", skew="dirichlet:alpha=0.1", clients=5, holdout=0.1
    )
    assert parsed.train == Settings(rounds=3, participation=0.5, lr=0.2)
    assert (parsed.model, parsed.out) == ("mlp:hidden=8", "runs/first")


def test_the_minimal_configuration(config):
    parsed = read_config(config('[data]\nname = "digits"'))
    assert parsed == RunConfig(data=DataConfig(name="digits"))
    assert (parsed.method, parsed.model, parsed.train) == ("fedavg", None, Settings())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train.rouns = 3", ["train.rouns", "not known", "did you mean 'rounds'?"]),
        ("metod = 'fedavg'", ["metod", "not known", "did you mean 'method'?"]),
        ("trian.lr = 1", ["trian", "not known", "did you mean 'train'?"]),
        ("train.rounds = 'many'", ["train.rounds", "must be a valid integer", "'many'"]),
        ("train.rounds = 1.5", ["train.rounds", "must be a valid integer", "1.5"]),
        ("train.rounds = 0", ["train.rounds", "greater than or equal to 1", "0"]),
        ("train.participation = 0", ["train.participation", "greater than 0"]),
        ("train.participation = 1.5", ["train.participation", "less than or equal to 1"]),
        ("train.lr = -0.1", ["train.lr", "greater than 0", "-0.1"]),
        ("train.lr = 'nan'", ["train.lr", "valid number"]),
        ("train.lr = nan", ["train.lr", "finite"]),
        ("train.lr = inf", ["train.lr", "finite"]),
        ("train.lr_decay = nan", ["train.lr_decay"]),
        ("train.weight_decay = inf", ["train.weight_decay", "finite"]),
        ("train.clip = 0", ["train.clip", "greater than 0"]),
        ("train.momentum = 1", ["train.momentum", "less than 1"]),
        ("train.optimizer = 'adamw'", ["train.optimizer", "'sgd' or 'adam'", "adamw"]),
        ("train.device = 'gpu'", ["train.device", "'cuda'", "gpu"]),
        ("train.memory = '8'", ["train.memory", "8GiB"]),
        ("train.seed = -1", ["train.seed", "greater than or equal to 0"]),
        ("data.clients = 0", ["data.clients", "greater than or equal to 1"]),
        ("data.holdout = 1", ["data.holdout", "less than 1"]),
        ("data.pool = 'both'", ["data.pool", "'train' or 'all'"]),
        ("data.skew = 'dirichelt'", ["data.skew", "did you mean 'dirichlet'?"]),
        ("data.skew = 'dirichlet:alpha=-1'", ["data.skew", "alpha", "greater than 0"]),
        ("data.skew = 'dirichlet:beta=1'", ["data.skew", "no option 'beta'"]),
        ("method = 'fedprx'", ["method", "did you mean 'fedprox'?"]),
        ("method = 'fedprox:nu=1'", ["method", "no option 'nu'", "did you mean 'mu'?"]),
        ("method = 'fedprox:mu=-1'", ["method", "mu", "greater than or equal to 0"]),
        ("method = 3", ["method", "must be a valid string", "3"]),
    ],
)
def test_the_wrong_field_is_named(config, line, words):
    message = error_message(config(f"data.name = 'digits'\n{line}"))
    assert all(word in message for word in words), message


def test_mutually_exclusive_fields(config):
    minimal = "data.name = 'digits'\n"
    both = error_message(config(minimal + "train.participation = 0.5\ntrain.cohort = 3"))
    assert both == "train: give participation or cohort, not both"
    both = error_message(config(minimal + "train.epochs = 1\ntrain.steps = 3"))
    assert both == "train: give epochs or steps, not both"
    both = error_message(config(minimal + "train.optimizer = 'adam'\ntrain.momentum = 0.9"))
    assert both == "train: momentum belongs to sgd; adam has its own"


def test_missing_data_is_named(config):
    assert error_message(config("method = 'fedavg'")) == "data is missing"
    assert error_message(config("[data]\nclients = 3")) == "data.name is missing"


def test_several_mistakes_are_all_named(config):
    message = error_message(config("train.lr = -1\ntrain.rounds = 0\n[data]\nname = 'digits'"))
    assert "train.lr" in message
    assert "train.rounds" in message


def test_files_that_cannot_be_read(config, tmp_path):
    with pytest.raises(UnskewError, match=r"none\.toml: cannot be read: No such file"):
        read_config(tmp_path / "none.toml")
    assert "is not TOML" in error_message(config("method = "))
    path = tmp_path / "bytes.toml"
    path.write_bytes(b"\xff\xfe\x00")
    assert "is not TOML" in error_message(path)


def test_set_overrides_single_fields(config):
    changes = [
        "train.lr=0.5",
        "data.clients = 7",
        "method=fedprox:mu=0.25",
        "train.optimizer=adam",
        "data.skew=dirichlet:alpha=0.3,min_size=2",
        'out="runs/2"',
        "train.lr=0.75",
    ]
    parsed = read_config(config(COMPLETE), changes)
    assert parsed.train.lr == 0.75
    assert parsed.train.rounds == 3
    assert parsed.data.clients == 7
    assert parsed.method == "fedprox:mu=0.25"
    assert parsed.train.optimizer == "adam"
    assert parsed.data.skew == "dirichlet:alpha=0.3,min_size=2"
    assert parsed.out == "runs/2"


def test_set_creates_missing_sections(config):
    parsed = read_config(config('[data]\nname = "digits"'), ["train.rounds=2"])
    assert parsed.train.rounds == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("train.lr", "write it as section.field=value"),
        ("=3", "write it as section.field=value"),
        ("method.x=3", "method is a value, not a section"),
        ("data.name.x=3", "name is a value, not a section"),
        ("train.lrr=3", "train.lrr is not known; did you mean 'lr'?"),
        ("train.lr=fast", "train.lr must be a valid number"),
        ("lr=0.1", "lr is not known"),
    ],
)
def test_invalid_set_values(config, change, words):
    assert words in error_message(config(COMPLETE), change)


def test_set_values_parses_toml_or_strings():
    assert set_values(["a=1", "b=true", "c=hello", "d=[1, 2]", "e=1e-3", "f=x=y"]) == {
        "a": 1, "b": True, "c": "hello", "d": [1, 2], "e": 0.001, "f": "x=y",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"skew": "n-classes:n=11"}, "n must be at most 10"),
        ({"clients": 100_000}, "clients must be from 1 to"),
        ({"name": "digist"}, "did you mean 'digits'?"),
    ],
)
def test_errors_that_depend_on_the_data(data, words):
    with pytest.raises(UnskewError, match=words):
        open_data(validated(DataConfig, {"name": "digits"} | data), 0)


def test_train_names_its_settings():
    with pytest.raises(UnskewError, match=r"^settings: lr must be greater than 0 \(got -1\)$"):
        us.train(small_federation(), lr=-1)
    with pytest.raises(UnskewError, match=r"round is not known; did you mean 'rounds'\?"):
        us.train(small_federation(), round=3)
    with pytest.raises(UnskewError, match=r"^settings: give participation or cohort, not both$"):
        us.train(small_federation(), participation=0.5, cohort=3)


def test_settings_are_an_object_or_keywords():
    settings = Settings(rounds=2)
    assert Settings.of(settings, {}) is settings
    assert Settings.of(None, {"rounds": 2}) == settings
    with pytest.raises(UnskewError, match="settings: given as an object; remove lr"):
        Settings.of(settings, {"lr": 0.1})
