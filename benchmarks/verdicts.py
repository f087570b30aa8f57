"""Print how often verdicts are wrong, and what they find, on simulated tables of results.

python -m benchmarks.verdicts                 # the table in docs/verdicts.md, about five minutes
python -m benchmarks.verdicts --tables 200    # a quick look
"""

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, f, rankdata, shapiro, studentized_range
from scipy.stats import t as student

from unskew.stats.decisions import decide
from unskew.stats.moderated import Array
from unskew.stats.pairwise import all_variances, differences_to, fit_model, holm

LEVEL, MARGIN, EFFECT = 0.05, 1.0, 4.0
SEEDS, METHODS, SHOWN = (3, 5, 10, 20), (2, 3, 6, 12, 44), 12
_TABLES = {2: 10, 3: 6, 6: 4, 44: 1}
"""Tables in halves of what is asked for: many where they are cheap."""
Rng = np.random.Generator
Answers = tuple[NDArray[np.bool_], NDArray[np.bool_]]
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


NOISE: dict[str, Callable[..., Array]] = {
    "equal, sd 1.5": _equal,
    "unequal, sd 0.4 to 4": _unequal,
    "unequal, sd 0.5 and 3": _two_groups,
    "baseline 5 times noisier": _noisy_baseline,
    "a quarter 6 times noisier": _noisy_rivals,
    "heavy tails (t3)": _heavy_tails,
    "all collapse at times": _collapse,
    "one collapses at times": _one_collapses,
    "rounded, many ties": _ties,
    "a third are copies": _copies,
}


def chosen(values: Array) -> Answers:
    """The procedure of ``unskew.stats.judge``."""
    variance, count = all_variances(values)
    pairs = variance[:, *np.triu_indices(values.shape[1], 1)]
    some = pairs.any(axis=1)  # a table without any variance has no model
    found = np.zeros((2, len(values), values.shape[1] - 1), dtype=bool)
    for rows in (some, ~some):
        if rows.any():
            model = fit_model(variance[rows], count[rows])
            gaps = differences_to(values[rows], 0, variance[rows], count[rows], model)
            decisions = decide(gaps, MARGIN)
            found[0, rows] = decisions.is_different(LEVEL)
            found[1, rows] = decisions.is_equivalent(LEVEL)
    return found[0], found[1]


def plain(values: Array) -> Answers:
    """Paired t-tests with Holm's correction, and two one-sided t-tests with the same."""
    gaps = values[:, 1:] - values[:, :1]
    seeds = gaps.shape[2]
    error = np.maximum(gaps.std(axis=2, ddof=1), 1e-12) / np.sqrt(seeds)
    size = np.abs(gaps.mean(axis=2))
    different = holm(np.where(size > 0, 2 * student.sf(size / error, seeds - 1), 1.0)) < LEVEL
    within = holm(student.sf((MARGIN - size) / error, seeds - 1)) < LEVEL
    return different & ~within, within


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
    normal = (shapiro(values + noise, axis=2).pvalue > LEVEL / methods).all(axis=1)
    if methods == 2:
        gaps = values[:, 1] - values[:, 0]
        error = np.maximum(gaps.std(axis=1, ddof=1), 1e-12) / np.sqrt(seeds)
        t_test = 2 * student.sf(np.abs(gaps.mean(axis=1)) / error, seeds - 1) < LEVEL
        ranks = rankdata(np.abs(gaps), axis=1) * (gaps > 0)
        mean, sd = seeds * (seeds + 1) / 4, np.sqrt(seeds * (seeds + 1) * (2 * seeds + 1) / 24)
        wilcoxon = np.abs(ranks.sum(axis=1) - mean) / sd > 1.96
        found = np.where(normal, t_test, wilcoxon)[:, None]
        return found, np.zeros_like(found)
    own = np.log(np.maximum(spread, 1e-12))
    pooled = np.maximum(spread.mean(axis=1), 1e-12)
    factor = 1 + (methods + 1) / (3 * methods * (seeds - 1))
    bartlett = (seeds - 1) * (methods * np.log(pooled) - own.sum(axis=1)) / factor
    parametric = normal & (chi2.sf(bartlett, methods - 1) > LEVEL)
    means, by_seed = values.mean(axis=2), values.mean(axis=1, keepdims=True)
    overall = values.mean(axis=(1, 2), keepdims=True)
    residual = values - means[:, :, None] - by_seed + overall
    between = seeds * ((means - overall[:, :, 0]) ** 2).sum(axis=1) / (methods - 1)
    within = np.maximum((residual**2).sum(axis=(1, 2)), 1e-12) / ((methods - 1) * (seeds - 1))
    anova = f.sf(between / within, methods - 1, (methods - 1) * (seeds - 1)) < LEVEL
    tukey = studentized_range.ppf(1 - LEVEL, methods, methods * (seeds - 1)) * np.sqrt(
        pooled / seeds
    )
    by_means = anova[:, None] & (np.abs(means[:, 1:] - means[:, :1]) > tukey[:, None])
    ranks = rankdata(values, axis=1).mean(axis=2)
    statistic = 12 * seeds / (methods * (methods + 1)) * ((ranks - (methods + 1) / 2) ** 2).sum(1)
    critical = studentized_range.ppf(1 - LEVEL, methods, 1e6) / np.sqrt(2)
    distance = critical * np.sqrt(methods * (methods + 1) / (6 * seeds))
    by_ranks = (chi2.sf(statistic, methods - 1) < LEVEL)[:, None] & (
        np.abs(ranks[:, 1:] - ranks[:, :1]) > distance
    )
    found = np.where(parametric[:, None], by_means, by_ranks)
    return found, np.zeros_like(found)


