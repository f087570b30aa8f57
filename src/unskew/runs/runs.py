"""The runs of a comparison: one row per method, with metrics over seeds."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from unskew.errors import UnskewError
from unskew.runs.cpu import cpus_text
from unskew.runs.frames import histories_frame, runs_frame
from unskew.runs.outcomes import Outcome, failures_of, identity, outcomes_of
from unskew.runs.precision import precisions_text
from unskew.runs.remarks import remarks_on
from unskew.runs.run import (
    NO_GLOBAL_MODEL,
    FinalBy,
    Level,
    Run,
    final_evaluations,
    level_of_clients,
    unfinished_text,
)
from unskew.runs.summary import FIXED_SPLIT, Summary, columns_text, summarize_method, summary_cells
from unskew.runs.target import check_target, common_target, target_text
from unskew.stats.judging import MARGIN, default_baseline
from unskew.stats.metric import ACCURACY, Metric
from unskew.stats.verdict import Verdict, judge_scores
from unskew.stats.waves import Waves
from unskew.utils.specs import lookup
from unskew.utils.tables import Table
from unskew.utils.wording import joined, plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


class Runs(Sequence[Run]):
    """The runs of a comparison.

    ``final`` is the number by which a run is judged: with ``mean`` the mean of the last tenth of
    its evaluations (at least five), with ``last`` the last one. The table shows means of these
    numbers over seeds, and :meth:`verdict` tests their differences. ``margin`` is the largest
    difference that does not matter, in percentage points of accuracy or, for a metric that is not
    a share of 1, in per cent of the baseline's. ``metric`` is the name of the metric that is
    judged, by default the one that the runs name. ``waves`` says in which waves seeds were added,
    if their number was not fixed. ``level`` is the :attr:`level` at which methods are compared.
    """

    def __init__(
        self,
        runs: Iterable[Run],
        *,
        final: FinalBy = "mean",
        margin: float = MARGIN,
        metric: str | None = None,
        waves: Waves | None = None,
        level: Level | None = None,
    ) -> None:
        self._runs = list(runs)
        check_judging(final, margin, level)
        self.requested_level = level
        """The level that was asked for; None if it follows from the runs."""
        self.final, self.margin, self.waves = final, margin, waves
        self._metric = None if metric is None else recorded_metric(self._runs, metric)
        self._verdicts: dict[tuple[str, str | None], tuple[object, Verdict | None]] = {}
        """The last verdict of a level and baseline, with what it was computed from."""

    def with_same_judging(self, runs: Iterable[Run], *, margin: float | None = None) -> "Runs":
        """Return other runs that are judged as these are."""
        return Runs(
            runs,
            final=self.final,
            margin=self.margin if margin is None else margin,
            metric=None if self._metric is None else self._metric.name,
            waves=self.waves,
            level=self.requested_level,
        )

    def __getitem__(self, index: Any) -> Any:
        return self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    @property
    def methods(self) -> list[str]:
        """The methods, in the order they were run."""
        return list(dict.fromkeys(run.method for run in self._runs))

    def of(self, method: str) -> list[Run]:
        """Return one method's runs."""
        return [run for run in self._runs if run.method == method]

    @property
    def untrained(self) -> list[str]:
        """The methods with a run in which no round changed the model: they are not judged."""
        return [m for m in self.methods if any(run.is_untrained for run in self.of(m))]

    def learning_rate(self, method: str) -> float:
        """Return the learning rate of a method's runs; NaN if it is unknown."""
        settings = self.of(method)[0].metadata.get("configuration", {})
        return float(settings.get("lr", math.nan))

    def default_target(self) -> float:
        """Return a target that all methods reach with every seed, except much worse ones."""
        name = self.metric.name
        curves = {
            method: [run.curve(self.level, name)[1] for run in self.of(method)]
            for method in self._trained
        }
        return common_target(self.metric, curves)

    @property
    def metric(self) -> Metric:
        """The metric by which the runs are compared."""
        return self._metric or self._default_metric

    @property
    def other_metrics(self) -> list[Metric]:
        """The metrics that are shown besides the one that is judged."""
        if not self._runs:
            return []
        shown = [*self._runs[0].other_metrics, self._default_metric]
        kept = {each.name: each for each in shown if each.name != self.metric.name}
        return list(kept.values())

    @property
    def _default_metric(self) -> Metric:
        return self._runs[0].metric if self._runs else ACCURACY

    @property
    def level(self) -> str:
        """The level at which runs are compared: the one that was asked for, or the default."""
        return self.requested_level or self.default_level

    @property
    def default_level(self) -> str:
        """The level at which runs are compared by default.

        It is personal if a method has personal models, which all runs must have measured; methods
        without them have their global model on the clients' own tests there. Otherwise it is
        global, or local without a common test.
        """
        metric = self.metric
        evaluated = [run for run in self._runs if run.is_evaluated]
        if self.has_personal_level and all(
            run.is_measured("personal", metric) for run in evaluated
        ):
            return "personal"
        return self.global_level

    @property
    def global_level(self) -> str:
        """Where global models are compared: global, on the common test, or without one local."""
        found = any(run.global_level(self.metric) == "global" for run in self._runs)
        return "global" if found else "local"

    @property
    def has_personal_level(self) -> bool:
        """Whether the personal models of a method were measured."""
        return any(run.level_of(self.metric) == "personal" for run in self._runs)

    def has_model(self, method: str, level: str) -> bool:
        """Return whether a method has a trained model to judge at a level."""
        return all(run.has_model(level) for run in self.of(method))

    @property
    def not_judged(self) -> dict[str, str]:
        """The methods that are not judged, each with the reason in a few words."""
        missing = [method for method in self.methods if not self.has_model(method, self.level)]
        return dict.fromkeys(missing, "no global model") | dict.fromkeys(
            self.untrained, "not trained"
        )

    @property
    def has_fixed_split(self) -> bool:
        """Whether all seeds have the same clients and the same test samples."""
        several = len({run.seed for run in self._runs}) > 1
        return several and all(run.metadata.get("fixed_split") for run in self._runs)

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        seeds = len({run.seed for run in self._runs})
        verdict = self.verdict() if self._runs else None
        leads = "" if verdict is None else f"; {verdict.leader} leads"
        return f"Runs({', '.join(self.methods) or 'none'}; {plural(seeds, 'seed')}{leads})"

    def _repr_html_(self) -> str:
        from unskew.runs.html import runs_html  # noqa: PLC0415 (only notebooks need it)

        return runs_html(self)

    def verdict(self, level: str | None = None, *, baseline: str | None = None) -> Verdict | None:
        """Return how each method compares with the baseline, and which may be the best.

        The baseline is FedAvg, or the first method. The methods are compared at a level, by default
        :attr:`level`, except those that are :attr:`untrained`. The verdict is None if nothing was
        measured there.

        Methods with the same seed share data, initial weights and batches, so differences are taken
        seed by seed. Of three or more methods, their variances are pooled as far as they agree, and
        a t-test of each difference is corrected for the number of methods; docs/verdicts.md has the
        formulas.
        """
        level = level or self.level
        scores = {
            method: {run.seed: self._judged(run, level) for run in self.of(method)}
            for method in self._trained
        }
        judged = (scores, self.metric, self.margin, self.waves)
        known = self._verdicts.get((level, baseline))
        if known is not None and known[0] == judged:  # a page asks several times
            return known[1]
        verdict = judge_scores(
            scores, self.metric, level, baseline=baseline, margin=self.margin, waves=self.waves
        )
        if verdict is not None:
            remark = precisions_text(run for run in self._runs if run.method in scores)
            verdict = replace(verdict, failed=self._failed(level), remark=remark or "")
        self._verdicts[level, baseline] = judged, verdict
        return verdict

    def _failed(self, level: str) -> dict[str, str]:
        """Return in words how methods failed at a level, for those that did."""
        found = {m: outcomes_of(self.of(m), level, self.metric, self.final) for m in self._trained}
        failed = {m: [each for each in all_ if each.is_failure] for m, all_ in found.items()}
        return {m: joined([each.words for each in all_]) for m, all_ in failed.items() if all_}

    @property
    def _undefined(self) -> int:
        """The number of clients on whose tests the metric is undefined: the most of all seeds."""
        level, name = level_of_clients(self.level), f"{self.metric.name}_undefined"
        found = [run.last(level, name) for run in self._runs]
        return max((int(count) for count in found if not math.isnan(count)), default=0)

    def _judged(self, run: Run, level: str) -> float:
        return run.final_value(level, self.metric.name, self.final)

    @property
    def final_text(self) -> str:
        """Which evaluations the numbers of the table are from, for readers."""
        level = self.level
        counts = [
            sum(level in row for row in run.task_metrics) for run in self._runs if run.metrics
        ]
        number = final_evaluations(max(counts, default=1))
        if self.final == "last" or number < 2:
            return "after the last round"
        return f"mean of the last {number} evaluations"

    @property
    def _trained(self) -> list[str]:
        untrained = self.untrained
        return [method for method in self.methods if method not in untrained]

    def summaries(self, target: float | None = None) -> list[Summary]:
        """Summarise every method, the best first; costs are counted until the target is reached.

        The order is that of the metric by which the methods are judged; see :meth:`verdict`.
        """
        if self.metric.is_share:
            name = self.metric.name
            check_target(target, "an accuracy" if name == "accuracy" else name)
        target = self.default_target() if target is None else target
        return [
            summarize_method(
                method,
                self.of(method),
                target,
                self.level,
                self.final,
                self.metric,
                self.other_metrics,
            )
            for method in self.ranking()
        ]

    def ranking(self) -> list[str]:
        """Return the methods by the mean of the number that is judged, the best first.

        Methods that were not measured, or not trained, come last. Where seeds were added in waves,
        methods have different seeds and are ordered by their differences to the baseline.
        """
        verdict = None if self.waves is None else self.verdict()
        if verdict is not None:
            ranked = list(verdict.means)
            return ranked + [method for method in self.methods if method not in ranked]
        sign, untrained = -self.metric.sign, self.untrained

        def place(method: str) -> float:
            values = [self._judged(run, self.level) for run in self.of(method)]
            mean = sign * sum(values) / len(values)
            return math.inf if math.isnan(mean) or method in untrained else mean

        return sorted(self.methods, key=place)

    @property
    def remarks(self) -> dict[str, list[str]]:
        """Remarks that explain a method's results, for the methods that have any."""
        found = {}
        for method in self.methods:
            runs = self.of(method)
            unfinished = [run for run in runs if not run.is_finished]
            rows = [row for run in runs for row in run.task_metrics]
            found[method] = [unfinished_text(unfinished)] if unfinished else []
            found[method] += remarks_on(rows)
            found[method] += [] if self.has_model(method, "global") else [NO_GLOBAL_MODEL]
            found[method] += [outcome.sentence for outcome in self.outcomes(method)]
        return {method: remarks for method, remarks in found.items() if remarks}

    def outcomes(self, method: str) -> list[Outcome]:
        """Return what the metrics show about a method: that it learnt nothing, or diverged.

        A method with the same metrics in all rounds as another one, the baseline or a method
        listed before it, is identical to that one.
        """
        runs = self.of(method)
        baseline = default_baseline(self.methods)
        order = [baseline, *(other for other in self.methods if other != baseline)]
        earlier = order[: order.index(method)]
        same = (identity(runs, self.of(other)) for other in earlier)
        identical = next((outcome for outcome in same if outcome), None)
        found = outcomes_of(runs, self.level, self.metric, self.final)
        return found if identical is None else [identical, *found]

    def failures(self, method: str) -> dict[int, str]:
        """Return the seeds with which a method's training failed: it diverged, or collapsed."""
        found = failures_of(self.of(method), self.level, self.metric, self.final)
        return {seed: failure.kind for seed, failure in found.items()}

    def table(self, target: float | None = None) -> Table:
        """Return one row per method, the best first: its metrics, and the cost of the target.

        The level by which methods are judged comes first, with its standard deviation over seeds.
        """
        target = self.default_target() if target is None else target
        metric = self.metric
        at = "target" if math.isnan(target) else target_text(metric, target)
        summaries = self.summaries(target)
        lrs = {method: self.learning_rate(method) for method in self.methods}
        columns, rows = summary_cells(summaries, metric, self.other_metrics, at, lrs)
        notes = [f"{method}: {text}" for method, all_ in self.remarks.items() for text in all_]
        notes.insert(0, f"{columns_text(summaries, metric)}: {self.final_text}.")
        if self.has_fixed_split:
            notes.insert(1, FIXED_SPLIT)
        differ = precisions_text(self._runs), cpus_text(run.metadata for run in self._runs)
        notes += [note for note in differ if note is not None]
        if self._undefined:
            notes.insert(
                1,
                f"{metric.name} is undefined on the tests of {plural(self._undefined, 'client')}, "
                "for example because they have one class; means over clients leave them out.",
            )
        return Table(columns, rows, title=self._title(), notes=notes)

    def table_with_verdict(self, target: float | None = None) -> Table:
        """Return the table with a column that compares each method with the baseline."""
        table, verdict = self.table(target), self.verdict()
        if verdict is None or len(table.rows) < 2:
            return table
        columns = [*table.columns, f"against {verdict.baseline}"]
        not_judged, rows = self.not_judged, []
        for row in table.rows:
            if row[0] in not_judged:
                rows.append([*row, not_judged[row[0]]])
                continue
            words = [outcome.words for outcome in self.outcomes(row[0]) if outcome.words]
            rows.append([*row, ", ".join([verdict.against(row[0]), *words])])
        return replace(table, columns=columns, rows=rows)

    def to_pandas(self) -> "DataFrame":
        """Return a pandas DataFrame with one row per run: its last metrics and its cost."""
        return runs_frame(self._runs)

    def history(self) -> "DataFrame":
        """Return a pandas DataFrame with one row per round of every run; see :meth:`Run.history`.

        The columns ``method`` and ``seed`` name the run.
        """
        return histories_frame(self._runs)

    def plot(self, chart: str | None = None, *, target: float | None = None) -> "Figure":
        """Return a chart of these runs as a matplotlib figure, by default the curves.

        ``chart`` names any chart of the report page, such as ``worst-accuracy``,
        ``clients-local``, ``cost`` or ``aggregation-weights``. Save it with
        ``figure.savefig(path)``.
        """
        figure: Figure = _report("plot").plot_chart(self, chart, target=target)
        return figure

    def report(self, path: str | Path = "report.html", *, target: float | None = None) -> Path:
        """Write the report page, one self-contained HTML file, and return its path."""
        page: Path = _report("page").write_page(path, self, target=target)
        return page

    def _title(self) -> str:
        first = self._runs[0]
        seeds = len({run.seed for run in self._runs})
        return (
            f"{first.data}, {plural(first.clients, 'client')}, {first.network}, "
            f"{plural(first.task_rounds, 'round')}, {plural(seeds, 'seed')}"
        )


