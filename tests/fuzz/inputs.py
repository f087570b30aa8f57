"""The inputs of the fuzzing campaign: eight kinds, each made from a random generator.

A case adds to ``targets`` what it asks unskew to write besides the names in ``KINDS``.
"""

import json
import os
import random
import shutil
from pathlib import Path

import numpy as np

TEXTS = [
    "", " ", "0", "-1", "1", "3", "0.5", "1e400", "nan", "inf", "-inf", "9" * 400, "none", "true",
    "x", "fedavg", "fedprox:mu=0.1", "fedprox:mu=-1", "scaffold+moon", "+", ":", "a:b", "a=b", "=",
    ",", ",,", "dirichlet:alpha=0.1", "dirichlet:alpha=0", "digits", "mlp:hidden=4", "logistic",
    "no/such/file.csv", "..", "/", "~", "\x1b[31m", "\udcff", "$5_$", "=1+1", "[/x]", "漢字",
    "\u202e",
    "a\nb", "iid", "natural", "pathological:classes=2", "lenet", "[", "{", "'", '"', "\\", "%s",
    "{0}",
]  # fmt: skip

VALUES = [
    None, True, False, 0, 1, -1, 3, 10**9, 10**18, 10**30, -(10**18), 0.5, -0.5, 1e300,
    float("nan"), float("inf"), "", "x", "\x1b[31m", "\ud800", [], {}, [None], [[]], {"a": 1},
    [1, 2], "1", "$5_$",
]  # fmt: skip


def prepare(folder: Path) -> Path:
    """Make the valid files that cases are derived from."""
    import unskew as us
    from unskew.data.federation import Federation

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 3)).astype(np.float32), rng.integers(0, 3, 40)
    federation = Federation.from_arrays(
        x, y, [f"c{i % 4}" for i in range(40)], holdout=0.25, common=(x[:9], y[:9])
    )
    federation.save(folder / "federation")
    us.train(federation, model="logistic", rounds=2, out=folder / "run", checkpoint_seconds=0,
             progress=False)  # fmt: skip
    rows = [f"{a:.3f},{b:.3f},site {i % 3},{label}" for i, ((a, b, _), label) in
            enumerate(zip(x, y, strict=True))]  # fmt: skip
    (folder / "table.csv").write_text("\n".join(["a,b,client,label", *rows]) + "\n")
    columns = {"a": x[:, 0], "b": x[:, 1], "client": [f"s{i % 3}" for i in range(40)], "label": y}
    _write_parquet(folder / "table.parquet", columns)
    images = rng.integers(0, 255, (20, 28, 28), np.uint8)
    np.savez(folder / "mnist.npz", x_train=images[:12], y_train=np.arange(12) % 10,
             x_test=images[12:], y_test=np.arange(8))  # fmt: skip
    (folder / "run.toml").write_text(
        f'method = "fedavg"\nmodel = "logistic"\n[data]\nname = "{folder / "federation"}"\n'
        "[train]\nrounds = 1\nlr = 0.1\nbatch_size = 8\n"
    )
    return folder


