"""Compare tuned methods on three federations, and write the page of the results.

A fourth comparison judges personal models; it is not part of the summary of the federations.

python -m benchmarks.three_federations run runs/three
python -m benchmarks.three_federations write runs/three docs/three-federations.md

``run`` trains what is missing in the folder, so it can be stopped and repeated; ``--only`` names
one comparison, ``--methods`` other methods and ``--on`` a cluster. ``write`` needs only the
federations that are finished, and keeps the sections of the page about the others. Beside the page
it writes the values of every seed (``NAME.json``) and the figures of the summary into the folder of
the page's name, so that the results can be judged again without the runs.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import unskew as us
from unskew.data.sources import local_file, read_npz
from unskew.report.comparisons.page import export_summary
from unskew.report.first_screen import describe
from unskew.report.page import COMPARISON, read_comparison
from unskew.report.tuning_table import recorded_searches, tuning_table
from unskew.runs.read import read_runs
from unskew.runs.run import TASK, Run
from unskew.runs.runs import Runs
from unskew.stats.verdict import TEST
from unskew.stats.waves import Waves
from unskew.utils.jsonable import to_jsonable

SEARCH_480 = ("--tune-rounds", "40", "--tune-budget", "480")
SEARCH_240 = ("--tune-rounds", "20", "--tune-budget", "240")
RATES_TO_HALF = ("--tune-lr", "0.01,0.5")
UP_TO_FIVE_SEEDS = ("--decide", "--max-seeds", "5")

LABEL_SKEW = (
    *("--data", "fashion", "--skew", "dirichlet:alpha=0.1", "--clients", "20"),
    *("--samples", "6000", "--participation", "0.5"),
)

METHODS = (
    "fedavg,mean,fedprox,scaffold,feddyn,fednova,fedavgm,fedadam,fedyogi,fedexp,fedcm,fedacg,"
    "fedsam,mofedsam,fedlesam,fedspeed,fedsmoo,fedlc,fedrs,fedntd,feddecorr,ccvr:samples=1000,"
    "feddisco,ida,fedawa,fedlws,fedsa,fedfusion,"
    "latent:vae_rounds=20,feddisk:density_rounds=20,local_rounds=10,ratio_rounds=10"
)
"""The five papers, and other weights, corrections of drift, server optimizers and calibrations.

CCVR's number of virtual features is fixed: 5,000 for each of 62 classes, the largest that a search
would try, take half a minute per evaluation.
"""

PERSONAL_METHODS = (
    "fedavg,local,ditto,fedper,fedrep,fedrod,fedala,fedbabu,fedproto,feddbe,fedpac,fedas"
)
"""Methods that give every client a model of its own; FedAvg's is the global one."""


@dataclass(frozen=True)
class Comparison:
    """A section of the page: its title, its data and length of training, and its methods."""

    title: str
    options: Sequence[str]
    methods: str = METHODS
    in_summary: bool = True
    """Whether it is one of the federations of the summary."""


COMPARISONS: Mapping[str, Comparison] = {
    "label-skew": Comparison(
        "Label skew: Fashion-MNIST, Dirichlet(0.1)",
        (*LABEL_SKEW, "--rounds", "80", *SEARCH_480, *RATES_TO_HALF, *UP_TO_FIVE_SEEDS),
    ),
    "feature-skew": Comparison(
        "Feature skew: Fashion-MNIST with noise that grows from client to client",
        ("--data", "fashion", "--skew", "noise:level=0.5", "--clients", "20",
         "--samples", "6000", "--participation", "0.5", "--rounds", "60", *SEARCH_240,
         *RATES_TO_HALF, *UP_TO_FIVE_SEEDS),
    ),
    "natural": Comparison(
        "Natural clients: writers of FEMNIST",
        ("--data", "{folder}/femnist-on-black.npz", "--skew", "natural", "--participation", "0.1",
         "--rounds", "60", *SEARCH_240, "--tune-lr", "0.1,4", *UP_TO_FIVE_SEEDS),
    ),
    "personal": Comparison(
        "Personal models under label skew: Fashion-MNIST, Dirichlet(0.1)",
        (*LABEL_SKEW, "--rounds", "60", *SEARCH_240, *RATES_TO_HALF, *UP_TO_FIVE_SEEDS,
         "--level", "personal"),
        PERSONAL_METHODS,
        in_summary=False,
    ),
}  # fmt: skip
"""What is compared, in the order of the page."""

TRAINING = (
    *("--model", "mlp:hidden=64", "--epochs", "1", "--evaluate-every", "4"),
    *("--seeds", "3"),
    *("--tune", "--tune-clip", "10", "--jobs", "2", "--workers", "1"),
)

