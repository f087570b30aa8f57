"""The log of a node: what left it, one JSON line per message."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flwr.app import RecordDict

from unskew.flower.node_files import NodeFiles
from unskew.flower.wire import REFUSAL, Refusal

SENT = "sent.jsonl"
"""The log's file, in the state folder."""


@dataclass(frozen=True, eq=False)
class Outgoing:
    """A message that is about to leave."""

    content: RecordDict
    kind: str
    """What is answered: info, describe, summarise, apply, train, evaluate; or refusal."""
    run: str = ""
    stage: str | None = None
    round: int | None = None
    epsilon: float | None = None
    """What a private release adds to the ledger, if it is one: nothing if it is repeated."""


class SentLog:
    """The messages that left one node; without a state folder, there is no log."""

    def __init__(self, folder: Path | None, node: str) -> None:
        self._files = None if folder is None else NodeFiles(folder)
        self._node = node

    def add(self, message: Outgoing) -> None:
        """Write the line of a message, before the message leaves."""
        if self._files is None:
            return
        line: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "node": self._node,
            "run": message.run,
            "stage": message.stage,
            "round": message.round,
            "kind": message.kind,
            "values": dict(values_of(message.content)),
            "bytes": size_of(message.content),
            "epsilon": message.epsilon,
        }
        if message.kind == REFUSAL:
            line["reason"] = str(message.content.config_records[REFUSAL]["reason"])
        try:
            self._files.append(SENT, json.dumps(line).encode() + b"\n")
        except OSError as error:
            raise Refusal(f"it cannot log what it sends: {error.strerror}") from None


def values_of(content: RecordDict) -> Iterator[tuple[str, list[int]]]:
    """Yield the names and shapes of what a message holds."""
    for arrays in content.array_records.values():
        yield from ((name, list(array.shape)) for name, array in arrays.items())
    for metrics in content.metric_records.values():
        yield from ((name, []) for name in metrics)
    for record in content.config_records.values():
        for name, value in record.items():
            yield from _of_json(name, json.loads(str(value)) if name == "json" else value)


def _of_json(name: str, value: Any) -> Iterator[tuple[str, list[int]]]:
    if isinstance(value, dict) and not name.endswith("counts"):
        for key, each in value.items():
            yield from _of_json(key if name == "json" else f"{name}.{key}", each)
    else:
        yield name, [len(value)] if isinstance(value, list | dict) else []


def size_of(content: RecordDict) -> int:
    """Return the bytes of a message's values."""
    arrays = sum(len(each.data) for r in content.array_records.values() for each in r.values())
    numbers = sum(8 * len(record) for record in content.metric_records.values())
    texts = (str(each) for r in content.config_records.values() for each in r.values())
    return arrays + numbers + sum(len(text.encode()) for text in texts)
