"""Write docs/tuned-methods.md from the folder of a comparison.

unskew compare … --tune --out runs/fashion
python -m benchmarks.results runs/fashion docs/tuned-methods.md
"""

import argparse
from pathlib import Path

from unskew.report.first_screen import describe
from unskew.report.page import read_comparison
from unskew.report.tuning_table import tuning_table
from unskew.runs.read import read_runs
from unskew.runs.runs import Runs
from unskew.stats.verdict import TEST


def results_text(folder: Path) -> str:
    """Return the page: setting, command, results, verdicts and the chosen hyper-parameters."""
    known = read_comparison(folder)
    runs = known.sorted(read_runs([folder]))
    others, references = _split_references(runs)
    parts = [
        "# Results: all methods on Fashion-MNIST",
        f"{_setting(runs)} Written by `python -m benchmarks.results` from the runs of:",
        f"```\n{known.command}\n```",
        others.table_with_verdict(known.target).to_markdown(),
        "*Accuracy is that of the global model on the common test set, mean ± standard deviation "
        f"over seeds, {runs.final_text}; local is its mean accuracy on the clients' local test "
        "sets, worst its accuracy on the worst of these, personal the mean accuracy of the "
        "clients' own models on their local test sets. Rounds and MB are counted until the global "
        "model first reaches "
        f"the target; MB include both directions and all clients. Judged by: {TEST}.*",
        "Methods that train personal models are judged by the column *personal*: the global "
        "model of methods with several models or personal heads is an average that no client "
        "uses. In a round of FedCluster one of its 5 groups trains, so its clients train and send "
        "a fifth as often as FedAvg's.",
        *_verdicts(others),
        *_reference_parts(references),
        f"Training took {_hours(runs)} core hours in all, without the search.",
    ]
    tuned = tuning_table(runs)
    if tuned is not None:
        caption = f"{tuned.title}; see [tuning](tuning.md).".capitalize()
        parts += ["## Chosen hyper-parameters", caption, tuned.to_markdown()]
    return "\n\n".join(parts) + "\n"


_REFERENCES = ("central", "data-sharing")
"""Upper references: samples leave the clients."""


def _split_references(runs: Runs) -> tuple[Runs, Runs]:
    """Return the runs of methods and the runs of references."""
    names = {method for method in runs.methods if method.partition(":")[0] in _REFERENCES}
    return (
        Runs((r for r in runs if r.method not in names), final=runs.final, margin=runs.margin),
        Runs((r for r in runs if r.method in names), final=runs.final, margin=runs.margin),
    )


def _reference_parts(references: Runs) -> list[str]:
    if not len(references):
        return []
    return [
        "## References",
        "In these, samples leave the clients: they are upper references, not methods for a "
        "federation.",
        references.table().to_markdown(),
    ]


def _setting(runs: Runs) -> str:
    data = runs[0].metadata["data"]
    part = "" if data["samples"] is None else f", {data['samples']:,} of its training samples"
    return f"{data['name']}, {data['skew']}{part}: {describe(runs)}."


def _verdicts(runs: Runs) -> list[str]:
    found = {"global": runs.verdict(), "personal": runs.verdict("personal")}
    return [f"By {level} accuracy: {verdict}" for level, verdict in found.items() if verdict]


def _hours(runs: Runs) -> str:
    seconds = sum(row["seconds"] for run in runs for row in run.metrics)
    return f"{seconds / 3600:.1f}"


def main() -> None:
    """Read the two paths and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of the comparison")
    parser.add_argument("page", type=Path, help="Markdown file to write")
    requested = parser.parse_args()
    requested.page.write_text(results_text(requested.folder), encoding="utf-8")


if __name__ == "__main__":
    main()
