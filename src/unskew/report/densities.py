"""Privacy notes of a page about densities learned from clients' data."""

from unskew.runs.runs import Runs


def density_notes(runs: Runs) -> dict[str, str]:
    """Return a privacy note for each method that learned a density."""
    notes = {}
    for run in runs:
        recorded = run.metadata.get("densities")
        if recorded is not None and run.method not in notes:
            notes[run.method] = _note(recorded)
    return notes


def _note(recorded: dict[str, object]) -> str:
    budgets = [str(budget) for budget in _as_list(recorded["budgets"]) if budget is not None]
    private = (
        f"Local training kept the privacy budget epsilon/delta {', '.join(budgets)} (DP-SGD); "
        "values sent in addition to the model, such as validation losses, are not covered by it."
        if budgets
        else "No budget for differential privacy was set."
    )
    return (
        "clients sent models of the density of their data. A sample from the mixture reveals at "
        "most kappa times the entropy of a client's data about a sample from it; here kappa is "
        f"{recorded['kappa_mean']:.3g} on average and {recorded['kappa_max']:.3g} for the largest "
        f"of {recorded['clients']} clients. {private}"
    )


def _as_list(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else []
