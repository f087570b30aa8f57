"""Messages to the nodes of a run, addressed by client number; reasons are reported by name."""

from collections.abc import Mapping
from dataclasses import dataclass

from flwr.app import RecordDict

from unskew.flower.registry import NodeRegistry
from unskew.flower.transport import GridLink, Replies, send


@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes of a run: how to contact them, and how long to wait."""

    grid: GridLink
    registry: NodeRegistry
    quorum: int
    wait: float
    """Seconds that a round waits for a quorum of nodes to connect."""
    timeout: float
    """Seconds that a round waits for replies."""

    def request(
        self, message_type: str, contents: Mapping[int, RecordDict], *, wait_for_quorum: bool
    ) -> Replies:
        """Send one message per client to the nodes that are connected and return the replies."""
        minimum = self.quorum if wait_for_quorum else 0
        connected = self.registry.connected(list(contents), minimum, self.wait)
        sent = {k: (connected[k], content) for k, content in contents.items() if k in connected}
        replies = send(self.grid, message_type, sent, self.timeout)
        offline = {k: "it is not connected" for k in contents if k not in connected}
        return Replies(
            replies.contents,
            self.with_names(replies.refused),
            self.with_names({**replies.missing, **offline}),
        )

    def with_names(self, reasons: Mapping[int, str]) -> dict[int, str]:
        """Return reasons with the names of their nodes."""
        return {k: f"{self.registry.names[k]}: {why}" for k, why in sorted(reasons.items())}
