"""The files in the folder of a run, and the page in that of a comparison."""

RUN = "run.json"
"""Configuration, versions, seed and fingerprint of the data."""

METRICS = "metrics.jsonl"
"""One line per round."""

CLIENTS = "clients.jsonl"
"""One line per round with a table of its clients (weights, losses, traffic), and one line per
evaluation with the accuracy of each client."""

LOGS = (METRICS, CLIENTS)

SAMPLE_WEIGHTS_FILE = "sample_weights.json"
"""Histograms of sample weights of a simulation, see :mod:`unskew.runs.sample_weights`."""

CHECKPOINTS = "checkpoints"
"""The folder of checkpoints, see :mod:`unskew.runs.checkpoint`."""

MANIFEST = "manifest.json"
"""The list of checkpoints, in their folder; a run without a checkpoint has an empty one."""

NODES = "nodes.json"

NODE_PREPROCESSING = "preprocessing.json"
"""What the nodes of a Flower federation agreed on before the first round."""

SERVER_FILES = (NODES, "start.safetensors", NODE_PREPROCESSING)
"""What the server of a Flower federation writes before the run starts: nodes, initial weights."""

LOCK = "run.lock"
"""The lock file of the process that writes the run, see :mod:`unskew.runs.lock`."""

SERVER_LOGS = "logs"
"""The folder of the logs that ``flower up`` writes while it starts a federation."""

NODE_STATES = "states"
"""The folder of what the nodes of ``flower up`` keep, one folder per node, beside the logs."""

PAGE = "report.html"
"""The report page of a comparison."""
