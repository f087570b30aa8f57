"""The server's part of the preprocessing: it asks the nodes and merges their statistics."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import RecordDict
from numpy.typing import ArrayLike

from unskew.data import checks
from unskew.data.columns import Array
from unskew.data.preprocessing.declared import Declared
from unskew.data.preprocessing.fitted import Preprocessing, SentMessages, schema_message
from unskew.data.preprocessing.labels import Classes, agree_on_classes, spelled_otherwise
from unskew.data.preprocessing.message_checks import (
    check_evidence,
    check_labels,
    check_summary,
    parse_message,
)
from unskew.data.preprocessing.names import column_list
from unskew.data.preprocessing.protocol import (
    Message,
    Schema,
    agree_on_schema,
    declared_schema,
    fit,
    unlike,
)
from unskew.data.preprocessing.spec import Prepare
from unskew.data.read_tables import RawTable, TableLike
from unskew.data.targets import as_targets
from unskew.errors import UnskewError
from unskew.flower.greeting import NodeInfo, have_numbers_to_predict
from unskew.flower.nodes import Nodes
from unskew.flower.requests import Fitted, PrepareRequest
from unskew.flower.wire import PREPARE, REPLY, REQUEST, log
from unskew.runs.atomic import write_json
from unskew.runs.file_names import NODE_PREPROCESSING
from unskew.runs.json_files import damaged, parse_json_object

_MAX_LISTED = 3
"""How many nodes an error names."""


@dataclass(frozen=True, eq=False)
class FittedNodes:
    """What the nodes agreed on: the transformation of their columns, and the classes."""

    preprocessing: Preprocessing
    classes: Classes | None
    """None for a regression."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"preprocessing": self.preprocessing.to_json(), "classes": self.classes_json()}

    def classes_json(self) -> int | list[str] | None:
        """Return the classes as plain values."""
        return None if self.classes is None else self.classes.to_json()

    @staticmethod
    def read(folder: Path) -> "FittedNodes | None":
        """Read what the nodes of an earlier start of a run agreed on."""
        path = folder / NODE_PREPROCESSING
        if not path.is_file():
            return None
        # Its texts are names of categories and classes, which stay as they are.
        plain = parse_json_object(path.read_bytes(), f"{path}: is not JSON")
        classes = plain.get("classes")
        try:
            return FittedNodes(
                Preprocessing.from_json(plain.get("preprocessing")),
                None if classes is None else Classes.from_json(classes),
            )
        except UnskewError as error:
            raise damaged(path, str(error), "restore it, or choose another folder") from None

    def write(self, folder: Path) -> None:
        """Write a file that a resumed run reads."""
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / NODE_PREPROCESSING, self.to_json())

    def common(self, rows: TableLike, labels: ArrayLike) -> tuple[Array, Array]:
        """Return the features and targets of raw test samples on the server."""
        transform = self.preprocessing.transform
        columns = RawTable.of(rows, "common").cells(transform.names)
        return transform.apply(columns, "common"), self._targets(labels)

    def _targets(self, labels: ArrayLike) -> Array:
        if self.classes is None:
            return as_targets(labels, "common[1]", "regression")
        given = np.asarray(labels)
        if self.classes.lacks(given):
            raise UnskewError("common: some of its labels are of no class that a node has")
        return checks.labels(self.classes.numbers_of(given), "common[1]")

    def class_names(self, classes: int | None) -> tuple[str, ...] | None:
        """Return the names of the classes; None if the run has more classes than names."""
        found = self.classes
        return found.names if found is not None and classes in (None, found.count) else None

    def info(self, info: NodeInfo) -> NodeInfo:
        """Return what a node would report about its prepared samples."""
        transform = self.preprocessing.transform
        words = transform.vocabulary
        length = next((step.length for step in transform.columns if step.length), None)
        return {
            **info,
            "shape": [len(transform.feature_names) if words is None else length],
            "dtype": "<f4" if words is None else "<i4",
            "words": 0 if words is None else len(words),
            "classes": 1 if self.classes is None else self.classes.count,
        }


