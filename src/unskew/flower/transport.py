"""Sending messages to nodes and sorting their replies."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from flwr.app import ConfigRecord, Error, Message, RecordDict

from unskew.flower.wire import MAX_REASON, REFUSAL
from unskew.utils.printable import printable

NO_REPLY = "no reply"
"""How the reason begins if a node did not reply in time."""


class GridLink(Protocol):
    """The part of Flower's grid that unskew uses."""

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the connected nodes."""

    def get_nodes(self) -> Iterable[Any]:
        """Return the connected nodes with ``node_id``, ``public_key`` and registered ``name``."""

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and wait for the replies."""


@dataclass(frozen=True, eq=False)
class Replies:
    """The replies by client: the content, or the reason why there is none."""

    contents: Mapping[int, RecordDict]
    refused: Mapping[int, str]
    missing: Mapping[int, str]


def send(
    grid: GridLink,
    message_type: str,
    contents: Mapping[int, tuple[int, RecordDict]],
    timeout: float,
) -> Replies:
    """Send one message per client and wait at most ``timeout`` seconds for the replies.

    ``contents`` maps each client to its node id and the content of its message. Replies are
    matched by the message they reply to, because errors raised by the network name no node.
    """
    messages = {
        k: Message(content=content, message_type=message_type, dst_node_id=node)
        for k, (node, content) in contents.items()
    }
    replies = list(grid.send_and_receive(list(messages.values()), timeout=timeout))
    client_of = {message.metadata.message_id: k for k, message in messages.items()}
    received: dict[int, RecordDict] = {}
    refused: dict[int, str] = {}
    missing = dict.fromkeys(contents, f"{NO_REPLY} within {timeout:g} s")
    for reply in replies:
        k = client_of.get(reply.metadata.reply_to_message_id)
        if k is None:
            continue
        if reply.has_error():
            missing[k] = _describe(reply.error)
            continue
        missing.pop(k, None)
        if REFUSAL in reply.content.config_records:
            refused[k] = _reason(reply.content.config_records[REFUSAL])
        else:
            received[k] = reply.content
    return Replies(received, refused, missing)


def _reason(record: ConfigRecord) -> str:
    """Return why a node refuses: its own words, which may hold anything and be of any length."""
    reason = printable(str(record.get("reason", "no reason given")))
    return reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]}…"


def _describe(error: Error) -> str:
    """Describe an error by its code; its text comes from user code and may contain data."""
    reason = _REASONS.get(error.code, "Flower reports an error")
    return f"{reason} (Flower's error {error.code})"


_REASONS = {
    1: "its app cannot be loaded",
    2: "its app raised an exception",
    5: "it disconnected",
    8: "its app crashed",
}