PROCEDURES: dict[str, Callable[[Array], Answers]] = {
    "unskew": chosen,
    "t + Holm": plain,
    "autorank": autorank,
}


def measure(
    procedure: Callable[[Array], Answers], noise: str, methods: int, seeds: int, tables: int
) -> tuple[float, float]:
    """Return the largest share of tables with a false answer, and the share of effects found.

    Half of the rivals differ from the baseline by nothing at all, by the margin, or by 4 points.
    """
    rng = np.random.default_rng([methods, seeds, *noise.encode()])
    values = NOISE[noise](rng, tables, methods, seeds) + 3 * rng.normal(size=(tables, 1, seeds))
    last = np.arange(1, methods) > (methods - 1) // 2
    worst, power = 0.0, np.nan
    for shift in (0.0, MARGIN, EFFECT):
        shifted = values.copy()
        shifted[:, 1:][:, last] += shift
        different, equivalent = procedure(shifted)
        up = shifted[:, 1:].mean(axis=2) > shifted[:, 0].mean(axis=1)[:, None]
        truth = np.where(last, shift, 0.0)
        wrong = different & np.where(truth > 0, ~up, True)
        wrong |= equivalent & (np.abs(truth) >= MARGIN)
        if noise == "one collapses at times":  # its own mean is lower: only "better" is wrong
            wrong[:, -1] = different[:, -1] & up[:, -1] & (shift == 0)
        worst = max(worst, float(wrong.any(axis=1).mean()))
        power = float((different & up)[:, last].mean()) if last.any() else np.nan
    return worst, power


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=1000, help="tables per cell")
    parser.add_argument("--procedures", default=",".join(PROCEDURES))
    parser.add_argument("--methods", default=",".join(map(str, METHODS)))
    options = parser.parse_args()
    names = options.procedures.split(",")
    numbers = [int(number) for number in options.methods.split(",")]
    print(f"Family-wise error (largest of {options.methods} methods) / effects of {EFFECT:g} found")
    print(f"({SHOWN} methods), per cent; {options.tables} tables per cell.\n")
    heads = [f"{name}, {seeds}" for name in names for seeds in SEEDS]
    print("| noise | " + " | ".join(heads) + " |\n|---|" + "---:|" * len(heads))
    for noise in NOISE:
        cells = []
        for name in names:
            for seeds in SEEDS:
                if name == "autorank" and seeds < 5:  # it rejects fewer than five values
                    cells.append("-")
                    continue
                found = {
                    methods: measure(
                        PROCEDURES[name], noise, methods, seeds,
                        options.tables * _TABLES.get(methods, 2) // 2,
                    )
                    for methods in numbers
                }  # fmt: skip
                error = max(worst for worst, _ in found.values())
                power = found[SHOWN][1] if SHOWN in found else np.nan
                cells.append(f"{100 * error:.1f} / {100 * power:.0f}")
        print(f"| {noise} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
