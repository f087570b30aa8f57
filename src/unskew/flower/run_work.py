"""What a server has asked of a node in a run: counted on the node, and limited by its site.

The count is on disk before the work is done, so it survives the node's processes and restarts.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from flwr.app import ConfigRecord, Context
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unskew.flower.node_files import NodeFiles
from unskew.flower.policy import Limits
from unskew.flower.wire import Refusal
from unskew.utils.path_names import path_name

FOLDER = ".work"
"""The folder in a state folder of what belongs to no run; no run has this name."""

_FILE, _FOLDER_OF_RUN, _RECORD = "work.json", "work", "unskew.work"
_Count = Annotated[int, Field(ge=0)]


class Work(BaseModel):
    """An amount of work; its fields have the names of the limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: _Count = 0
    samples: _Count = 0
    messages: _Count = 0

    def plus(self, other: "Work") -> "Work":
        """Return both together."""
        return Work(
            steps=self.steps + other.steps,
            samples=self.samples + other.samples,
            messages=self.messages + other.messages,
        )


@dataclass(frozen=True, eq=False)
class RunWork:
    """The work of one node in one run; without a state folder, in all runs of a context."""

    state: Path | None
    context: Context
    node: str
    run: str
    """The id of the run; empty for messages that are refused before they count in a run."""
    limits: Limits

    def add(self, work: Work, field: str = "run") -> None:
        """Count work before it is done; refuse more than is left of the run's, by a field's name.

        Refused work does not count.
        """
        if self.state is None:
            record = self.context.state.config_records.get(_RECORD, ConfigRecord())
            content = self._added(str(record["json"]) if record else None, work, field)
            self.context.state[_RECORD] = ConfigRecord({"json": content})
            return
        of_node = NodeFiles(self.state / FOLDER, self.node)
        files = NodeFiles(self.state, self.run, self.node, _FOLDER_OF_RUN) if self.run else of_node
        try:
            with of_node.locked("its count of work"):
                known = files.read(_FILE)
                if known is None and self.run:
                    self._check_runs(self.state)
                files.write(_FILE, self._added(known, work, field).encode())
        except OSError as error:
            raise Refusal(f"it cannot count its work: {error.strerror}") from None

    def _added(self, known: bytes | str | None, work: Work, field: str) -> str:
        """Return the content of a count to which work is added."""
        try:
            before = Work() if known is None else Work.model_validate_json(known)
        except ValidationError:
            raise Refusal(f"its count of work is damaged; its site must remove {_FILE}") from None
        after = before.plus(work)
        for name, limit in self.limits:
            asked = getattr(work, name, 0)
            if asked and getattr(after, name) > limit:
                used = getattr(before, name)
                raise Refusal(
                    f"{field}: its policy allows {limit} {name} in one run (got {asked}, after "
                    f"{used}); its site can raise limits.{name}"
                )
        return after.model_dump_json()

    def _check_runs(self, state: Path) -> None:
        """Refuse a run that is new to the node if it keeps files of as many as it may."""
        node, run = path_name(self.node), path_name(self.run)
        runs = {path.parent.name for path in state.glob(f"*/{node}")} - {run}
        if sum(not name.startswith(".") for name in runs) >= self.limits.runs:
            raise Refusal(
                f"run: its policy allows files of {self.limits.runs} runs; its site can remove the "
                "folders of old ones from its state folder, or raise limits.runs"
            )