def _report(module: str) -> Any:
    """Import a module of :mod:`unskew.report`, which is above this package, when it is needed."""
    return import_module(f"unskew.report.{module}")


def recorded_metric(runs: Sequence[Run], name: str) -> Metric:
    """Return a metric that runs have recorded, by its name; raise if there is none."""
    metadata = runs[0].metadata if runs else {}
    recorded = {each["name"]: Metric(**each) for each in metadata.get("metrics", ())}
    recorded |= {each.pooled.name: each.pooled for each in recorded.values() if each.pooled}
    if runs:
        recorded[runs[0].metric.name] = runs[0].metric
        if any("accuracy" in row.get(runs[0].level, {}) for row in runs[0].metrics):
            recorded["accuracy"] = ACCURACY
    return lookup(recorded, name, "metric")


def check_judging(final: FinalBy, margin: float, level: Level | None = None) -> None:
    """Raise if the number to judge by, the margin of equivalence or the level is not valid."""
    if final not in get_args(FinalBy):
        raise UnskewError(f"final must be mean or last (got {final!r})")
    if not margin >= 0:
        raise UnskewError(f"margin must be 0 or more (got {margin:g})")
    if level is not None and level not in get_args(Level):
        raise UnskewError(f"level must be global, local or personal (got {level!r})")