class PreprocessingExchange:
    """Asks all nodes, step by step; a node that refuses or sends something wrong drops out."""

    def __init__(self, nodes: Nodes, prepare: Prepare, seed: int) -> None:
        self._nodes, self._prepare, self._seed = nodes, prepare, seed
        infos = nodes.registry.infos()
        self._infos = infos
        self._samples = [info["samples"] for info in infos]
        self._is_regression = have_numbers_to_predict(infos)
        self._unlike: dict[int, str] = {}
        """The nodes with cells that cannot be read as most nodes' can, which should refuse."""
        self.clients = list(range(len(self._samples)))
        """The nodes that have answered every question so far, by number."""

    def fit(self, declared: Mapping[str, Declared]) -> FittedNodes:
        """Ask the nodes for their statistics and merge them."""
        prepare, sent = self._prepare, SentMessages()
        if prepare.budget is None:
            evidence = self._ask(lambda k: self._request("describe", k), self._evidence)
            described = self._with_same_columns(evidence)
            schema = agree_on_schema(described, declared, "nodes")
            self._unlike = {
                k: "; ".join(f"column {name!r}: {why}" for name, why in found.items())
                for k, message in zip(self.clients, described, strict=True)
                if (found := unlike(message, schema))
            }
            plain = schema_message(schema)
            sent = sent.plus(up=described, down=plain, clients=len(self.clients))
        else:
            schema = declared_schema(list(declared), declared, prepare, "nodes")
            plain = schema_message(schema)
        replies = self._ask(
            lambda k: self._request("summarise", k, schema=plain),
            lambda k, message: self._summary(k, message, schema),
        )
        if not self._is_regression:
            labels_of = {k: reply["labels"] for k, reply in replies.items()}
            others = self._nodes.with_names(spelled_otherwise(labels_of))
            self._continue_with([k for k in replies if k not in others], others)
            replies = {k: replies[k] for k in self.clients}
        summaries = [reply["columns"] for reply in replies.values()]
        samples = [self._samples[k] for k in replies]
        transform, classes = fit(summaries, schema, prepare, samples), None
        sent = sent.plus(up=summaries, down=transform.to_json(), clients=len(self.clients))
        if not self._is_regression:
            labels = [reply["labels"] for reply in replies.values()]
            classes = agree_on_classes(labels)
            sent = sent.plus(up=labels, down=classes.to_json(), clients=len(self.clients))
        return FittedNodes(Preprocessing(prepare.spec, transform, sent=sent), classes)

    def apply(self, fitted: FittedNodes) -> None:
        """Send all nodes the transformation that they apply."""
        sent = Fitted(transform=fitted.preprocessing.transform, classes=fitted.classes_json())
        self._ask(lambda k: self._request("apply", k, fitted=sent), lambda _, message: message)
        log(
            INFO,
            "unskew: %d nodes apply the preprocessing %s",
            len(self.clients),
            fitted.preprocessing.spec,
        )

    def _request(self, step: Any, client: int, **content: Any) -> RecordDict:
        request = PrepareRequest(
            run=self._nodes.registry.run,
            prepare=self._prepare.spec,
            step=step,
            client=client,
            seed=self._seed,
            **content,
        )
        return RecordDict({REQUEST: request.to_record()})

    def _ask(
        self, request: Callable[[int], RecordDict], read: Callable[[int, Message], Message]
    ) -> dict[int, Message]:
        """Return the replies in the order of clients."""
        contents = {k: request(k) for k in self.clients}
        replies = self._nodes.request(PREPARE, contents, wait_for_quorum=True)
        reasons = {**replies.refused, **replies.missing}
        accepted = {}
        for k in sorted(replies.contents):
            try:
                text = str(replies.contents[k].config_records[REPLY]["json"])
                accepted[k] = read(k, parse_message(text))
            except ValueError as error:
                reasons |= self._nodes.with_names({k: str(error)})
            except Exception as error:  # a run must survive any bytes that a node may send
                reasons |= self._nodes.with_names({k: f"unreadable ({type(error).__name__})"})
        self._continue_with(list(accepted), reasons)
        return accepted

    def _continue_with(self, clients: list[int], reasons: Mapping[int, str]) -> None:
        """Continue without the nodes that have a reason; raise if too few are left."""
        self._nodes.registry.leave_out(reasons.values())
        self.clients = clients
        if len(clients) < max(1, self._nodes.quorum):
            first = "".join(f"; {reason}" for reason in list(reasons.values())[:3])
            raise UnskewError(
                f"prepare: {len(clients)} nodes can be prepared, and the quorum is "
                f"{self._nodes.quorum}{first}"
            )

    def _with_same_columns(self, evidence: Mapping[int, Message]) -> list[Message]:
        """Continue with the nodes whose columns are those of most; return what they sent.

        The columns of all have the order in which the first of these nodes has them.
        """
        found = Counter(frozenset(message) for message in evidence.values())
        usual, count = found.most_common(1)[0]
        differences = {k: _difference(set(m), usual) for k, m in evidence.items()}
        others = {k: why for k, why in differences.items() if why}
        if 2 * count <= len(evidence):
            names = self._nodes.registry.names
            like = next(names[k] for k in evidence if k not in others)
            listed = "; ".join(list(self._nodes.with_names(others).values())[:_MAX_LISTED])
            raise UnskewError(
                f"prepare: no columns are those of most nodes; compared with {like}, {listed}; "
                "give all nodes the same columns"
            )
        reasons = self._nodes.with_names(
            {k: f"its columns are not those of most nodes: {why}" for k, why in others.items()}
        )
        self._continue_with([k for k in evidence if k not in others], reasons)
        first = list(evidence[self.clients[0]])
        return [{name: evidence[k][name] for name in first} for k in self.clients]

    def _evidence(self, client: int, message: Message) -> Message:
        check_evidence(message, self._samples[client])
        return message

    def _summary(self, client: int, message: Message, schema: Schema) -> Message:
        keys = ("columns",) if self._is_regression else ("columns", "labels")
        if set(message) != set(keys) or not isinstance(message["columns"], dict):
            raise ValueError(f"its summary must have {' and '.join(keys)}")
        if client in self._unlike:
            raise ValueError(self._unlike[client])
        columns = message["columns"]
        check_summary(columns, schema, self._prepare, self._samples[client])
        for column in (name for name, part in columns.items() if part.get("rare")):
            if not columns[column]["counts"]:
                log(
                    WARNING,
                    "unskew: %s: no value of column %r is in enough of its rows to leave it "
                    "(min_cell of its policy): it sends none",
                    self._nodes.registry.names[client],
                    column,
                )
        if not self._is_regression:
            info = self._infos[client]
            check_labels(message["labels"], info["samples"] + info["tests"], info["classes"])
        return message


def _difference(names: set[str], usual: frozenset[str]) -> str:
    """Return how the columns of a node differ from the usual ones; nothing if they do not."""
    parts = (("it lacks", usual - names), ("it also has", names - usual))
    parts_said = [f"{verb} {column_list(sorted(found))}" for verb, found in parts if found]
    return "; ".join(parts_said)
