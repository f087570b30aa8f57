"""The names and numbers of the nodes, which stay the same although Flower's node ids change."""

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from logging import INFO, WARNING
from pathlib import Path

from flwr.app import ConfigRecord, RecordDict

from unskew.errors import UnskewError
from unskew.flower.server_view import NodeInfo, parse_node_info
from unskew.flower.transport import GridLink, send
from unskew.flower.wire import NODE_INFO, QUERY, REQUEST, log
from unskew.runs.atomic import write_json

_POLL = 0.5
"""Seconds between two looks at which nodes are connected."""
_MIN_REPLY_TIMEOUT = 60.0
"""Seconds that a node has at least to report its name and its samples."""
_MAX_LOGGED_NAMES = 20


class NodeRegistry:
    """The nodes of a run. A client's number is the position of its node's name."""

    def __init__(self, grid: GridLink, reply_timeout: float = _MIN_REPLY_TIMEOUT) -> None:
        self._grid = grid
        self._reply_timeout = max(reply_timeout, _MIN_REPLY_TIMEOUT)
        """Seconds to wait for a reply, and until a node without a reply is queried again."""
        self._info_by_name: dict[str, NodeInfo] = {}
        self._info_by_id: dict[int, NodeInfo] = {}
        """What nodes reported, by Flower's node id and in the order in which they connected."""
        self._next_query: dict[int, float] = {}
        self.names: list[str] = []
        self.run = uuid.uuid4().hex
        """The id of the run; a resumed run keeps its id."""

    def wait_for_nodes(self, minimum: int, quorum: int, wait: float) -> None:
        """Wait for ``minimum`` nodes and number them in the order of their names.

        After ``wait`` seconds the run starts with the nodes that are connected, if they are at
        least ``quorum``.
        """
        deadline = time.monotonic() + wait
        while len(self._id_by_name()) < minimum and time.monotonic() < deadline:
            time.sleep(_POLL)
        present = self._id_by_name()
        if len(present) < quorum:
            raise UnskewError(
                f"nodes: {len(present)} connected within {wait:g} s, and the quorum is {quorum}; "
                "start more SuperNodes, increase wait, or lower the quorum"
            )
        if len(present) < minimum:
            log(
                WARNING,
                "unskew: %d of %d nodes connected after %g s; starting without the others",
                len(present),
                minimum,
                wait,
            )
        connected = [node for node in self._grid.get_node_ids() if node in self._info_by_id]
        names = Counter(str(self._info_by_id[node]["name"]) for node in connected)
        duplicates = sorted(name for name, count in names.items() if count > 1)
        if duplicates:
            raise UnskewError(
                f"name: two nodes are named {duplicates[0]!r}; give each node its own name"
            )
        self.names = sorted(present, key=_sort_key)
        self._info_by_name = {name: self._info_by_id[node] for name, node in present.items()}
        first = ", ".join(self.names[:_MAX_LOGGED_NAMES])
        more = ", …" if len(self.names) > _MAX_LOGGED_NAMES else ""
        log(INFO, "unskew: %d nodes: %s", len(self.names), first + more)

    def save(self, folder: Path, *, resume: bool) -> None:
        """Write the nodes to a file; a resumed run restores the numbers from that file first.

        Nodes that the file does not list are numbered after the others.
        """
        path = folder / "nodes.json"
        if resume and path.is_file():
            saved = json.loads(path.read_text())
            self.run = saved["run"]
            new = [name for name in self.names if name not in saved["nodes"]]
            self._info_by_name = {**saved["nodes"], **self._info_by_name}
            self.names = [*saved["nodes"], *new]
        folder.mkdir(parents=True, exist_ok=True)
        nodes = {name: self._info_by_name[name] for name in self.names}
        write_json(path, {"run": self.run, "nodes": nodes})

    def infos(self) -> list[NodeInfo]:
        """Return what the nodes reported about their samples, in the order of ``names``."""
        return [self._info_by_name[name] for name in self.names]

    def connected(self, clients: Sequence[int], minimum: int, wait: float) -> dict[int, int]:
        """Return the node ids of the clients that are connected.

        If they are fewer than ``minimum``, wait up to ``wait`` seconds for more.
        """
        deadline = time.monotonic() + wait
        while True:
            present = self._id_by_name()
            found = {k: present[name] for k in clients if (name := self.names[k]) in present}
            if len(found) >= min(minimum, len(clients)) or time.monotonic() >= deadline:
                return found
            time.sleep(_POLL)

    def query(self, nodes: Iterable[int]) -> dict[int, NodeInfo]:
        """Ask nodes for their names and samples; return what those that replied reported."""
        content = RecordDict({REQUEST: ConfigRecord({"run": self.run})})
        contents = {node: (node, content) for node in nodes}
        replies = send(self._grid, QUERY, contents, self._reply_timeout)
        reported, failed = {}, {**replies.refused, **replies.missing}
        for node, reply in replies.contents.items():
            try:
                reported[node] = parse_node_info(str(reply.config_records[NODE_INFO]["json"]))
            except (KeyError, ValueError, TypeError) as error:
                failed[node] = f"its reply cannot be read ({type(error).__name__})"
        for node, why in failed.items():
            log(
                WARNING,
                "unskew: node %s does not report its name: %s. If its app does not come from "
                "unskew.flower.client_app, create the strategy with custom_loop=True",
                node,
                why,
            )
        return reported

    def _id_by_name(self) -> dict[str, int]:
        """Return the connected nodes by name; of two with the same name, the first to connect.

        So no node replaces another one that is still connected, and a node that reconnects is
        used as soon as Flower has noticed that its earlier connection is gone.
        """
        connected = set(self._grid.get_node_ids())
        now = time.monotonic()
        new = [
            node
            for node in sorted(connected)
            if node not in self._info_by_id and self._next_query.get(node, 0.0) <= now
        ]
        if new:
            self._next_query |= dict.fromkeys(new, now + self._reply_timeout)
            self._info_by_id |= self.query(new)
        present: dict[str, int] = {}
        for node, info in self._info_by_id.items():
            if node in connected:
                present.setdefault(info["name"], node)
        return present


class AnonymousNodes(NodeRegistry):
    """Nodes with a custom app, which report nothing: Flower's node ids are their names."""

    def query(self, nodes: Iterable[int]) -> dict[int, NodeInfo]:
        """Return placeholder information for every node, without sending a message."""
        unknown = {"samples": 1, "tests": 1, "shape": [1], "dtype": "<f4", "classes": 1, "words": 0}
        return {node: {"name": str(node), **unknown} for node in nodes}

    def save(self, folder: Path, *, resume: bool) -> None:
        """Write the nodes to a file; nothing is restored, because node ids may have changed."""
        del resume
        super().save(folder, resume=False)


def _sort_key(name: str) -> tuple[int, str]:
    """Sort names that are numbers by value, before all other names."""
    return (int(name), "") if name.isdecimal() else (2**64, name)