def command_line(rng: random.Random, stock: Path, targets: set[str]) -> None:
    """Options with random values."""
    commands = {
        ("compare",): ["--data", "--skew", "--clients", "--samples", "--holdout", "--methods",
                       "--model", "--participation", "--cohort", "--epochs", "--batch-size",
                       "--lr", "--evaluate-every", "--target", "--set", "--features",
                       "--label-column", "--client-column", "--tune-lr"],
        ("data", "show"): ["--skew", "--clients", "--seed", "--holdout", "--features", "--size"],
        ("data", "partitioners"): [], ("methods",): [], ("models",): [], ("study", "show"): [],
        ("report",): ["--target"], ("watch",): ["--every"], ("data", "fetch"): [], ("run",): [],
    }  # fmt: skip
    command = rng.choice(list(commands))
    arguments = [*command]
    if command == ("compare",):
        data = rng.choice(["digits", str(stock / "federation"), str(stock / "table.csv")])
        arguments += ["--rounds", "1", "--seeds", "1", "--methods", "fedavg", "--data", data,
                      "--jobs", "1", "--steps", "1"]  # fmt: skip
    elif command == ("watch",):
        arguments += ["--once", rng.choice([str(stock / "run"), rng.choice(TEXTS)])]
    elif command == ("data", "fetch"):
        arguments += [rng.choice(["digits", "x", "\x1b", ""])]
    elif command == ("data", "show"):
        arguments += [rng.choice(["digits", str(stock / "table.csv"), rng.choice(TEXTS)])]
    else:
        arguments += [rng.choice(TEXTS)]
    if command == ("report",):  # ".." is the campaign's folder, which holds a run
        arguments += ["-o", "report.html"]
        targets.add("report.html")
    for option in rng.sample(commands[command], min(len(commands[command]), rng.randint(0, 2))):
        value = rng.choice(TEXTS)
        arguments += [option, f"{rng.choice(SETTINGS)}={value}" if option == "--set" else value]
    run_command(arguments)


SETTINGS = [
    "clip",
    "momentum",
    "quorum",
    "attack",
    "lr_decay",
    "weight_decay",
    "optimizer",
    "seed",
    "a.b",
]


def toml(rng: random.Random, stock: Path, targets: set[str]) -> None:
    """A configuration with damaged bytes or random values."""
    text = (stock / "run.toml").read_text()
    if rng.random() < 0.4:
        Path("run.toml").write_bytes(damaged(rng, text.encode()))
    else:
        fields = ["method", "model", "out", "data.name", "data.skew", "data.clients",
                  "data.samples",
                  "data.holdout", "data.pool", "data.features", "train.lr", "train.cohort",
                  "train.participation", "train.attack", "train.momentum", "train.seed",
                  "train.optimizer", "train.quorum", "train.evaluate_every", "train.x"]  # fmt: skip
        Path("run.toml").write_text(text)
        changes = [f"{rng.choice(fields)}={rng.choice(TEXTS)}" for _ in range(rng.randint(1, 2))]
        changes += ["train.rounds=1", "train.steps=1", "train.runner=loop"]
        # An out outside the folder of the case would be its right, but must not happen here.
        changes = [c for c in changes if not (c.startswith("out=") and c[4:] in ("/", "~", ".."))]
        outs = [Path(change[4:]) for change in changes if change.startswith("out=")]
        targets |= {out.parts[0] for out in outs if out.parts}
        return run_command(["run", "run.toml", *(f"--set={change}" for change in changes)])
    return run_command(["run", "run.toml"])


def csv(rng: random.Random, stock: Path, targets: set[str]) -> None:
    """A table with damaged bytes or unusual cells."""
    lines = (stock / "table.csv").read_text().splitlines()
    if rng.random() < 0.5:
        Path("t.csv").write_bytes(damaged(rng, "\n".join(lines).encode()))
    else:
        for _ in range(rng.randint(1, 5)):
            row = rng.randrange(len(lines))
            cells = lines[row].split(",")
            cells[rng.randrange(len(cells))] = rng.choice(TEXTS).replace("\udcff", "?")
            lines[row] = ",".join(cells)
        Path("t.csv").write_text("\n".join(lines) + "\n")
    _read_table("t.csv", rng)


