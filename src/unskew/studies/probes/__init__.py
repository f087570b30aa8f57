"""What figures show besides accuracy, a file each."""

from unskew.studies.probing import Probe

PROBES: dict[str, Probe] = {}
