"""Print how often the interval of a mean gain over federations holds the truth, simulated.

python -m benchmarks.gains    # the table in docs/summary.md, about a minute
"""

import argparse

import numpy as np

from unskew.stats.hierarchical import Effect, estimate_gain

FEDERATIONS, SPREADS = (3, 5, 10), (0.5, 5.0, 12.0, 20.0)
ERROR, GAIN = 0.7, 2.0


def coverage(spread: float, federations: int, summaries: int) -> float:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(summaries):
        means = GAIN + np.hypot(spread, ERROR) * rng.normal(size=federations)
        found = estimate_gain([Effect(float(mean), ERROR) for mean in means])
        covered += found.low < GAIN < found.high
    return covered / summaries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--summaries", type=int, default=2000, help="summaries per cell")
    options = parser.parse_args()
    heads = [f"{federations} federations" for federations in FEDERATIONS]
    print("| spread | " + " | ".join(heads) + " |\n|---|" + "---:|" * len(heads))
    for spread in SPREADS:
        cells = [f"{100 * coverage(spread, f, options.summaries):.1f}" for f in FEDERATIONS]
        print(f"| {spread:g} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
