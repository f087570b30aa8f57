"""The ranges of columns that a node was asked for: many of them would spell out its values.

The mean of a column's values within a range is a statistic; the means within a hundred ranges are
the values themselves. So a node answers a few ranges per column of a table, whatever the run.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from unskew.data.preprocessing.protocol import Schema
from unskew.flower.node_files import NodeFiles
from unskew.flower.wire import Refusal

_FOLDER, _FILE, _LOCK = ".statistics", "ranges.json", "ranges.lock"
_MOST = 3
"""The ranges of one column that are answered; no range is one, too."""


@dataclass(frozen=True)
class AskedRanges:
    """The ranges that servers have asked for, of one table."""

    state: Path
    """The node's state folder."""
    table: str
    """The fingerprint of the table."""

    def refuse_more(self, schema: Schema, declared: Schema) -> None:
        """Note the ranges of a request; refuse it if it has more of them than are answered.

        Ranges that the site itself declares are always answered.
        """
        files = NodeFiles(self.state / _FOLDER, self.table)
        with FileLock(files.folder() / _LOCK):
            content = files.read(_FILE)
            asked: dict[str, list[list[float] | None]] = json.loads(content) if content else {}
            for name, column in schema.items():
                own = declared.get(name)
                if column.kind not in ("number", "date") or (own and own.bounds == column.bounds):
                    continue
                ends = None if column.bounds is None else list(column.bounds)
                found = asked.setdefault(name, [])
                if ends not in found:
                    found.append(ends)
                if len(found) > _MOST:
                    raise Refusal(
                        f"column {name!r}: it has answered {_MOST} ranges of this column; its site "
                        "can declare the range (kinds of its policy)"
                    )
            files.write(_FILE, json.dumps(asked).encode())
