"""Print how often verdicts are wrong, and what they find, on simulated tables of results.

python -m benchmarks.verdicts                 # the first table in docs/verdicts.md
python -m benchmarks.verdicts --sets          # intervals and the set of possible best methods
python -m benchmarks.verdicts --sequential    # seeds in waves
python -m benchmarks.verdicts --tables 100    # a quick look
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, f, rankdata, shapiro, studentized_range
from scipy.stats import t as student

from unskew.stats.decisions import Settled, decide, is_beaten, is_near
from unskew.stats.moderated import Array, Flags, VarianceModel
from unskew.stats.pairwise import (
    Differences,
    all_variances,
    differences_to,
    fit_model,
    noise_of_methods,
)
from unskew.stats.sequential import plan_waves, shares

ERROR_RATE, MARGIN, EFFECT = 0.05, 1.0, 4.0
SEEDS, METHODS, SHOWN = (3, 5, 10, 20), (2, 3, 6, 12, 44), 12
FIXED = (20, 30)
_TABLES = {2: 10, 3: 10, 6: 4, 44: 1}
"""Tables in halves of what is asked for: many where they are cheap."""
Rng = np.random.Generator
Answers = tuple[Flags, Flags]
"""Which rivals are called different from the baseline, and which equivalent to it."""


def _normal(rng: Rng, sd: float | Array, tables: int, methods: int, seeds: int) -> Array:
    return np.asarray(sd) * rng.normal(size=(tables, methods, seeds))


def _equal(rng: Rng, *shape: int) -> Array:
    return _normal(rng, 1.5, *shape)


def _unequal(rng: Rng, *shape: int) -> Array:
    sd = np.exp(rng.uniform(np.log(0.4), np.log(4), size=(*shape[:2], 1)))
    return _normal(rng, sd, *shape)


def _two_groups(rng: Rng, *shape: int) -> Array:
    return _normal(rng, np.where(np.arange(shape[1]) % 2, 3.0, 0.5)[:, None], *shape)


def _noisy_baseline(rng: Rng, *shape: int) -> Array:
    return _normal(rng, np.where(np.arange(shape[1]) == 0, 5.0, 1.0)[:, None], *shape)


def _noisy_rivals(rng: Rng, *shape: int) -> Array:
    noisy = (np.arange(shape[1]) > 0) & (np.arange(shape[1]) <= max(1, shape[1] // 4))
    return _normal(rng, np.where(noisy, 6.0, 1.0)[:, None], *shape)


def _heavy_tails(rng: Rng, *shape: int) -> Array:
    return np.asarray(1.5 / np.sqrt(3) * rng.standard_t(3, size=shape))


def _collapse(rng: Rng, *shape: int) -> Array:
    return _equal(rng, *shape) - 30.0 * (rng.random(shape) < 0.15)


def _one_collapses(rng: Rng, *shape: int) -> Array:
    values = _equal(rng, *shape)
    values[:, -1] -= 30.0 * (rng.random((shape[0], shape[2])) < 0.3)
    return values


def _ties(rng: Rng, *shape: int) -> Array:
    return np.round(_normal(rng, 0.5, *shape))


def _copies(rng: Rng, *shape: int) -> Array:
    values = _equal(rng, *shape)
    values[:, 1 : 1 + shape[1] // 3] = values[:, :1]
    return values


ONE_COLLAPSES, COUNTED = "one collapses at times", "the same, and it counts"
NOISE: dict[str, Callable[..., Array]] = {
    "equal, sd 1.5": _equal,
    "unequal, sd 0.4 to 4": _unequal,
    "unequal, sd 0.5 and 3": _two_groups,
    "baseline 5 times noisier": _noisy_baseline,
    "a quarter 6 times noisier": _noisy_rivals,
    "heavy tails (t3)": _heavy_tails,
    "all collapse at times": _collapse,
    ONE_COLLAPSES: _one_collapses,
    COUNTED: _one_collapses,
    "rounded, many ties": _ties,
    "a third are copies": _copies,
}


@dataclass(frozen=True)
class Fit:
    """What ``judge`` knows about the noise of some tables; it does not depend on the means."""

    rows: Flags
    variance: Array
    count: Array
    model: VarianceModel | None
    noise: Array

    def differences(self, values: Array, reference: int = 0) -> Differences:
        """Return the differences of these tables to a reference."""
        noise = self.variance, self.count, self.model, self.noise
        return differences_to(values[self.rows], reference, *noise)


def fitted(values: Array) -> Iterator[Fit]:
    """Return the fits of ``judge``; tables without any variance have no model."""
    variance, count = all_variances(values)
    pairs = np.nan_to_num(variance[:, *np.triu_indices(values.shape[1], 1)])
    varies: Flags = np.asarray(pairs.any(axis=1))
    noise = noise_of_methods(values)
    for rows in (varies, ~varies):
        if rows.any():
            model = fit_model(variance[rows], count[rows])
            yield Fit(rows, variance[rows], count[rows], model, noise[rows])


def chosen(values: Array, shifts: Sequence[Array]) -> Iterator[Answers]:
    """The procedure of ``unskew.stats.judge``."""
    found = np.zeros((2, len(shifts), len(values), values.shape[1] - 1), dtype=bool)
    for block in _blocks(values):
        for fit in fitted(values[block]):
            for i, shift in enumerate(shifts):
                gaps = fit.differences(_raised(values[block], shift))
                decisions = decide(gaps, MARGIN, exact_below=ERROR_RATE)
                found[0, i, block[fit.rows]] = decisions.is_different(ERROR_RATE)
                found[1, i, block[fit.rows]] = decisions.is_equivalent(ERROR_RATE)
    return zip(*found, strict=True)


def _blocks(values: Array) -> list[NDArray[np.int64]]:
    """Return the tables in blocks that fit into the processor's cache."""
    tables, methods = values.shape[:2]
    return np.array_split(np.arange(tables), 1 + tables * methods // 5000)


def _raised(values: Array, shift: Array) -> Array:
    return np.concatenate([values[:, :1], values[:, 1:] + shift[:, None]], axis=1)


def plain(values: Array) -> Answers:
    """Paired t-tests with Holm's correction, and two one-sided t-tests with the same."""
    gaps = values[:, 1:] - values[:, :1]
    seeds = gaps.shape[2]
    error = np.maximum(gaps.std(axis=2, ddof=1), 1e-12) / np.sqrt(seeds)
    size = np.abs(gaps.mean(axis=2))
    different = holm(np.where(size > 0, 2 * student.sf(size / error, seeds - 1), 1.0)) < ERROR_RATE
    within = holm(student.sf((MARGIN - size) / error, seeds - 1)) < ERROR_RATE
    return different & ~within, within


def holm(p: Array) -> Array:
    """Return p-values corrected by Holm's method, row by row; NaN p-values do not count."""
    order = np.argsort(p, axis=1, kind="stable")
    factors = np.maximum((~np.isnan(p)).sum(1)[:, None] - np.arange(p.shape[1]), 1)
    corrected = np.empty_like(p)
    steps = np.take_along_axis(p, order, 1) * factors
    np.put_along_axis(corrected, order, np.fmax.accumulate(steps, axis=1), 1)
    return np.where(np.isnan(p), np.nan, np.minimum(corrected, 1.0))


def autorank(values: Array) -> Answers:
    """What autorank decides (Herbold, 2020), for five seeds or more.

    Two methods: paired t-test if both are normal by Shapiro and Wilk's test, otherwise Wilcoxon's
    test. More: if all are normal and their variances are equal by Bartlett's test, repeated
    measures ANOVA with Tukey's test, otherwise Friedman's test with Nemenyi's. It has no test of
    equivalence of means.
    """
    methods, seeds = values.shape[1:]
    spread = values.var(axis=2, ddof=1)
    noise = 1e-9 * np.random.default_rng(0).normal(size=values.shape)  # shapiro rejects constants
    normal = (shapiro(values + noise, axis=2).pvalue > ERROR_RATE / methods).all(axis=1)
    if methods == 2:
        gaps = values[:, 1] - values[:, 0]
        error = np.maximum(gaps.std(axis=1, ddof=1), 1e-12) / np.sqrt(seeds)
        t_test = 2 * student.sf(np.abs(gaps.mean(axis=1)) / error, seeds - 1) < ERROR_RATE
        ranks = rankdata(np.abs(gaps), axis=1) * (gaps > 0)
        mean, sd = seeds * (seeds + 1) / 4, np.sqrt(seeds * (seeds + 1) * (2 * seeds + 1) / 24)
        wilcoxon = np.abs(ranks.sum(axis=1) - mean) / sd > 1.96
        found = np.where(normal, t_test, wilcoxon)[:, None]
        return found, np.zeros_like(found)
    own = np.log(np.maximum(spread, 1e-12))
    pooled = np.maximum(spread.mean(axis=1), 1e-12)
    factor = 1 + (methods + 1) / (3 * methods * (seeds - 1))
    bartlett = (seeds - 1) * (methods * np.log(pooled) - own.sum(axis=1)) / factor
    parametric = normal & (chi2.sf(bartlett, methods - 1) > ERROR_RATE)
    means, by_seed = values.mean(axis=2), values.mean(axis=1, keepdims=True)
    overall = values.mean(axis=(1, 2), keepdims=True)
    residual = values - means[:, :, None] - by_seed + overall
    between = seeds * ((means - overall[:, :, 0]) ** 2).sum(axis=1) / (methods - 1)
    within = np.maximum((residual**2).sum(axis=(1, 2)), 1e-12) / ((methods - 1) * (seeds - 1))
    anova = f.sf(between / within, methods - 1, (methods - 1) * (seeds - 1)) < ERROR_RATE
    tukey = studentized_range.ppf(1 - ERROR_RATE, methods, methods * (seeds - 1)) * np.sqrt(
        pooled / seeds
    )
    by_means = anova[:, None] & (np.abs(means[:, 1:] - means[:, :1]) > tukey[:, None])
    ranks = rankdata(values, axis=1).mean(axis=2)
    statistic = 12 * seeds / (methods * (methods + 1)) * ((ranks - (methods + 1) / 2) ** 2).sum(1)
    critical = studentized_range.ppf(1 - ERROR_RATE, methods, 1e6) / np.sqrt(2)
    distance = critical * np.sqrt(methods * (methods + 1) / (6 * seeds))
    by_ranks = (chi2.sf(statistic, methods - 1) < ERROR_RATE)[:, None] & (
        np.abs(ranks[:, 1:] - ranks[:, :1]) > distance
    )
    found = np.where(parametric[:, None], by_means, by_ranks)
    return found, np.zeros_like(found)


Procedure = Callable[[Array, Sequence[Array]], Iterator[Answers]]
"""Returns the answers about tables whose rivals are raised by each of several shifts."""


def _one_by_one(procedure: Callable[[Array], Answers]) -> Procedure:
    return lambda values, shifts: (procedure(_raised(values, shift)) for shift in shifts)


PROCEDURES: dict[str, Procedure] = {
    "unskew": chosen,
    "t + Holm": _one_by_one(plain),
    "autorank": _one_by_one(autorank),
}


def tables_of(noise: str, methods: int, seeds: int, tables: int, seed: int) -> tuple[Array, Array]:
    """Return simulated tables with a shared seed effect, and the true differences of all rivals.

    A method that collapses is 9 points worse on average, which no test can know if no seed has
    shown it; NaN means that what is said about it does not count.
    """
    rng = np.random.default_rng([seed, methods, seeds, *noise.encode()])
    values = NOISE[noise](rng, tables, methods, seeds) + 3 * rng.normal(size=(tables, 1, seeds))
    truth = np.zeros(methods - 1)
    if noise in (ONE_COLLAPSES, COUNTED):
        truth[-1] = np.nan if noise == ONE_COLLAPSES else -9.0
    return values, truth


def half(methods: int, shift: float) -> Array:
    """Return a shift for the second half of the rivals."""
    return np.where(np.arange(1, methods) > (methods - 1) // 2, shift, 0.0)


def is_wrong(answers: Answers, means: Array, truth: Array) -> Flags:
    """Return which answers are wrong, given the estimated and the true differences."""
    different, equivalent = answers
    wrong_sign = (truth == 0) | ((means > 0) != (truth > 0))
    wrong = (different & wrong_sign) | (equivalent & (np.abs(truth) >= MARGIN))
    counted: Flags = wrong & ~np.isnan(truth)
    return counted


def measure(
    procedure: Procedure,
    noise: str, methods: int, seeds: int, tables: int, seed: int,
) -> tuple[float, float]:  # fmt: skip
    """Return the largest share of tables with a false answer, and the share of effects found.

    Half of the rivals differ from the baseline by nothing at all, by the margin, or by 4 points.
    """
    values, truth = tables_of(noise, methods, seeds, tables, seed)
    means = values[:, 1:].mean(axis=2) - values[:, :1].mean(axis=2)
    worst, power = 0.0, np.nan
    shifts = [half(methods, size) for size in (0.0, MARGIN, EFFECT)]
    for shift, answers in zip(shifts, procedure(values, shifts), strict=True):
        wrong = is_wrong(answers, means + shift, truth + shift)
        worst = max(worst, float(wrong.any(axis=1).mean()))
        if shift.any():
            power = float((answers[0] & (means + shift > 0))[:, shift > 0].mean())
    return worst, power


def sets(noise: str, methods: int, seeds: int, tables: int, seed: int) -> tuple[float, ...]:
    """Return how often all intervals hold the truth and the best method is kept, and of how many.

    The best is one method of equals, or one that is better by 4 points. The size is that of the
    second case.
    """
    values, truth = tables_of(noise, methods, seeds, tables, seed)
    covered, kept, size = np.ones(tables, dtype=bool), np.zeros((2, tables), dtype=bool), 0.0
    fits = list(fitted(values))
    for fit in fits:
        gaps = fit.differences(values)
        near = is_near(gaps, np.abs(gaps.mean - truth), ERROR_RATE)
        inside = near | np.isnan(truth)
        covered[fit.rows] = inside.all(axis=1)
    better = np.zeros(methods)
    better[1] = EFFECT
    for reference in range(methods):
        for fit in fits:
            gaps = fit.differences(values, reference)
            raised = np.delete(better, reference) - better[reference]
            beaten = is_beaten(replace(gaps, mean=gaps.mean + raised), ERROR_RATE)
            size += float((~beaten).sum()) / tables
            if reference == 1:
                kept[:, fit.rows] = ~is_beaten(gaps, ERROR_RATE), ~beaten
    return float(covered.mean()), float(kept.mean(axis=1).min()), size


def in_waves(
    values: Array, shift: Array, waves: Sequence[int]
) -> tuple[Answers, Array, NDArray[np.int64]]:
    """Return the answers of ``judge_waves``, the differences they rest on, and seeds per method."""
    parts = [_waves_of_block(values[block], shift, waves) for block in _blocks(values)]
    different, equivalent = (np.concatenate([part[0][i] for part in parts]) for i in (0, 1))
    means, used = np.concatenate([part[1] for part in parts]), [part[2] for part in parts]
    return (different, equivalent), means, np.concatenate(used)


def _waves_of_block(
    values: Array, shift: Array, waves: Sequence[int]
) -> tuple[Answers, Array, NDArray[np.int64]]:
    tables, methods, _ = values.shape
    different, equivalent = np.zeros((2, tables, methods - 1), dtype=bool)
    means = np.zeros((tables, methods - 1))
    used = np.full((tables, methods), waves[0])
    moved = _raised(values, shift)
    for wave, share in zip(waves, shares(waves), strict=True):
        open_ = ~(different | equivalent)
        going = np.flatnonzero(open_.any(axis=1))
        if not len(going):
            break
        used[going] = np.where(np.c_[np.ones(len(going), bool), open_[going]], wave, used[going])
        cut = np.where(np.arange(wave) < used[going, :, None], moved[going, :, :wave], np.nan)
        for fit in fitted(cut):
            gaps = fit.differences(cut)
            at, asked = going[fit.rows], open_[going[fit.rows]]
            settled = Settled(different[at].sum(axis=1), equivalent[at].sum(axis=1))
            part = replace(
                gaps, seeds=np.where(asked, gaps.seeds, 0), is_identical=gaps.is_identical & asked
            )
            decisions = decide(part, MARGIN, 1 / share, settled, ERROR_RATE)
            different[at] |= asked & decisions.is_different(ERROR_RATE)
            equivalent[at] |= asked & decisions.is_equivalent(ERROR_RATE)
            means[at] = np.where(asked, gaps.mean, means[at])
    return (different, equivalent), means, used


def sequential(noise: str, tables: int, seed: int, waves: Sequence[int]) -> list[str]:
    """Return error, share decided and seeds per method, in waves and with fixed numbers of seeds.

    The error is the largest over the shifts of :func:`measure` and over 3, 12 and 44 methods; the
    others are for 12 methods that differ from the baseline by 0, 2 or 4 points.
    """
    plans = [tuple(waves), *((seeds,) for seeds in FIXED)]
    errors = np.zeros(len(plans))
    cells = []
    for methods in (3, 44, SHOWN):
        number = tables * _TABLES.get(methods, 2) // 2
        values, truth = tables_of(noise, methods, max(waves), number, seed)
        mixed: Array = np.asarray(2.0 * (np.arange(1, methods) % 3))
        for i, plan in enumerate(plans):
            for shift in [half(methods, d) for d in (0.0, MARGIN, EFFECT)] + [mixed]:
                answers, means, used = in_waves(values, shift, plan)
                wrong = is_wrong(answers, means, truth + shift).any(axis=1)
                errors[i] = max(errors[i], wrong.mean())
            if methods == SHOWN:
                decided = (answers[0] | answers[1]).mean()
                cells.append(f"{100 * errors[i]:.1f} / {100 * decided:.0f} / {used.mean():.1f}")
    return cells


def _row(name: str, cells: Sequence[str]) -> None:
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=800, help="tables per cell of 12 methods")
    parser.add_argument("--procedures", default=",".join(PROCEDURES))
    parser.add_argument("--methods", default=",".join(map(str, METHODS)))
    parser.add_argument("--noise", default=",".join(NOISE).replace(", ", "; "))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sets", action="store_true", help="intervals and possible best methods")
    parser.add_argument("--sequential", action="store_true", help="seeds in waves")
    options = parser.parse_args()
    numbers = [int(number) for number in options.methods.split(",")]
    rows = [name.replace("; ", ", ") for name in options.noise.split(",")]
    print(f"{options.tables} tables per cell of {SHOWN} methods, seed {options.seed}\n")

    def cells_of(name: str, noise: str, seeds: int) -> str:
        found = {
            methods: (
                sets(noise, methods, seeds, size, options.seed)
                if options.sets
                else measure(PROCEDURES[name], noise, methods, seeds, size, options.seed)
            )
            for methods in numbers
            for size in [options.tables * _TABLES.get(methods, 2) // 2]
        }
        columns = list(zip(*found.values(), strict=True))
        shown = found.get(SHOWN, (np.nan,) * 3)
        if options.sets:
            return f"{100 * min(columns[0]):.1f} / {100 * min(columns[1]):.1f} / {shown[2]:.1f}"
        return f"{100 * max(columns[0]):.1f} / {100 * shown[1]:.0f}"

    if options.sequential:
        waves = plan_waves()
        _row("noise", [f"waves {waves}", *(f"{seeds} seeds" for seeds in FIXED)])
        for noise in rows:
            _row(noise, sequential(noise, options.tables, options.seed, waves))
        return
    names = ["unskew"] if options.sets else options.procedures.split(",")
    _row("noise", [f"{name}, {seeds}" for name in names for seeds in SEEDS])
    for noise in rows:
        # autorank rejects fewer than five values
        rejected = {(name, seeds) for name in names for seeds in SEEDS if name == "autorank"} - {
            (name, seeds) for name in names for seeds in SEEDS if seeds >= 5
        }
        _row(noise, [
            "-" if (name, seeds) in rejected else cells_of(name, noise, seeds)
            for name in names for seeds in SEEDS
        ])  # fmt: skip


if __name__ == "__main__":
    main()