INTRODUCTION = """\
FedAvg and other methods that give one global model, under label skew, under feature skew and on \
natural clients; and methods that give personal models, under label skew. In each comparison, \
every method has the same budget for its [search](tuning.md), counted in rounds of training. It \
is then trained with three seeds and judged [against FedAvg](verdicts.md); if it is still \
undecided, with up to two more. The network has one hidden layer, so that runs are long enough \
to converge.

- **At an edge** is a chosen value in the outer tenth of its searched range, or the first or \
last value of its list: values beyond it were not tried and may be better.
- **Clients with noise**: settings are chosen by the accuracy on held-out samples of the \
clients, which have the clients' noise; the common test is clean. A setting that suits noisy \
samples is not always the best on clean ones.
- **FEMNIST** is used white on black, as MNIST is: with LEAF's white background this network \
does not learn. `run` writes it to `femnist-on-black.npz` in its folder, which the command of \
the natural clients reads.
- **Personal models** are judged on the clients' own tests, with a search half as long; FedAvg \
counts with its global model. This comparison is not part of the summary.
- **Not compared** are rules against attackers (Krum, Multi-Krum, Bulyan, median, trimmed mean, \
RFA), since no client attacks; methods with several models (IFCA, CFL, FeSEM, FedGroup) and \
those that aim at fairness (AFL, q-FFL), whose goal is not one model's mean accuracy; FedBN, \
FedDNA and FedGN, which need normalization layers; references that pool or share samples \
(`central`, `data_sharing`); and, to limit the time, MOON, FedGen, FedMA, FedCluster, FedAdagrad \
and INTRAC.

```
python -m benchmarks.three_federations run runs/three
python -m benchmarks.three_federations write runs/three docs/three-federations.md
```"""


def run(
    folder: Path, names: Sequence[str], methods: str | None = None, on: str | None = None
) -> None:
    """Run the comparisons that are not finished, one after the other, here or on a cluster."""
    for name in names:
        if not (folder / name / COMPARISON).exists():
            if name == "natural":
                write_femnist_on_black(folder)
            wanted = COMPARISONS[name]
            options = [part.format(folder=folder) for part in wanted.options]
            command = ["compare", *options, "--methods", methods or wanted.methods, *TRAINING]
            where = ["--on", on] if on else []
            out = ["--out", str(folder / name)]
            subprocess.run([sys.executable, "-m", "unskew", *command, *where, *out], check=True)


def write_femnist_on_black(folder: Path) -> None:
    """Write FEMNIST with white characters on black, as in MNIST.

    LEAF's images are black on white. With pixels of 0.97 on average, the network does not learn
    within 60 rounds: FedAvg stays below 20 % at every learning rate.
    """
    path = folder / "femnist-on-black.npz"
    if not path.exists():
        arrays = read_npz(local_file("femnist"))
        images = {name: 255 - arrays[name] for name in ("x_train", "x_test")}
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, allow_pickle=False, **(arrays | images))


def write(folder: Path, page: Path) -> None:
    """Write the page, the values of every seed and the figures of the summary.

    Of a comparison that has no runs in the folder, the section on the page and its values are kept.
    """
    values = page.with_suffix("")
    values.mkdir(parents=True, exist_ok=True)
    kept = _sections_of(page)
    comparisons, sections, missing = dict[str, Runs](), [], []
    for name, wanted in COMPARISONS.items():
        path, title = values / f"{name}.json", wanted.title
        if (folder / name / COMPARISON).exists():
            known = read_comparison(folder / name)
            runs = known.sorted(read_runs([folder / name], tables=False))
            text = json.dumps(to_jsonable(record_of(runs)), indent=1)
            path.write_text(text + "\n", encoding="utf-8")
            comparisons[name] = runs
            sections.append(_section(title, runs, known.command or "", known.target))
        elif title in kept and path.exists():
            comparisons[name] = recorded_runs(json.loads(path.read_text(encoding="utf-8")))
            sections.append(kept[title])
        else:
            missing.append(title)
    if not sections:
        raise SystemExit(f"{folder} has no finished comparison")
    parts = ["# Tuned methods on three federations", INTRODUCTION]
    if missing:
        parts.append(f"Not trained yet: {'; '.join(missing)}.")
    federations = [runs for name, runs in comparisons.items() if COMPARISONS[name].in_summary]
    if len(federations) > 1:
        parts += _summary(federations, values)
    parts += [*sections, f"*Judged by: {TEST}.*"]
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def record_of(runs: Runs) -> dict[str, Any]:
    """Return what every method reached with every seed, and how it was set up."""
    tuned = recorded_searches(runs)
    methods = {
        method: {
            "tuning": {name: tuned[method][name] for name in ("requested", "chosen", "edges")}
            if method in tuned
            else None,
            "lr": runs.learning_rate(method),
            "failed": (failed := runs.failures(method)),
            "train_loss": {
                run.seed: _key_losses(run)
                for run in runs.of(method)
                if failed.get(run.seed) == "diverged"
            },
            "seeds": {
                run.seed: {
                    level: run.final_value(level, runs.metric.name, runs.final)
                    for level in ("global", "local", "personal")
                }
                for run in runs.of(method)
            },
        }
        for method in runs.methods
    }
    first = runs[0]
    return {
        "data": first.data,
        "skew": first.metadata.get("data", {}).get("skew"),
        "network": first.network,
        "clients": first.clients,
        "majority": {run.seed: run.metadata.get("data", {}).get("majority") for run in runs},
        "margin": runs.margin,
        "level": runs.requested_level,
        "waves": None if runs.waves is None else runs.waves.seeds,
        "methods": methods,
    }


