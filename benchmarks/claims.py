"""Draw the figures of docs/results.md from the kept results of the studies.

    python -m benchmarks.claims docs/results docs

Writes claims-PAPER.png: for IDA, FedFusion and FedSA the measured differences with their 95 %
intervals and the papers' differences as rings, for latent discrepancy the test loss by round.
Prints the number of claims per paper and verdict.
"""

import argparse
import json
import textwrap
from pathlib import Path
from typing import Any, get_args

from unskew.experiments.studies.claims import ClaimVerdict
from unskew.experiments.studies.measure_registry import measure_of
from unskew.utils.tables import Table

CURVES = "latent-niid"
"""The study whose curves are drawn."""
NAMES = {
    "feddisk": "FedDisk",
    "fedfusion": "FedFusion",
    "ida": "IDA",
    "latent": "latent discrepancy",
    "fedsa": "FedSA",
}
COLORS = {"held": "#2a7f3f", "not held": "#b3261e", "smaller than the paper's": "#b3261e"}


def rows_of(results: list[dict[str, Any]]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return text, verdict and difference of the claims about accuracy, against one rival each.

    A claim that is not held or undecided is shown with the rival that makes it so, the others with
    FedAvg, or with their first rival.
    """
    rows = []
    for result in results:
        for claim in result["claims"]:
            shown = [d for d in claim["differences"] if d["low"] is not None]
            if not shown or not measure_of(claim["measure"]).in_points:
                continue
            rival = next((d for d in shown if d["against"] == "FedAvg"), shown[0])
            if claim["verdict"] == "not held":
                rival = min(shown, key=lambda d: float(d["mean"]))
            elif claim["verdict"] == "undecided":
                rival = max(shown, key=lambda d: float(d["p"]))
            text = f"{result['study']}: {claim['text']} [{rival['against']}]"
            rows.append((text, claim["verdict"], rival))
    return rows


def draw_differences(path: Path, results: list[dict[str, Any]]) -> None:
    """Draw one line per claim: our interval, and a ring for the paper's difference."""
    from matplotlib.figure import Figure

    rows = rows_of(results)
    figure = Figure(figsize=(9, 0.9 + 0.42 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for y, (_, verdict, found) in enumerate(rows):
        color = COLORS.get(verdict, "#666666")
        axes.plot([found["low"], found["high"]], [y, y], color=color, lw=2)
        axes.plot(found["mean"], y, "o", color=color, ms=5)
        if found["paper"] is not None:
            axes.plot(found["paper"], y, "o", mfc="none", mec="black", ms=9)
    axes.axvline(0, color="#888888", lw=1)
    axes.set_yticks(range(len(rows)), [textwrap.fill(text, 70) for text, _, _ in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("symlog", linthresh=5)
    ticks = [-40, -20, -10, -5, -2, 0, 2, 5, 10, 20, 40]
    axes.set_xticks(ticks, [f"{tick:+d}" if tick else "0" for tick in ticks], fontsize=8)
    axes.set_xlabel(
        "difference to the rival in brackets, in percentage points (positive is better); "
        "ring: the paper's",
        fontsize=8,
    )
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


def draw_curves(path: Path, result: dict[str, Any]) -> None:
    """Draw the mean curve of each method in each case, with its standard deviation over seeds."""
    from matplotlib.figure import Figure

    cases = [case for case in result["cases"] if case["curves"]]
    labels = sorted({label for case in cases for label in case["curves"]}, key=str.casefold)
    colors = {label: f"C{i}" for i, label in enumerate(labels)}
    columns = min(2, len(cases))
    rows = -(-len(cases) // columns)
    figure = Figure(figsize=(4.5 * columns, 3 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, case in zip(grid.flat, cases, strict=False):
        for label, curve in case["curves"].items():
            axes.errorbar(curve["rounds"], curve["mean"], curve["sd"], marker="o", ms=3, capsize=2,
                          color=colors[label], label=label)  # fmt: skip
        axes.set(title=case["name"], xlabel="round", ylabel="test loss")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    for axes in grid.flat[len(cases) :]:
        axes.set_axis_off()
    figure.savefig(path, dpi=110)


def counts(results: list[dict[str, Any]]) -> Table:
    """Return the number of claims per paper and verdict, of the verdicts that a claim has."""
    found = {claim["verdict"] for result in results for claim in result["claims"]}
    verdicts = [verdict for verdict in get_args(ClaimVerdict) if verdict in found]
    rows = []
    for paper, name in NAMES.items():
        claims = [c["verdict"] for r in results if r["paper"] == paper for c in r["claims"]]
        rows.append([name, *(str(claims.count(verdict)) for verdict in verdicts)])
    every = [claim["verdict"] for result in results for claim in result["claims"]]
    rows.append(["all", *(str(every.count(verdict)) for verdict in verdicts)])
    return Table(["paper", *verdicts], rows)


def main() -> None:
    """Draw all figures and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="folder with one folder of results per study")
    parser.add_argument("out", type=Path, help="folder for the figures")
    requested = parser.parse_args()
    paths = sorted(requested.results.glob("*/result.json"))
    results = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    print(counts(results).to_markdown())
    for paper in NAMES:
        of_paper = [result for result in results if result["paper"] == paper]
        path = requested.out / f"claims-{paper}.png"
        if paper == "latent":
            draw_curves(path, next(r for r in of_paper if r["study"] == CURVES))
        elif paper != "feddisk":  # its figure is the map of benchmarks.feddisk_map
            draw_differences(path, of_paper)


if __name__ == "__main__":
    main()
