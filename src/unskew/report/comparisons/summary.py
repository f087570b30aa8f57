"""Methods over federations: gains, ranks and answers of several comparisons."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.errors import UnskewError
from unskew.report.comparisons.reading import (
    federation_names,
    read_comparisons,
    remarks_on_comparisons,
)
from unskew.runs.runs import Runs, check_judging
from unskew.stats.hierarchical import Effect, Gain, estimate_gain, paired_effects
from unskew.stats.judging import MARGIN, by_position, default_baseline
from unskew.stats.metric import Metric
from unskew.stats.ranks import Ranks, federations_needed, rank_methods
from unskew.stats.verdict import Verdict
from unskew.utils.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class FederationResult:
    """One comparison: the verdict on its methods, and their effects.

    ``effects`` are mean differences to the baseline with their errors, in percentage points of
    accuracy or, for a loss, in per cent of the baseline's; positive is better.
    """

    name: str
    runs: Runs
    verdict: Verdict
    effects: Mapping[str, Effect]


@dataclass(frozen=True)
class ComparisonSummary:
    """What several comparisons, one per federation, say about methods.

    ``gains`` has the methods with an effect in two or more federations, the largest gain first.
    ``ranks`` is None if there are too few federations or methods that all of them have.
    ``methods`` are all methods, in the order in which they were run.
    """

    federations: tuple[FederationResult, ...]
    methods: tuple[str, ...]
    baseline: str
    metric: Metric
    margin: float
    gains: Mapping[str, Gain]
    ranks: Ranks | None
    remarks: tuple[str, ...]

    def effects(self, method: str) -> dict[str, Effect]:
        """Return a method's effect in each federation that has one, by the federation's name."""
        return {
            each.name: each.effects[method] for each in self.federations if method in each.effects
        }

    @property
    def ranked_methods(self) -> list[str]:
        """The methods that all federations have: those that can be ranked."""
        return _in_all(self.federations, self.methods, self.baseline)

    def table(self) -> Table:
        """Return one row per method, the largest gain first: gain, spread, probabilities, rank."""
        table: Table = _module("tables").gains_table(self)
        return table

    def answers(self) -> Table:
        """Return one row per method and one column per federation: differences and answers."""
        table: Table = _module("tables").answers_table(self)
        return table

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values; the keys are those of the dataclasses."""
        return {
            "baseline": self.baseline,
            "metric": self.metric.name,
            "margin": self.margin,
            "federations": [each.name for each in self.federations],
            "gains": {method: asdict(gain) for method, gain in self.gains.items()},
            "effects": {
                method: {name: asdict(effect) for name, effect in self.effects(method).items()}
                for method in self.methods
                if method != self.baseline
            },
            "answers": {
                method: {each.name: answer(each, method) for each in self.federations}
                for method in self.methods
                if method != self.baseline
            },
            "ranks": None if self.ranks is None else asdict(self.ranks),
            "remarks": list(self.remarks),
        }

    def plot(self, chart: str | None = None) -> "Figure":
        """Return a chart as a matplotlib figure: ``gains`` (the default) or ``ranks``."""
        figure: Figure = _module("charts").plot_summary(self, chart)
        return figure

    def report(self, path: str | Path = "summary.html") -> Path:
        """Write the page, one self-contained HTML file, and return its path."""
        page: Path = _module("page").write_summary(path, self)
        return page

    def __str__(self) -> str:
        return f"{self.table()}\n\n{self.answers()}"

    def __repr__(self) -> str:
        names = "; ".join(each.name for each in self.federations)
        return f"ComparisonSummary({', '.join(self.methods)}; {names})"

    def _repr_html_(self) -> str:
        html: str = _module("tables").summary_html(self)
        return html


