"""Letters to the nodes of a run, by the numbers of its clients; answers and absences by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from logging import WARNING

from flwr.app import RecordDict

from unskew.flower.registry import NodeRegistry
from unskew.flower.transport import Answers, GridLink, send
from unskew.flower.wire import log


@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes of a run: how to reach them, and how long to wait."""

    grid: GridLink
    roster: NodeRegistry
    quorum: int
    wait: float
    """Seconds that a round waits for its quorum to be connected."""
    timeout: float
    """Seconds that a round waits for answers."""

    def ask(self, kind: str, letters: Mapping[int, RecordDict], *, patient: bool) -> Answers:
        """Send letters to the clients that are connected; ``patient`` waits for the quorum."""
        least = self.quorum if patient else 0
        there = self.roster.online(list(letters), least, self.wait)
        sent = {k: (there[k], letter) for k, letter in letters.items() if k in there}
        answers = send(self.grid, kind, sent, self.timeout)
        away = {k: "it is not connected" for k in letters if k not in there}
        return Answers(
            answers.contents,
            self.named(answers.refused, "refused"),
            self.named({**answers.missing, **away}, "missing"),
        )

    def named(self, reasons: Mapping[int, str], what: str) -> dict[int, str]:
        """Return reasons with the names of the nodes they are about, and log them."""
        named = {k: f"{self.roster.names[k]}: {why}" for k, why in sorted(reasons.items())}
        for why in named.values():
            log(WARNING, "unskew: %s: %s", what, why)
        return named
