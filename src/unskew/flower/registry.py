"""Who the nodes are: names that stay, whatever numbers Flower gives them from run to run."""

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from logging import INFO, WARNING
from pathlib import Path

from flwr.app import ConfigRecord, RecordDict

from unskew.errors import UnskewError
from unskew.flower.server_view import Facts, read_facts
from unskew.flower.transport import GridLink, send
from unskew.flower.wire import HELLO, ORDER, log
from unskew.runs.atomic import write_json

_POLL = 0.5
"""Seconds between two looks at who is connected."""
_ANSWER = 60.0
"""Seconds that a node has at least to say who it is."""


_LISTED = 20
"""How many names the log lists."""


class NodeRegistry:
    """The nodes of a run. A client's number is the place of its name, so that it stays."""

    def __init__(self, grid: GridLink, patience: float = _ANSWER) -> None:
        self._grid = grid
        self._patience = max(patience, _ANSWER)
        """Seconds for an answer, and until one that gave none is asked again."""
        self._facts: dict[str, Facts] = {}
        self._told: dict[int, Facts] = {}
        """What nodes told, by Flower's number and in the order they came."""
        self._asked: dict[int, float] = {}
        self.names: list[str] = []
        self.run = uuid.uuid4().hex
        """The same when a run is resumed, another for every new one."""

    def wait_for_nodes(self, least: int, quorum: int, wait: float) -> None:
        """Wait for so many nodes and number them in the order of their names.

        After ``wait`` seconds the run begins without the others, if there are as many as a quorum.
        """
        deadline = time.monotonic() + wait
        while len(self._present()) < least and time.monotonic() < deadline:
            time.sleep(_POLL)
        present = self._present()
        if len(present) < quorum:
            raise UnskewError(
                f"nodes: {len(present)} were there within {wait:g} s, and the quorum is {quorum}; "
                "start more SuperNodes, wait longer, or lower the quorum"
            )
        if len(present) < least:
            log(WARNING, "unskew: %d of %d nodes after %g s; going on", len(present), least, wait)
        names = Counter(str(self._told[node]["name"]) for node in self._connected())
        twice = sorted(name for name, nodes in names.items() if nodes > 1)
        if twice:
            raise UnskewError(f"name: two nodes call themselves {twice[0]!r}; give each its own")
        self.names = sorted(present, key=_in_order)
        self._facts = {name: self._told[node] for name, node in present.items()}
        first = ", ".join(self.names[:_LISTED]) + (", …" if len(self.names) > _LISTED else "")
        log(INFO, "unskew: %d nodes: %s", len(self.names), first)

    def remember(self, folder: Path, *, resume: bool) -> None:
        """Write the nodes down, or give them the numbers they had when the run began.

        Nodes that were not there then come behind the others.
        """
        path = folder / "nodes.json"
        if resume and path.is_file():
            known = json.loads(path.read_text())
            self.run = known["run"]
            new = [name for name in self.names if name not in known["nodes"]]
            self._facts = {**known["nodes"], **self._facts}
            self.names = [*known["nodes"], *new]
        folder.mkdir(parents=True, exist_ok=True)
        nodes = {name: self._facts[name] for name in self.names}
        write_json(path, {"run": self.run, "nodes": nodes})

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

    def ask(self, nodes: Iterable[int]) -> dict[int, Facts]:
        """Ask nodes who they are and what they have; return what those told that answered."""
        content = RecordDict({ORDER: ConfigRecord({"run": self.run})})
        letters = {node: (node, content) for node in nodes}
        answers = send(self._grid, HELLO, letters, self._patience)
        told, silent = {}, {**answers.refused, **answers.missing}
        for node, answer in answers.contents.items():
            try:
                told[node] = read_facts(str(answer.config_records[ORDER]["json"]))
            except (KeyError, ValueError, TypeError) as error:
                silent[node] = f"its answer cannot be read ({type(error).__name__})"
        for node, why in silent.items():
            log(
                WARNING,
                "unskew: node %s does not say who it is: %s. If its app is not made by "
                "unskew.flower.client_app, make the strategy with own_loop=True",
                node,
                why,
            )
        return told

    def _present(self) -> dict[str, int]:
        """Return the connected nodes by name; of two with one name, the one that came first.

        So nobody takes another's place while it is there, and one that came back gets its own as
        soon as Flower has noticed that it was away.
        """
        connected = set(self._grid.get_node_ids())
        now = time.monotonic()
        new = [node for node in sorted(connected) if self._asked.get(node, 0.0) <= now]
        new = [node for node in new if node not in self._told]
        if new:
            self._asked |= dict.fromkeys(new, now + self._patience)
            self._told |= self.ask(new)
        present: dict[str, int] = {}
        for node, facts in self._told.items():
            if node in connected:
                present.setdefault(facts["name"], node)
        return present

    def _connected(self) -> list[int]:
        return [node for node in self._grid.get_node_ids() if node in self._told]


class AnonymousNodes(NodeRegistry):
    """Nodes with an app of their own, which cannot be asked: Flower's numbers are their names."""

    def ask(self, nodes: Iterable[int]) -> dict[int, Facts]:
        """Take every node for one with a sample of unknown kind."""
        unknown = {"samples": 1, "tests": 1, "shape": [1], "dtype": "<f4", "classes": 1, "words": 0}
        return {node: {"name": str(node), **unknown} for node in nodes}

    def remember(self, folder: Path, *, resume: bool) -> None:
        """Write the nodes down; after a restart their numbers may be others."""
        del resume
        super().remember(folder, resume=False)


def _in_order(name: str) -> tuple[int, str]:
    """Put numbers in the order of numbers, and names behind them."""
    return (int(name), "") if name.isdecimal() else (2**64, name)
