"""What a page says of densities that were learned from clients' data."""

from unskew.runs.runs import Runs


def density_notes(runs: Runs) -> dict[str, str]:
    """Return a note on privacy for each method that learned a density."""
    notes = {}
    for run in runs:
        facts = run.facts.get("densities")
        if facts is not None and run.method not in notes:
            notes[run.method] = _note(facts)
    return notes


def _note(facts: dict[str, object]) -> str:
    budgets = [str(budget) for budget in _listed(facts["budgets"]) if budget is not None]
    private = (
        f"Local steps kept the budget epsilon/delta {', '.join(budgets)} (DP-SGD); "
        "numbers sent beside the model, such as validation losses, are not covered."
        if budgets
        else "No budget of differential privacy was set."
    )
    return (
        "clients sent models of the density of their data. One draw from the mixture tells at most "
        f"kappa times the entropy of a client's data about one draw from it; here kappa is "
        f"{facts['kappa_mean']:.3g} on average and {facts['kappa_max']:.3g} for the largest of "
        f"{facts['clients']} clients. {private}"
    )


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else []
