"""Preparing the columns of all clients in one process, with the messages that nodes would send."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.data.preprocessing.cells import Column
from unskew.data.preprocessing.identifying import identifying
from unskew.data.preprocessing.labels import Classes
from unskew.data.preprocessing.protocol import (
    Message,
    Schema,
    agree_on_schema,
    check_all_alike,
    declared_schema,
    describe_columns,
    fit,
    summarise_columns,
    with_local_statistics,
)
from unskew.data.preprocessing.spec import Prepare, parse_prepare
from unskew.data.preprocessing.transform import Transform
from unskew.errors import UnskewError
from unskew.utils.rng import generator


@dataclass(frozen=True)
class SentMessages:
    """The size of what was sent: numbers and bytes of JSON, to the server and to the clients."""

    parameters_up: int = 0
    parameters_down: int = 0
    bytes_up: int = 0
    bytes_down: int = 0

    def plus(
        self, *, up: Sequence[object] = (), down: object = None, clients: int = 0
    ) -> "SentMessages":
        """Count one message from each client, and one to each of ``clients`` clients."""
        return SentMessages(
            self.parameters_up + sum(map(_numbers_in, up)),
            self.parameters_down + clients * _numbers_in(down),
            self.bytes_up + sum(len(encode(message)) for message in up),
            self.bytes_down + clients * len(encode(down)),
        )


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """How the columns of a federation were prepared, and what that cost."""

    spec: str
    transform: Transform
    """The transformation of all clients; with ``local``, the part that they share."""
    own: tuple[Transform, ...] = ()
    """With ``local``, the transformation of each client."""
    sent: SentMessages = field(default_factory=SentMessages)
    identifying: Mapping[str, str] = field(default_factory=dict)
    """The columns that are nearly unique per row, with the reason; declared ones are not."""

    def of_client(self, client: int) -> Transform:
        """Return the transformation that a client applies."""
        return self.own[client] if self.own else self.transform

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "spec": self.spec,
            "transform": self.transform.to_json(),
            "own": [each.to_json() for each in self.own],
            "sent": vars(self.sent),
            **({"identifying": dict(self.identifying)} if self.identifying else {}),
        }

    @staticmethod
    def from_json(plain: Any) -> "Preprocessing":
        """Read plain values, which anybody may have changed."""
        try:
            spec = str(plain["spec"])
            own = tuple(Transform.from_json(each) for each in plain["own"])
            sent = SentMessages(**{name: int(n) for name, n in plain["sent"].items()})
            ids = {str(name): str(why) for name, why in plain.get("identifying", {}).items()}
            parse_prepare(spec)
            return Preprocessing(spec, Transform.from_json(plain["transform"]), own, sent, ids)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise UnskewError(f"preprocessing: it is damaged ({type(error).__name__})") from None


def prepare_clients(
    clients: Sequence[Mapping[str, Column]],
    prepare: Prepare,
    declared: Schema,
    *,
    where: str,
    seed: int = 0,
    labels: Sequence[list[Any]] = (),
    classes: Classes | None = None,
    client_names: Sequence[str] = (),
) -> Preprocessing:
    """Fit the transformation to the training samples of all clients.

    ``clients`` holds the raw columns of each client's training samples. ``seed`` is that of the
    noise, if there is a privacy budget. ``labels`` are those that each client has, and ``classes``
    those of all, which are sent too; a regression has none. Errors name the
    clients by ``client_names``.
    """
    if prepare.mode == "pooled":
        clients, client_names = [pooled(clients)], ()
    names, count = list(clients[0]), len(clients)
    sent = SentMessages()
    if prepare.budget is None:
        evidence = [describe_columns(columns) for columns in clients]
        schema = agree_on_schema(evidence, declared, where)
        check_all_alike(evidence, schema, where, client_names or [""] * count)
        sent = sent.plus(up=evidence, down=schema_message(schema), clients=count)
    else:
        schema = declared_schema(names, declared, prepare, where)
    try:
        summaries = [
            summarise_columns(
                columns, schema, prepare, noise_of(seed, client) if prepare.budget else None
            )
            for client, columns in enumerate(clients)
        ]
    except UnskewError as error:
        raise UnskewError(f"{where}: {error}") from None
    rows = [len(next(iter(columns.values()))) for columns in clients]
    transform = fit(summaries, schema, prepare, rows)
    sent = sent.plus(up=summaries, down=transform.to_json(), clients=count)
    if classes is not None:
        sent = sent.plus(up=labels, down=classes.to_json(), clients=count)
    kinds = {name: column.kind for name, column in schema.items() if name not in declared}
    preprocessing = Preprocessing(
        prepare.spec, transform, sent=sent, identifying=identifying(pooled(clients), kinds)
    )
    if prepare.mode == "pooled":
        return replace(preprocessing, sent=SentMessages())
    if prepare.mode == "local":
        own = tuple(with_local_statistics(transform, columns) for columns in clients)
        return replace(preprocessing, own=own)
    return preprocessing


def noise_of(seed: int, client: int) -> np.random.Generator:
    """Return the generator of a client's noise in a simulation."""
    return generator(seed, "preprocessing noise", client)


def schema_message(schema: Schema) -> Message:
    """Return the message that says to clients what the columns hold."""
    return {name: column.to_json() for name, column in schema.items()}


def encode(message: object) -> bytes:
    """Return a message as it is sent: compact JSON in UTF-8; floats keep all their bits."""
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "backslashreplace"
    )


def pooled(clients: Sequence[Mapping[str, Column]]) -> dict[str, Column]:
    """Return the columns of all clients in one place."""
    return {name: _joined([columns[name] for columns in clients]) for name in clients[0]}


def _joined(columns: Sequence[Column]) -> Column:
    values: NDArray[Any] = np.concatenate([column.values for column in columns])
    return Column(columns[0].stored, values)


def _numbers_in(message: object) -> int:
    """Return how many numbers a message holds."""
    if isinstance(message, dict):
        return sum(map(_numbers_in, message.values()))
    if isinstance(message, list):
        return sum(map(_numbers_in, message))
    return int(isinstance(message, int | float) and not isinstance(message, bool))
