"""A node's part of the preprocessing: what it sends about its columns, and what it keeps."""

import hashlib
import json
import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from flwr.app import ConfigRecord, Context

from unskew.data.federation import Federation
from unskew.data.preprocessing.declared import Declared
from unskew.data.preprocessing.fitted import Preprocessing, noise_of, schema_message
from unskew.data.preprocessing.labels import Classes, describe_labels
from unskew.data.preprocessing.protocol import (
    Message,
    declared_schema,
    describe_columns,
    summarise_columns,
)
from unskew.data.preprocessing.spec import Prepare
from unskew.errors import UnskewError
from unskew.flower.asked_ranges import AskedRanges
from unskew.flower.leaving import check_columns
from unskew.flower.ledger import Ledger, Release
from unskew.flower.node_files import NodeFiles
from unskew.flower.node_table import RawSamples
from unskew.flower.policy import Policy
from unskew.flower.requests import Fitted, PrepareRequest
from unskew.flower.table_checks import (
    refuse_identifying,
    refuse_other_columns,
    refuse_other_kinds,
    refuse_unlike,
)
from unskew.flower.wire import Refusal

_RECORD = "unskew.preprocessing"


@dataclass(frozen=True, eq=False)
class NodePreprocessing:
    """The preprocessing of one node in one run; what it keeps survives a restart."""

    raw: RawSamples
    context: Context
    folder: Path | None
    run: str
    name: str
    secret_noise: bool
    policy: Policy = field(default_factory=Policy)
    """What the site allows, and says about its columns."""
    ledger: Ledger | None = None
    """The ledger of private statistics; None if their noise is not secret, or there is none."""

    def reply_to(self, request: PrepareRequest) -> tuple[Message, float | None]:
        """Return what the node sends, and the epsilon that it adds to the ledger if it is private.

        Its reasons to refuse hold no cells of the table.
        """
        if request.prepare != self.raw.prepare.spec:
            raise Refusal(
                f"it prepares its table by {self.raw.prepare.spec}, but the server asks for "
                f"{request.prepare}"
            )
        try:
            match request.step:
                case "describe":
                    reply, epsilon = self._describe(), None
                case "summarise":
                    reply, epsilon = self._summarise(request)
                case "apply":
                    return self._apply(request), None
            check_columns(self.policy, reply)
            return reply, epsilon
        except Refusal:
            raise
        except UnskewError as error:
            raise Refusal(str(error)) from None

    def federation(self) -> Federation:
        """Return the node's samples with the features that all nodes use."""
        return self._prepared(self._fitted())

    def of_own_rows(self) -> Preprocessing:
        """Return the preprocessing of rows of this node, as a predictor applies it."""
        transform = self.raw.own_transform(self._fitted().transform)
        return Preprocessing(Prepare().spec, transform)

    def _fitted(self) -> Fitted:
        fitted = self._read("fitted")
        if fitted is None:
            raise Refusal("it has no preprocessing of this run; resume the run to send it again")
        return Fitted.model_validate_json(fitted)

    def _describe(self) -> Message:
        if self.raw.prepare.budget is not None:
            raise Refusal("with a privacy budget, it does not describe its columns")
        refuse_identifying(self.raw.columns, self.policy.columns)
        return describe_columns(self.raw.train_columns())

    def _summarise(self, request: PrepareRequest) -> tuple[Message, float | None]:
        schema, prepare = request.columns or {}, self.raw.prepare
        refuse_other_columns(schema, self.raw.columns)
        refuse_other_kinds(schema, self.policy.columns)
        if prepare.budget is None:
            refuse_identifying(self.raw.columns, self.policy.columns)
            refuse_unlike(self.raw.columns, schema, self.policy.columns)
            if self.folder is not None:
                ranges = AskedRanges(self.folder, self.raw.fingerprint)
                ranges.refuse_more(schema, self.policy.columns)
            return self._summary(schema, request), None
        declared_schema(list(schema), schema, prepare, "server")
        if self.ledger is None:
            return self._summary(schema, request), None
        asked = json.dumps([prepare.spec, schema_message(schema)]).encode()
        release = Release.of_statistics(self.run, hashlib.sha256(asked).hexdigest(), prepare.budget)
        content, epsilon = self.ledger.release(
            release, lambda: json.dumps(self._summary(schema, request)).encode()
        )
        return dict(json.loads(content)), epsilon

    def _summary(self, schema: dict[str, Declared], request: PrepareRequest) -> Message:
        rng = noise_of(request.seed, request.client)
        if self.secret_noise:
            rng = np.random.default_rng(secrets.randbits(128))
        least = max(self.policy.min_cell, self.raw.prepare.min_cell)
        prepare = replace(self.raw.prepare, min_cell=least)
        columns = summarise_columns(self.raw.train_columns(), schema, prepare, rng)
        if self.raw.placed.is_regression:  # its greeting has the sums of its targets
            return {"columns": columns}
        return {"columns": columns, "labels": describe_labels(self.raw.labels)}

    def _apply(self, request: PrepareRequest) -> Message:
        assert request.fitted is not None  # as its step needs
        self._prepared(request.fitted)
        self._write("fitted", request.fitted.model_dump_json(exclude_defaults=True))
        return {"applied": True}

    def _prepared(self, fitted: Fitted) -> Federation:
        kinds = {step.name: Declared(step.kind) for step in fitted.transform.columns}
        refuse_other_columns(kinds, self.raw.columns)
        refuse_other_kinds(kinds, self.policy.columns)
        if self.raw.prepare.budget is None:
            refuse_unlike(self.raw.columns, kinds, self.policy.columns)
        rows = self.raw.placed.train.samples + self.raw.placed.test.samples
        limit = self.policy.limits.megabytes
        if 8 * rows * fitted.transform.width > limit * 1_000_000:
            raise Refusal(f"fitted: its policy allows features of at most {limit} MB")
        return self.raw.prepared(fitted.transform, self._classes(fitted.classes))

    def _classes(self, plain: int | list[str] | None) -> Classes | None:
        is_regression = self.raw.placed.is_regression
        if (plain is None) != is_regression:
            kind = "numbers" if is_regression else "classes"
            raise Refusal(f"its targets are {kind}, unlike those of the run")
        if plain is None:
            return None
        classes = Classes.from_json(plain)
        if classes.lacks(self.raw.labels):
            raise Refusal("the server's classes lack some of its labels")
        return classes

    def _read(self, key: str) -> str | None:
        record = self.context.state.config_records.get(_RECORD, ConfigRecord())
        if record.get("run") == self.run and key in record:
            return str(record[key])
        files = self._files()
        content = None if files is None else files.read(_file(key))
        return None if content is None else content.decode()

    def _write(self, key: str, text: str) -> None:
        record = self.context.state.config_records.get(_RECORD, ConfigRecord())
        kept = dict(record) if record.get("run") == self.run else {"run": self.run}
        self.context.state[_RECORD] = ConfigRecord({**kept, key: text})
        files = self._files()
        if files is not None:
            files.write(_file(key), text.encode())

    def _files(self) -> NodeFiles | None:
        return None if self.folder is None else NodeFiles(self.folder, self.run, self.name)


def _file(key: str) -> str:
    return f"preprocessing-{key}.json"