def parquet(rng: random.Random, stock: Path, targets: set[str]) -> None:
    """A Parquet file with damaged bytes or columns of other types."""
    import pyarrow as pa

    if rng.random() < 0.5:
        Path("t.parquet").write_bytes(damaged(rng, (stock / "table.parquet").read_bytes()))
    else:
        kinds = [[1, 2, 3], [1.5, None, 2], ["a", "b", None], [[1], [2, 3], []], [{"a": 1}] * 3,
                 [b"\xff", b"", b"x"], [True, False, None], [10**18, 0, 1], [-1, 0, 1],
                 pa.array([1, 2, 3], pa.timestamp("s")), pa.array([1, 2, 3], pa.date32()),
                 pa.array(["a", "b", "a"]).dictionary_encode(), pa.nulls(3),
                 pa.array([1, 2, 3], pa.decimal128(5, 1)), [float("nan"), 1, 2],
                 [float("inf"), 1, 2], ["$5_$", "\x1b", "\u202e"]]  # fmt: skip
        columns = {name: rng.choice(kinds) for name in ("a", "b", "client", "label")}
        _write_parquet(Path("t.parquet"), columns)
    _read_table("t.parquet", rng)


def npz(rng: random.Random, stock: Path, targets: set[str]) -> None:
    """A source file with damaged bytes or arrays of other shapes and types."""
    from unskew.data.load import load
    from unskew.data.sources import count_samples

    if rng.random() < 0.5:
        Path("mnist.npz").write_bytes(damaged(rng, (stock / "mnist.npz").read_bytes()))
    else:
        arrays = dict(np.load(stock / "mnist.npz"))
        for _ in range(rng.randint(1, 2)):
            name = rng.choice([*arrays, "group_train", "group_test", "class_names", "group_names"])
            arrays[name] = odd_array(rng, arrays.get(name, np.arange(12)))
        np.savez("mnist.npz", **arrays)
    os.environ["UNSKEW_DATA"] = str(Path.cwd())
    try:
        count_samples(Path("mnist.npz"))
        load("mnist", rng.choice(["iid", "natural", "dirichlet:alpha=1"]), 2)
    finally:
        del os.environ["UNSKEW_DATA"]


def federation_folder(rng: random.Random, stock: Path, targets: set[str]) -> None:
    """A saved federation with damaged files."""
    shutil.copytree(stock / "federation", "f")
    path = rng.choice(sorted(Path("f").iterdir()))
    how = rng.random()
    if how < 0.4:
        path.write_bytes(damaged(rng, path.read_bytes()))
    elif path.suffix == ".npy":
        np.save(path, odd_array(rng, np.load(path)))
    else:
        metadata = json.loads(path.read_text())
        metadata[rng.choice(list(metadata))] = rng.choice(VALUES)
        path.write_text(json.dumps(metadata))
    if how > 0.9:
        run_command(["data", "show", "f"])
    else:
        _train("f")


def run_folder(rng: random.Random, stock: Path, targets: set[str]) -> None:
    """A run's folder with damaged files, reported, watched or resumed."""
    shutil.copytree(stock / "run", "r")
    files = [path for path in Path("r").rglob("*") if path.is_file()]
    path = rng.choice([*sorted(files), *[Path("r") / name for name in
                       ("run.json", "metrics.jsonl", "clients.jsonl")] * 4])  # fmt: skip
    if rng.random() < 0.4:
        path.write_bytes(damaged(rng, path.read_bytes()))
    elif path.suffix in (".json", ".jsonl"):
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        row = rng.randrange(len(lines))
        lines[row] = json.dumps(with_odd_value(rng, json.loads(lines[row])))
        path.write_text("\n".join(lines) + "\n")
    else:
        path.unlink()
    commands = [["report", "r", "-o", "page.html"], ["watch", "r", "--once"]]
    if rng.random() < 0.2:
        from unskew.data.federation import Federation
        from unskew.experiments.training import train

        train(Federation.open(stock / "federation"), model="logistic", rounds=3, out="r",
              resume=rng.random() < 0.8, progress=False)  # fmt: skip
    else:
        run_command(rng.choice(commands))


