"""Sending messages to nodes and sorting their answers, whatever becomes of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from flwr.app import Error, Message, RecordDict

from unskew.flower.wire import REFUSAL


class GridLink(Protocol):
    """What is used of Flower's grid."""

    def get_node_ids(self) -> Iterable[int]:
        """Return the numbers of the connected nodes."""

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and wait for the answers."""


@dataclass(frozen=True, eq=False)
class Answers:
    """What came back, by client: a content, or the reason why there is none."""

    contents: Mapping[int, RecordDict]
    refused: Mapping[int, str]
    missing: Mapping[int, str]


def send(
    grid: GridLink,
    kind: str,
    letters: Mapping[int, tuple[int, RecordDict]],
    timeout: float,
) -> Answers:
    """Send each client's letter to its node and wait for the answers, at most so many seconds.

    ``letters`` are node and content by client. Errors that the network makes name no node, so
    that answers are told apart by the message they reply to.
    """
    messages = {
        k: Message(content=content, message_type=kind, dst_node_id=node)
        for k, (node, content) in letters.items()
    }
    replies = list(grid.send_and_receive(list(messages.values()), timeout=timeout))
    asked = {message.metadata.message_id: k for k, message in messages.items()}
    contents: dict[int, RecordDict] = {}
    refused: dict[int, str] = {}
    missing = dict.fromkeys(letters, f"no answer within {timeout:g} s")
    for reply in replies:
        k = asked.get(reply.metadata.reply_to_message_id)
        if k is None:
            continue
        if reply.has_error():
            missing[k] = _error(reply.error)
            continue
        missing.pop(k, None)
        if REFUSAL in reply.content.config_records:
            refused[k] = str(reply.content.config_records[REFUSAL].get("reason", "no reason given"))
        else:
            contents[k] = reply.content
    return Answers(contents, refused, missing)


def _error(error: Error) -> str:
    """Say what Flower says, but for words of other people's code, which may hold data."""
    what = _ERRORS.get(error.code, "Flower reports an error")
    return f"{what} (Flower's error {error.code})"


_ERRORS = {
    1: "its app cannot be loaded",
    2: "its app raised an exception",
    5: "it went away",
    8: "its app crashed",
}
