"""Whether a round costs more with more inactive clients: `python -m benchmarks.inactive_clients`

The same cohort of 50 clients of ten samples, drawn from a thousand and from a million. Rounds of
both are run in turns; only the ratio of their medians means anything.
"""

import resource
from statistics import median

import numpy as np

import unskew as us


def federation(clients: int, samples: int = 10) -> us.Federation:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, size=(clients * samples, 8, 8), dtype=np.uint8)
    y = rng.integers(0, 10, size=clients * samples)
    return us.Federation.from_arrays(x, y, np.repeat(np.arange(clients), samples), classes=10)


def seconds(fed: us.Federation, rounds: int, seed: int) -> list[float]:
    run = us.train(
        fed, model="mlp:hidden=32", rounds=rounds, cohort=50, batch_size=10, epochs=5,
        evaluate_every=0, seed=seed,
    )  # fmt: skip
    return [row["seconds"] for row in run.metrics[3:]]


def main() -> None:
    few, many = federation(1_000), federation(1_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times: tuple[list[float], list[float]] = ([], [])
    for seed in range(5):
        times[0].extend(seconds(few, 43, seed))
        times[1].extend(seconds(many, 43, seed))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    small, large = (median(each) for each in times)
    print("| clients | ms per round (median) | data |\n|---:|---:|---:|")
    print(f"| 1,000 | {1e3 * small:.2f} | {few.nbytes / 1e6:.1f} MB |")
    print(f"| 1,000,000 | {1e3 * large:.2f} | {many.nbytes / 1e6:.1f} MB |")
    print(f"\nratio {large / small:.3f}; memory grew by {grown / 1e3:.0f} MB while training")


if __name__ == "__main__":
    main()