def python(rng: random.Random, stock: Path, targets: set[str]) -> None:
    """Arguments of the Python API."""
    from unskew.data.federation import Federation

    x, y = np.ones((6, 2), np.float32), np.array([0, 1, 2, 0, 1, 2])
    arguments = {"x": x, "y": y, "client": [0, 0, 0, 1, 1, 1]}
    for _ in range(rng.randint(1, 2)):
        name = rng.choice(["x", "y", "client", "common", "holdout", "classes", "name"])
        if name in ("x", "y", "client") and rng.random() < 0.7:
            arguments[name] = odd_array(rng, np.asarray(arguments[name]))
        else:
            arguments[name] = rng.choice(VALUES)
    federation = Federation.from_arrays(**arguments)
    repr(federation)
    federation.save("saved")
    Federation.open("saved")


KINDS = {
    "command line": (command_line, ()),
    "TOML": (toml, ("run.toml",)),
    "CSV": (csv, ("t.csv",)),
    "Parquet": (parquet, ("t.parquet",)),
    "npz": (npz, ("mnist.npz",)),
    "federation folder": (federation_folder, ("f",)),
    "run folder": (run_folder, ("r", "page.html")),
    "Python": (python, ("saved",)),
}
"""The kinds, and the names that a case may create in its folder: inputs, and what it asks for."""


def run_command(arguments: list[str]) -> None:
    """Run a command in this process."""
    import sys

    from unskew.cli import main

    previous, sys.argv = sys.argv, ["unskew", *arguments]
    try:
        main()
    finally:
        sys.argv = previous


def damaged(rng: random.Random, content: bytes) -> bytes:
    """Cut, change, repeat or insert bytes."""
    bytes_ = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(bytes_) + 1)
        match rng.randrange(5):
            case 0:
                del bytes_[place:]
            case 1:
                bytes_[place : place + 1] = bytes([rng.randrange(256)])
            case 2:
                bytes_[place:place] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 9)))
            case 3:
                del bytes_[place : place + rng.randint(1, 50)]
            case 4:
                bytes_[place:place] = rng.choice([b"[" * 3000, b'{"a":' * 3000, b"\xff\xfe", b"\0"])
    return bytes(bytes_)


def odd_array(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """Change the values, the type or the shape of an array."""
    choices = [
        lambda: array[:-1], lambda: array[:0], lambda: array[..., None], lambda: array.T,
        lambda: np.asarray(array.flat[0]) if array.size else array, array.ravel,
        lambda: array.astype(str), lambda: array.astype(np.float64) * np.nan,
        lambda: array.astype(np.float64) + np.inf, lambda: -array.astype(np.float64),
        lambda: array.astype(complex), lambda: array.astype("S9"), lambda: array.astype(bool),
        lambda: np.full(array.shape, 10**18), lambda: np.full(array.shape, -1),
        lambda: array.astype(">i8"), lambda: array.astype(np.uint64), lambda: array.astype("M8[s]"),
        lambda: array[::-1], lambda: np.full(array.shape, "\x1b[31m"),
        lambda: array.astype(np.int8), lambda: np.full(array.shape, 1e300),
    ]  # fmt: skip
    try:
        return rng.choice(choices)()
    except Exception:  # not every array can be converted
        return array


def with_odd_value(rng: random.Random, value: object) -> object:
    """Replace or remove one value somewhere in nested values."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: with_odd_value(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.6:
        place = rng.randrange(len(value))
        return [*value[:place], with_odd_value(rng, value[place]), *value[place + 1 :]]
    return rng.choice(VALUES)


def _read_table(path: str, rng: random.Random) -> None:
    from unskew.data.federation import Federation

    options = {"label": "label", "client": rng.choice([None, "client"])}
    if rng.random() < 0.5:
        options["features"] = ["a", "b"]
    federation = Federation.from_table(path, **options)
    repr(federation)


def _train(folder: str) -> None:
    from unskew.data.federation import Federation
    from unskew.experiments.training import train

    train(Federation.open(folder), model="logistic", rounds=1, steps=1, runner="loop",
          progress=False)  # fmt: skip


def _write_parquet(path: Path, columns: dict[str, object]) -> None:
    import pyarrow as pa
    from pyarrow import parquet as files

    files.write_table(pa.table(columns), path)
