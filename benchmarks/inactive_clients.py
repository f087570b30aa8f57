"""Whether a round takes longer when a federation has more inactive clients.

    python -m benchmarks.inactive_clients

Trains cohorts of 50 clients with ten samples each, sampled from a thousand and from a million
clients. Alternates between the two; only the ratio of the medians is meaningful.
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
    small, large = federation(1_000), federation(1_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    small_times: list[float] = []
    large_times: list[float] = []
    for seed in range(5):
        small_times += seconds(small, 43, seed)
        large_times += seconds(large, 43, seed)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    per_round = median(small_times), median(large_times)
    print("| clients | ms per round (median) | data |\n|---:|---:|---:|")
    print(f"| 1,000 | {1e3 * per_round[0]:.2f} | {small.nbytes / 1e6:.1f} MB |")
    print(f"| 1,000,000 | {1e3 * per_round[1]:.2f} | {large.nbytes / 1e6:.1f} MB |")
    ratio = per_round[1] / per_round[0]
    print(f"\nratio {ratio:.3f}; memory grew by {grown / 1e3:.0f} MB in training")


if __name__ == "__main__":
    main()
