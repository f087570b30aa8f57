"""Methods x attacks: the accuracy of the global model with and without one bad node of seven.

``python tests/flower/attack_table.py`` runs all of them in this process and writes the table of
docs/bad-nodes.md; names of methods as arguments print the rows of these methods only.
"""

import sys
import warnings
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import grids
import numpy as np
from bad_values import BAD, MEASURED, TRAIN, bad_forms, bad_numbers, declared, sending
from flwr.app import Array

import unskew as us
from every_method import ON_NODES
from unskew.data.columns import Columns
from unskew.methods import make_method

PAGE = Path(__file__).parents[2] / "docs" / "bad-nodes.md"
BEGIN, END = "<!-- attacks: begin -->", "<!-- attacks: end -->"
OPTIONS = {"rounds": 10, "lr": 0.1, "batch_size": 16, "evaluate_every": 10}
MODEL = "mlp:hidden=16"
COLUMNS = (
    "all honest",
    "without it",
    "10^12 samples, junk",
    "values out of range",
    "NaN model",
    "junk model",
    "9 x the samples, junk",
)


def seven():
    return us.load("digits", "dirichlet:alpha=1", 7, 0)


def with_more_samples(federation, times):
    """Return a federation in which the bad node has its samples several times."""
    clients = [federation.train.client(k) for k in range(len(federation))]
    x, y = clients[int(BAD)]
    clients[int(BAD)] = np.concatenate([x] * times), np.concatenate([y] * times)
    offsets = np.cumsum([0, *(len(y) for _, y in clients)])
    columns = (np.concatenate([each[i] for each in clients]) for i in (0, 1))
    return replace(federation, train=Columns(*columns, offsets))


def changing_model(change, samples=None):
    """Make the bad node send another model, and claim another number of samples."""

    def spoil(name, kind, reply):
        if name != BAD or reply.has_error():
            return reply
        if kind == TRAIN:
            arrays = reply.content.array_records["arrays"]
            arrays["model"] = Array(change(arrays["model"].numpy()))
            if samples is not None:
                reply.content.metric_records["metrics"]["num-examples"] = samples
        return reply

    return spoil


def junk(model):
    return np.random.default_rng(0).normal(size=model.shape).astype(model.dtype)


def dropping(name, kind, reply):
    return None if (name, kind) == (BAD, TRAIN) else reply


def accuracy(spec, spoil=None, federation=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = federation or seven()
        run = grids.run_on_grid(data, spec, model=MODEL, spoil=spoil, **OPTIONS).run
    return run.last("global", "accuracy")


def worst_value(spec):
    """Return the lowest accuracy over all values that the method receives, out of range."""
    spoils = [
        sending(name, change)
        for name, value in declared(make_method(spec)).items()
        for change in (bad_numbers(value) if name in MEASURED else bad_forms(value)).values()
    ]
    return min(accuracy(spec, spoil) for spoil in spoils)


def row(spec):
    samples = seven().train.sizes
    times = int(9 * np.median(samples) / samples[int(BAD)])
    measured = (
        accuracy(spec),
        accuracy(spec, dropping),
        accuracy(spec, changing_model(junk, samples=10**12)),
        worst_value(spec),
        accuracy(spec, changing_model(lambda model: model * np.nan)),
        accuracy(spec, changing_model(junk)),
        accuracy(spec, changing_model(junk), with_more_samples(seven(), times)),
    )
    cells = " | ".join(f"{100 * each:.1f}" for each in measured)
    return f"| `{spec.partition(':')[0]}` | {cells} |"


def main(methods):
    header = [f"| method | {' | '.join(COLUMNS)} |", "|---" + "|---:" * len(COLUMNS) + "|"]
    lines = []
    for spec in ON_NODES.values():
        if not methods or spec.partition(":")[0] in methods:
            lines.append(row(spec))
            sys.stdout.write(f"{lines[-1]}\n")
            sys.stdout.flush()
    if not methods:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        table = "\n".join([*header, *lines])
        PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


if __name__ == "__main__":
    main(sys.argv[1:])