def summarize(
    comparisons: Iterable[str | Path | Runs],
    *,
    baseline: str | None = None,
    margin: float | None = None,
) -> ComparisonSummary:
    """Summarise several comparisons, one per federation.

    ``comparisons`` are results of :func:`unskew.compare`, folders that it or ``unskew compare
    --out`` wrote, or folders with several of those. ``baseline`` is by default FedAvg, or the first
    method that all comparisons have. ``margin`` is the smallest gain that matters, in percentage
    points (for losses, in per cent of the baseline's), by default that of the comparisons. See
    ``docs/summary.md`` for the model.
    """
    if isinstance(comparisons, str | Path | Runs):
        comparisons = [comparisons]
    found = read_comparisons(comparisons)
    _check_metrics(found)
    chosen = _common_baseline(found, baseline)
    limit = _common_margin(found) if margin is None else margin
    check_judging("mean", limit)
    names = federation_names(found)
    federations = tuple(
        _result(name, runs.with_same_judging(runs, margin=limit), chosen)
        for name, runs in zip(names, found, strict=True)
    )
    methods = tuple(dict.fromkeys(method for runs in found for method in runs.methods))
    return ComparisonSummary(
        federations=federations,
        methods=methods,
        baseline=chosen,
        metric=found[0].metric,
        margin=limit,
        gains=_gains(federations, methods, limit),
        ranks=_ranks(federations, _in_all(federations, methods, chosen), chosen),
        remarks=tuple(remarks_on_comparisons(found, names)),
    )


def answer(federation: FederationResult, method: str) -> str | None:
    """Return the answer about a method in a federation; None if it was not compared there."""
    pair = next((pair for pair in federation.verdict.pairs if pair.method == method), None)
    if pair is not None:
        return pair.answer
    return federation.runs.not_judged.get(method)


def _module(name: str) -> Any:
    """Import a module of this package that uses this one, when it is needed."""
    return import_module(f"unskew.report.comparisons.{name}")


def _check_metrics(comparisons: Sequence[Runs]) -> None:
    by_metric = {runs.metric.name: runs[0] for runs in comparisons}
    if len(by_metric) > 1:
        (first, one), (second, other), *_ = by_metric.items()
        raise UnskewError(
            f"runs: {one.data} with {one.network} is judged by {first} and {other.data} with "
            f"{other.network} by {second}; summarise comparisons of one metric"
        )


def _common_baseline(comparisons: Sequence[Runs], requested: str | None) -> str:
    common = [
        method
        for method in comparisons[0].methods
        if all(method in runs.methods for runs in comparisons)
    ]
    if requested is not None and requested not in common:
        raise UnskewError(f"baseline: {requested!r} is not in every comparison")
    if not common:
        raise UnskewError(
            "runs: the comparisons have no method in common; run the baseline (fedavg) in each"
        )
    return requested or default_baseline(common)


def _common_margin(comparisons: Sequence[Runs]) -> float:
    """Return the margin of all comparisons if they agree, otherwise the default."""
    margins = {runs.margin for runs in comparisons}
    return margins.pop() if len(margins) == 1 else MARGIN


def _result(name: str, runs: Runs, baseline: str) -> FederationResult:
    verdict = runs.verdict(baseline=baseline)
    if verdict is None or verdict.baseline != baseline:
        raise UnskewError(f"{name}: {baseline} was not measured with every seed, or never trained")
    scores = {
        method: {run.seed: run.final_value(runs.level, runs.metric.name, runs.final) for run in of}
        for method in verdict.means
        if (of := runs.of(method))
    }
    # Losses of different data have different sizes, so they are compared in per cent.
    size = 1.0 if runs.metric.is_share else abs(verdict.means[baseline]) or 1.0
    unit = runs.metric.sign * size
    values = {m: {seed: 100 * v / unit for seed, v in by.items()} for m, by in scores.items()}
    return FederationResult(name, runs, verdict, paired_effects(by_position(values), baseline))


def _gains(
    federations: Sequence[FederationResult], methods: Sequence[str], margin: float
) -> dict[str, Gain]:
    found = {}
    for method in methods:
        effects = [each.effects[method] for each in federations if method in each.effects]
        if len(effects) > 1:
            found[method] = estimate_gain(effects, margin=margin)
    return dict(sorted(found.items(), key=lambda item: -item[1].mean))


def _in_all(
    federations: Sequence[FederationResult], methods: Sequence[str], baseline: str
) -> list[str]:
    return [
        method
        for method in methods
        if method == baseline or all(method in each.effects for each in federations)
    ]


def _ranks(
    federations: Sequence[FederationResult], methods: Sequence[str], baseline: str
) -> Ranks | None:
    if len(methods) < 2 or len(federations) < federations_needed(len(methods)):
        return None
    none = Effect(0.0, 0.0)  # the baseline's difference to itself
    values = {
        method: [
            none.mean if method == baseline else each.effects[method].mean for each in federations
        ]
        for method in methods
    }
    return rank_methods(values)
