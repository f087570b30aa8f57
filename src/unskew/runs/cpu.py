"""The kind of CPU that executes a run: another kind may round the last digits differently."""

import platform
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from unskew.utils.printable import printable
from unskew.utils.wording import plural

CPUS = "cpus"
"""The key of a run's metadata that lists the kinds of CPU that executed its rounds."""


@lru_cache(maxsize=1)
def cpu_kind() -> str:
    """Return the name of this machine's CPU, with the instructions that torch uses."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"{next(names, name)} ({torch.backends.cpu.get_cpu_capability()})"


def recorded_cpus(metadata: Mapping[str, Any]) -> list[str]:
    """Return the kinds of CPU that a run records; none if its file is damaged."""
    found = metadata.get(CPUS)
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def cpus_text(metadata_of_runs: Iterable[Mapping[str, Any]]) -> str | None:
    """Return a note if runs were executed on different kinds of CPU."""
    counts = Counter(cpu for metadata in metadata_of_runs for cpu in recorded_cpus(metadata))
    if len(counts) < 2:
        return None
    kinds = ", ".join(
        f"{plural(number, 'run')} on {printable(cpu)}" for cpu, number in counts.items()
    )
    return f"Kinds of CPU differ, and with them the last digits of a repeated run: {kinds}."
