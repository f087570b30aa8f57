"""The names and numbers of the nodes, which stay the same although Flower's node ids change."""

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

from flwr.app import RecordDict
from pydantic import BaseModel

from unskew.errors import UnskewError
from unskew.flower.greeting import Admission, NodeInfo, parse_node_info
from unskew.flower.node_keys import NodeKeys, SavedOwner
from unskew.flower.requests import Greeting
from unskew.flower.transport import NO_REPLY, GridLink, send
from unskew.flower.wire import NODE_INFO, QUERY, REQUEST, log
from unskew.runs.atomic import write_json
from unskew.runs.json_files import damaged, read_checked
from unskew.utils.wording import plural

_POLL = 0.5
"""Seconds between two looks at which nodes are connected."""
_MIN_REPLY_TIMEOUT = 60.0
"""Seconds that a node has at least to report its name and its samples."""
_MAX_LOGGED_NAMES, _MAX_REASONS = 20, 3


class NodeRegistry:
    """The nodes of a run. A client's number is the position of its node's name."""

    def __init__(
        self,
        grid: GridLink,
        reply_timeout: float = _MIN_REPLY_TIMEOUT,
        admission: Admission | None = None,
    ) -> None:
        self._grid = grid
        self._admission = admission or Admission()
        self._reply_timeout = max(reply_timeout, _MIN_REPLY_TIMEOUT)
        """Seconds to wait for a reply, and until a node without a reply is queried again."""
        self._keys = NodeKeys(grid)
        self._info_by_name: dict[str, NodeInfo] = {}
        self._info_by_id: dict[int, NodeInfo] = {}
        """What nodes reported, by Flower's node id and in the order in which they connected."""
        self._left_out: list[str] = []
        """Why nodes that greeted the server could not be prepared."""
        self._refused: dict[int, str] = {}
        """The nodes that take no part in the run, by node id, with the reason."""
        self._failed: dict[int, str] = {}
        """The connected nodes whose last reply was an error, by node id, with the reason."""
        self._next_query: dict[int, float] = {}
        self.names: list[str] = []
        self.run = uuid.uuid4().hex
        """The id of the run; a resumed run keeps its id."""

    def wait_for_nodes(self, minimum: int, quorum: int, wait: float) -> None:
        """Wait for ``minimum`` nodes and number them in the order of their names.

        After ``wait`` seconds the run starts with the nodes that are connected, if they are at
        least ``quorum``. Nodes that are refused count as connected, so no one waits for them.
        """
        deadline = time.monotonic() + wait
        while len(present := self._id_by_name()) + len(self._refused) < minimum:
            all_fail = not present and len(self._failing()) >= minimum
            if all_fail or time.monotonic() >= deadline:
                break
            time.sleep(_POLL)
        self._refuse_contested_names()
        present = self._id_by_name()
        infos = {name: self._info_by_id[node] for name, node in present.items()}
        for name, reason in self._admission.refused(infos).items():
            self._refuse(present.pop(name), f"{name}: {reason}")
        if len(present) < quorum:
            raise self._too_few(len(present), quorum, wait)
        if len(present) < minimum:
            absent = {"refused": len(self._refused), "with errors": len(self._failing())}
            why = ", ".join(f"{count} {what}" for what, count in absent.items() if count)
            log(
                WARNING,
                "unskew: %d of %d nodes connected after %g s; starting without the others%s",
                len(present),
                minimum,
                wait,
                f" ({why})" if why else "",
            )
        self.names = sorted(present, key=_sort_key)
        self._info_by_name = {name: infos[name] for name in present}
        self._keys.bind(present)
        first = ", ".join(self.names[:_MAX_LOGGED_NAMES])
        more = ", …" if len(self.names) > _MAX_LOGGED_NAMES else ""
        log(INFO, "unskew: %d nodes: %s", len(self.names), first + more)

    def restore_keys(self, folder: Path) -> None:
        """Load which key each name of an earlier run belongs to, if there was one."""
        path = folder / "nodes.json"
        if path.is_file():
            self._keys.load(_read_nodes(path).get("keys", {}))

    def save(self, folder: Path, *, resume: bool) -> None:
        """Write the nodes to a file; a resumed run restores the numbers from that file first.

        Nodes that the file does not list are numbered after the others.
        """
        path = folder / "nodes.json"
        if resume and path.is_file():
            saved = _read_nodes(path)
            self.run = saved["run"]
            new = [name for name in self.names if name not in saved["nodes"]]
            self._info_by_name = {**saved["nodes"], **self._info_by_name}
            self.names = [*saved["nodes"], *new]
        folder.mkdir(parents=True, exist_ok=True)
        nodes = {name: self._info_by_name[name] for name in self.names}
        failed = [f"{node}: {why}" for node, why in self._failing().items()]
        left_out = [*self._refused.values(), *failed, *self._left_out]
        keys = self._keys.to_json()
        write_json(path, {"run": self.run, "nodes": nodes, "keys": keys, "left_out": left_out})

    def leave_out(self, reasons: Iterable[str]) -> None:
        """Log and keep the reasons for which nodes take no part in the run."""
        for reason in reasons:
            log(WARNING, "unskew: without this node: %s", reason)
            self._left_out.append(reason)

    def keep(self, clients: Sequence[int]) -> None:
        """Continue with some of the nodes, which are numbered again."""
        self.names = [self.names[client] for client in clients]
        self._info_by_name = {name: self._info_by_name[name] for name in self.names}

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
        content = RecordDict({REQUEST: Greeting(run=self.run).to_record()})
        contents = {node: (node, content) for node in nodes}
        replies = send(self._grid, QUERY, contents, self._reply_timeout)
        errors = {n: why for n, why in replies.missing.items() if not why.startswith(NO_REPLY)}
        self._failed |= {**replies.refused, **errors}
        reported = {}
        for node, reply in replies.contents.items():
            self._failed.pop(node, None)
            try:
                reported[node] = parse_node_info(str(reply.config_records[NODE_INFO]["json"]))
            except ValueError as error:
                self._refuse(node, f"node {node}: {error}")
            except Exception as error:  # a run must survive any bytes that a node may send
                self._refuse(node, f"node {node}: unreadable report ({type(error).__name__})")
        for node, why in replies.refused.items():
            log(WARNING, "unskew: node %s cannot take part: %s", node, why)
        for node, why in replies.missing.items():
            log(
                WARNING,
                "unskew: node %s does not report its name: %s. If its app does not come from "
                "unskew.flower.client_app, create the strategy with custom_loop=True",
                node,
                why,
            )
        return reported

    def _failing(self) -> dict[int, str]:
        """Return the connected nodes whose last reply was an error, with the reason."""
        connected = set(self._grid.get_node_ids())
        return {node: why for node, why in self._failed.items() if node in connected}

    def _too_few(self, present: int, quorum: int, wait: float) -> UnskewError:
        """Return the error of a run without a quorum; it repeats what the nodes gave as reasons."""
        refused = [f"refused: {why}" for why in self._refused.values()]
        failed = self._failing()
        times = Counter(failed.values())
        shared = [f"{plural(times[why], 'node')}: {why}" for why in times]
        reasons = "".join(f"; {why}" for why in [*shared, *refused][:_MAX_REASONS])
        connected = present + len(failed) + len(refused)
        if failed:
            what = f"{connected} connected, of which {present} can take part"
            fix = "their logs say more"
        else:
            what = f"{present} connected within {wait:g} s"
            fix = "start more SuperNodes, increase wait, or lower the quorum"
        return UnskewError(f"nodes: {what}, and the quorum is {quorum}; {fix}{reasons}")

    def _refuse(self, node: int, reason: str) -> None:
        self._refused[node] = reason
        log(WARNING, "unskew: refused: %s", reason)

    def _refuse_contested_names(self) -> None:
        """Refuse nodes that claim the same name, unless it is known whose it is."""
        connected = set(self._grid.get_node_ids()) - self._refused.keys()
        claims = {n: info["name"] for n, info in self._info_by_id.items() if n in connected}
        for name, count in Counter(claims.values()).items():
            claimants = [node for node, claimed in claims.items() if claimed == name]
            owner = self._keys.owner_among(name, claimants)
            for node in claimants if count > 1 else ():
                if node != owner:
                    self._refuse(node, f"two nodes are named {name!r}; give each its own name")

    def _id_by_name(self) -> dict[str, int]:
        """Return the connected nodes by name; of two with the same name, the first to connect.

        So no node replaces another one that is still connected, and a node that reconnects is
        used as soon as Flower has noticed that its earlier connection is gone.
        """
        connected = set(self._grid.get_node_ids())
        now = time.monotonic()
        new = [
            node
            for node in sorted(connected - self._refused.keys())
            if node not in self._info_by_id and self._next_query.get(node, 0.0) <= now
        ]
        if new:
            self._next_query |= dict.fromkeys(new, now + self._reply_timeout)
            for node, info in self.query(new).items():
                reason = self._keys.objection(node, info["name"]) or self._change_of(info)
                if reason is None:
                    self._info_by_id[node] = info
                else:
                    self._refuse(node, f"{info['name']}: {reason}")
        present: dict[str, int] = {}
        for node, info in self._info_by_id.items():
            if node in connected and node not in self._refused:
                present.setdefault(info["name"], node)
        return present

    def _change_of(self, info: NodeInfo) -> str | None:
        """Return why a node cannot come back: what it reported is fixed when the run starts."""
        before = self._info_by_name.get(info["name"]) if self.names else None
        changed = [] if before is None else [k for k in info if info[k] != before.get(k)]
        if not changed:
            return None
        return f"its {', '.join(changed)} changed during the run; resume the run to accept this"


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


class _SavedNodes(BaseModel):
    """What is saved about the nodes of a run."""

    run: str
    nodes: dict[str, dict[str, Any]]
    keys: dict[str, SavedOwner] = {}


def _read_nodes(path: Path) -> dict[str, Any]:
    """Read the nodes of an earlier start of a run; anybody may have changed them."""
    fix = "restore it, or choose another folder"
    saved = read_checked(path, _SavedNodes, fix)
    for name, info in saved["nodes"].items():
        try:
            parse_node_info(json.dumps(info))
        except ValueError as error:
            raise damaged(path, f"nodes.{name}: {error}", fix) from None
    return saved


def _sort_key(name: str) -> tuple[int, str]:
    """Sort names that are numbers by value, before all other names."""
    return (int(name), "") if name.isdecimal() else (2**64, name)