def recorded_runs(record: Mapping[str, Any]) -> Runs:
    """Return runs with one evaluation each, the recorded one, which are judged as the runs were.

    Those that diverged have the training losses that show it.
    """
    runs = []
    for method, known in record["methods"].items():
        for seed, levels in known["seeds"].items():
            data = {"skew": record["skew"], "majority": record.get("majority", {}).get(seed) or {}}
            metadata = {"data": data, **({"tuning": known["tuning"]} if known["tuning"] else {})}
            rows = known.get("train_loss", {}).get(seed, [{}])
            metrics = [{"stage": TASK, "round": i + 1, **row} for i, row in enumerate(rows)]
            metrics[-1] |= {level: {"accuracy": value} for level, value in levels.items()}
            identity = (method, record["network"], record["data"], int(seed), record["clients"])
            runs.append(Run(*identity, metrics=metrics, metadata=metadata))
    waves = None if record["waves"] is None else Waves(tuple(record["waves"]))
    return Runs(runs, margin=record["margin"], waves=waves, level=record.get("level"))


def _key_losses(run: Run) -> list[dict[str, Any]]:
    """Return rows with the training losses by which a run diverged: first, least and last.

    No loss at all is recorded as a round that kept its model.
    """
    losses = [row["train_loss"] for row in run.task_metrics if row.get("train_loss") is not None]
    last = [row.get("train_loss") for row in run.task_metrics[-5:]]
    final = [loss for loss in last if loss is not None]
    if not final:
        return [{"kept_model": "no client's training ended with finite numbers"}]
    return [{"train_loss": loss} for loss in (losses[0], min(losses), *[median(final)] * 5)]


def _sections_of(page: Path) -> dict[str, str]:
    """Return the sections of a page that was written before, by their titles."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    sections = text.split("\n*Judged by:")[0].split("\n## ")[1:]
    return {each.split("\n")[0]: f"## {each}".strip() for each in sections}


def _summary(comparisons: Sequence[Runs], values: Path) -> list[str]:
    summary = us.summarize(comparisons)
    export_summary(values, summary)
    figures = sorted(path.name for path in values.glob("*.svg"))
    shown = [f"![{name.removesuffix('.svg')}]({values.name}/{name})" for name in figures]
    return ["## All federations", f"```text\n{summary}\n```", *shown]


def _section(title: str, runs: Runs, command: str, target: float | None) -> str:
    tuned = tuning_table(runs)
    parts = [
        f"## {title}",
        f"{describe(runs)}.",
        runs.table_with_verdict(target).to_markdown(),
        f"{runs.verdict()}",
        f"```\n{command}\n```",
    ]
    if tuned is not None:
        parts += [f"{tuned.title}:".capitalize(), tuned.to_markdown()]
    return "\n\n".join(part for part in parts if part)


def main() -> None:
    """Run the comparisons or write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    steps = parser.add_subparsers(dest="step", required=True)
    running = steps.add_parser("run", help="train what is missing")
    running.add_argument("folder", type=Path)
    running.add_argument("--only", choices=COMPARISONS, help="one comparison")
    running.add_argument("--methods", help="other methods than those of the page")
    running.add_argument("--on", metavar="CLUSTER", help="as in unskew compare, say ray or dask")
    writing = steps.add_parser("write", help="write the page")
    writing.add_argument("folder", type=Path)
    writing.add_argument("page", type=Path)
    requested = parser.parse_args()
    if requested.step == "run":
        names = [requested.only] if requested.only else list(COMPARISONS)
        run(requested.folder, names, requested.methods, requested.on)
    else:
        write(requested.folder, requested.page)


if __name__ == "__main__":
    main()
