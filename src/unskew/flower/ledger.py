"""A node's ledger of privacy: what its private releases about a set of samples have cost.

It belongs to the samples, not to a run: run ids, stages and settings that a server invents spend
from the same budget. A release is in the ledger, on disk, before it leaves. So a process that is
killed in between loses budget, never privacy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unskew.engine.private_steps import PrivateStage
from unskew.flower.node_files import NodeFiles
from unskew.flower.wire import Refusal
from unskew.privacy import ORDERS, Composition, PrivacyLimit

FOLDER = ".privacy"
"""The folder of all ledgers in a state folder; no run has this name."""

_FILE = "ledger.json"
_KEPT_ROUNDS = 3
"""How many replies of rounds are kept: the server can go back two checkpoints."""
_ROUNDING = 1e-9

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Release(BaseModel):
    """One private release: a round of a private stage, or statistics."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    time: str
    run: str
    what: str
    request: str
    """The hash of the request that it answers."""
    noise: Positive | None = None
    rate: Annotated[float, Field(gt=0, le=1)] | None = None
    steps: Annotated[int, Field(ge=0)] = 0
    """Of a round: the noise multiplier, the sampling rate and the number of steps."""
    epsilon: Positive | None = None
    """Of statistics."""

    @staticmethod
    def of_round(run: str, round_: int, request: str, private: PrivateStage) -> "Release":
        """Return the release of one round of a private stage of one client."""
        ((rate, steps),) = private.schedules
        return Release(
            time=_now(),
            run=run,
            what=f"{private.stage_name}, round {round_ + 1}",
            request=request,
            noise=private.noise_multiplier,
            rate=rate,
            steps=steps,
        )

    @staticmethod
    def of_statistics(run: str, request: str, epsilon: float) -> "Release":
        """Return the release of a table's statistics."""
        return Release(time=_now(), run=run, what="statistics", request=request, epsilon=epsilon)

    def added_to(self, spent: Composition) -> Composition:
        """Return what is spent with this release."""
        if self.epsilon is not None:
            return spent.plus_pure(self.epsilon)
        if self.noise is None or self.rate is None:
            raise ValueError("a release has neither noise nor epsilon")
        return spent.plus_steps(self.noise, self.rate, self.steps)


class Composed(BaseModel):
    """What the first releases of a ledger cost together, so that it is not computed again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    releases: int
    orders: tuple[float, ...]
    """The orders of ``rdp``; another version of unskew may use others."""
    rdp: tuple[float, ...]
    pure: float
    squares: float


class LedgerFile(BaseModel):
    """The content of a ledger's file."""

    model_config = ConfigDict(extra="forbid")

    node: str
    limits: Annotated[list[PrivacyLimit], Field(min_length=1)]
    """What the site allows; without a limit of its own, the budget of the first run."""
    releases: list[Release] = []
    composed: Composed | None = None

    def spent(self) -> Composition:
        """Return what all releases cost together."""
        spent, known = Composition(), self.composed
        if known is not None and known.orders == ORDERS and known.releases <= len(self.releases):
            spent = Composition(known.rdp, known.pure, known.squares)
        else:
            known = None
        for release in self.releases[known.releases if known else 0 :]:
            spent = release.added_to(spent)
        return spent

    def add(self, release: Release, spent: Composition) -> None:
        """Add a release, after which this is spent."""
        self.releases.append(release)
        self.composed = Composed(releases=len(self.releases), orders=ORDERS, **vars(spent))


@dataclass(frozen=True)
class Ledger:
    """The ledger of one set of samples."""

    state: Path
    """The node's state folder."""
    samples: str
    """The fingerprint of the samples."""
    node: str
    site_limits: tuple[PrivacyLimit, ...]
    """The limits that the site has set; every one is kept."""
    stated: PrivacyLimit
    """What a run of the node's method costs by its own statement: the limit of a site without
    one, if it is the first run."""

    def release(self, release: Release, compute: Callable[[], bytes]) -> tuple[bytes, float]:
        """Return what a release consists of, and the epsilon that it adds.

        The same request gets the same bytes again, without a cost, as long as they are kept;
        otherwise it is a new release. It is written to the ledger before it is computed, or
        refused.
        """
        files = self._files()
        with files.locked("its ledger of privacy"):
            content = files.read(_reply(release.request))
            if content is not None:
                return content, 0.0
            epsilon = self._spend(files, release)
        content = compute()
        with files.locked("its ledger of privacy"):
            self._keep(files, release.request, content)
        return content, epsilon

    def _spend(self, files: NodeFiles, release: Release) -> float:
        """Add a release to the ledger, or refuse it; return what it adds."""
        ledger = read_ledger(files) or LedgerFile(node=self.node, limits=[self.stated])
        if self.site_limits:
            ledger.limits = list(self.site_limits)
        spent = ledger.spent()
        after = release.added_to(spent)
        for limit in ledger.limits:
            cost, before = after.epsilon(limit.delta), spent.epsilon(limit.delta)
            if not cost <= limit.epsilon * (1 + _ROUNDING):
                raise Refusal(
                    f"its privacy budget for these samples is {limit}, of which epsilon "
                    f"{max(0.0, limit.epsilon - before):.4g} is left, and {release.what} needs "
                    f"{cost - before:.4g}; its site can raise budget of client_app or "
                    "privacy-budget of its config"
                )
        ledger.add(release, after)
        files.write(_FILE, ledger.model_dump_json(exclude_defaults=True).encode())
        return cost - before

    def _keep(self, files: NodeFiles, request: str, content: bytes) -> None:
        """Store a reply, and remove those of earlier rounds."""
        files.write(_reply(request), content)
        ledger = read_ledger(files)
        rounds = [each for each in ledger.releases if each.epsilon is None] if ledger else []
        newest = {each.request for each in rounds[-_KEPT_ROUNDS:]}
        files.remove(_reply(each.request) for each in rounds if each.request not in newest)

    def _files(self) -> NodeFiles:
        return NodeFiles(self.state / FOLDER, self.samples)


def read_ledger(files: NodeFiles) -> LedgerFile | None:
    """Read a ledger; None if nothing was released. A damaged one is an error, not an empty one."""
    content = files.read(_FILE)
    if content is None:
        return None
    try:
        return LedgerFile.model_validate_json(content)
    except ValidationError:
        raise Refusal("its ledger of privacy is damaged; its site must restore it") from None


def _reply(request: str) -> str:
    return f"{request}.reply"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
