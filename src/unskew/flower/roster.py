"""Who the nodes are: names that stay, whatever numbers Flower gives them from run to run."""

import json
import time
import uuid
from collections.abc import Sequence
from logging import INFO, WARNING
from pathlib import Path

from flwr.app import ConfigRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from unskew.errors import UnskewError
from unskew.flower.absent import Facts
from unskew.flower.post import send
from unskew.flower.wire import HELLO, ORDER
from unskew.runs.atomic import write_json

_POLL = 0.5
"""Seconds between two looks at who is connected."""


class Roster:
    """The nodes of a run. A client's number is the place of its name, so that it stays."""

    def __init__(self, grid: Grid, timeout: float) -> None:
        self._grid, self._timeout = grid, timeout
        self._facts: dict[str, Facts] = {}
        self._node: dict[str, int] = {}
        self._asked: set[int] = set()
        self.names: list[str] = []
        self.run = uuid.uuid4().hex

    def gather(self, least: int, wait: float) -> None:
        """Wait for the nodes, at least so many, and number them in the order of their names."""
        deadline = time.monotonic() + wait
        while len(self._present()) < least and time.monotonic() < deadline:
            time.sleep(_POLL)
        present = self._present()
        if not present:
            raise UnskewError(f"nodes: none was there within {wait:g} s; start some SuperNodes")
        if len(present) < least:
            log(WARNING, "unskew: %d of %d nodes after %g s; going on", len(present), least, wait)
        self.names = sorted(present, key=_in_order)
        log(INFO, "unskew: nodes %s", ", ".join(self.names))

    def remember(self, folder: Path) -> None:
        """Give the nodes the numbers they had when the run began; without such, note theirs."""
        path = folder / "nodes.json"
        if path.is_file():
            known = json.loads(path.read_text())
            self.run = known["run"]
            self.names = known["names"]
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, {"run": self.run, "names": self.names})

    def facts(self) -> list[Facts]:
        """Return what the nodes told of their samples, in their order."""
        return [self._facts[name] for name in self.names]

    def online(self, clients: Sequence[int], least: int, wait: float) -> dict[int, int]:
        """Return the nodes of the clients that are connected.

        If they are fewer than ``least``, others get so many seconds to come.
        """
        deadline = time.monotonic() + wait
        while True:
            present = self._present()
            found = {k: present[name] for k in clients if (name := self.names[k]) in present}
            if len(found) >= min(least, len(clients)) or time.monotonic() >= deadline:
                return found
            time.sleep(_POLL)

    def _present(self) -> dict[str, int]:
        """Return the connected nodes by name; those never seen before are asked who they are."""
        connected = set(self._grid.get_node_ids())
        self._ask(sorted(connected - self._asked))
        return {name: node for name, node in self._node.items() if node in connected}

    def _ask(self, nodes: Sequence[int]) -> None:
        if not nodes:
            return
        content = RecordDict({ORDER: ConfigRecord({"run": self.run})})
        answers = send(self._grid, HELLO, {node: (node, content) for node in nodes}, self._timeout)
        told: dict[str, int] = {}
        for node, content in answers.contents.items():
            facts = json.loads(str(content.config_records[ORDER]["json"]))
            name = facts["name"]
            if name in told:
                raise UnskewError(f"name: two nodes call themselves {name!r}; give each its own")
            told[name] = node
            self._facts[name] = facts
        self._node |= told
        self._asked |= set(answers.contents) | set(answers.refused)
        for node, why in {**answers.refused, **answers.missing}.items():
            log(WARNING, "unskew: node %s does not say who it is: %s", node, why)


def _in_order(name: str) -> tuple[int, str]:
    """Put numbers in the order of numbers, and names behind them."""
    return (int(name), "") if name.isdecimal() else (2**62, name)
