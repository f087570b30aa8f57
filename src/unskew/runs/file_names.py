"""What is in the folder of a run."""

RUN = "run.json"
"""Configuration, versions, seed, fingerprint of the data."""

METRICS = "metrics.jsonl"
"""A line a round."""

CLIENTS = "clients.jsonl"
"""A line a round with a table of its clients (weights, losses, traffic), and a line an evaluation
with the accuracy of each client."""

LOGS = (METRICS, CLIENTS)

SAMPLE_WEIGHTS = "sample_weights.json"
"""At the end, where clients weigh samples; the simulator's own view, see
:mod:`unskew.runs.sample_weights`."""

CHECKPOINTS = "checkpoints"
"""A folder, see :mod:`unskew.runs.checkpoint`."""

LOCK = "run.lock"
"""While a process writes the run, see :mod:`unskew.runs.lock`; one that was killed leaves it."""
