"""Which key each name belongs to.

The operator registers a node's key with a name (``flwr supernode register KEY --name NAME``), and
Flower accepts the node only with that key. A node that claims another name is refused. Nodes
without a registered name, as on a SuperLink without authentication, keep a name while they are
connected; another key that takes it over later is reported.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from logging import WARNING
from typing import Any

from unskew.flower.transport import GridLink
from unskew.flower.wire import log


@dataclass(frozen=True)
class SavedOwner:
    """The key that a name belongs to."""

    key: str
    registered: bool
    """Whether the operator registered the key with this name."""


class NodeKeys:
    """The keys of a federation's nodes, and the names that they are bound to."""

    def __init__(self, grid: GridLink) -> None:
        self._grid = grid
        self._owners: dict[str, SavedOwner] = {}
        self._identities: dict[int, tuple[str, str]] = {}

    def objection(self, node: int, name: str) -> str | None:
        """Return why a node may not have a name; None if it may."""
        key, registered = self._of(node)
        if registered and registered != name:
            return f"its key is registered with the name {registered!r}"
        owner = self._owners.get(name)
        if owner is None or not owner.key or owner.key == key:
            return None
        if owner.registered:
            return "the name belongs to another key"
        log(WARNING, "unskew: %s connected with another key; register keys with names", name)
        return None

    def owner_among(self, name: str, nodes: Iterable[int]) -> int | None:
        """Return the node among several that a name belongs to; None if this is not known."""
        owner = self._owners.get(name)
        for node in nodes:
            key, registered = self._of(node)
            if registered == name or (owner is not None and key and owner.key == key):
                return node
        return None

    def bind(self, nodes: Mapping[str, int]) -> None:
        """Bind the names of a run to the keys of the nodes that have them."""
        for name, node in nodes.items():
            key, registered = self._of(node)
            if key:
                self._owners[name] = SavedOwner(key, registered == name)

    def load(self, owners: Mapping[str, Any]) -> None:
        """Restore what an earlier run has bound."""
        self._owners |= {name: SavedOwner(**owner) for name, owner in owners.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the owners by name, to be saved."""
        return {name: asdict(owner) for name, owner in self._owners.items()}

    def _of(self, node: int) -> tuple[str, str]:
        """Return a node's key and its registered name, empty where Flower reports none."""
        if node not in self._identities:
            for each in self._grid.get_nodes():
                self._identities[each.node_id] = each.public_key.hex(), each.name
        return self._identities.get(node, ("", ""))
