"""The ledgers of privacy in a node's state folder, as rows of a table."""

from itertools import groupby
from pathlib import Path
from typing import Any

from unskew.errors import UnskewError
from unskew.flower.ledger import FOLDER, LedgerFile, Release, read_ledger
from unskew.flower.node_files import NodeFiles
from unskew.privacy import Composition
from unskew.utils.printable import printable

_ALL = "all"


def ledger_rows(state: Path) -> list[dict[str, Any]]:
    """Return for every set of samples one row per run and stage, and one for all of them."""
    if not state.is_dir():
        raise UnskewError(f"{state}: there is no such folder; give the node's state folder")
    rows: list[dict[str, Any]] = []
    folders = (state / FOLDER).iterdir() if (state / FOLDER).is_dir() else ()
    for folder in sorted(each for each in folders if each.is_dir()):
        try:
            ledger = read_ledger(NodeFiles(state / FOLDER, folder.name))
        except UnskewError:
            raise UnskewError(f"{folder}: the ledger is damaged; restore a backup") from None
        if ledger is not None:
            rows += _rows_of(ledger, folder.name)
    return rows


def in_words(rows: list[dict[str, Any]]) -> list[str]:
    """Return a sentence per set of samples: what is spent, and what is left."""
    return [
        f"node {row['node']}, samples {row['samples']}: epsilon {row['epsilon']:g} of "
        f"{row['limit']} is spent, {row['left']:g} is left"
        for row in rows
        if row["run"] == _ALL
    ]


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a row that fit on a terminal."""
    kept = ("node", "samples", "run", "released", "times", "until", "epsilon")
    return {name: row[name] for name in kept} | {"run": row["run"][:8], "until": row["until"][:16]}


def _rows_of(ledger: LedgerFile, samples: str) -> list[dict[str, Any]]:
    limit = min(ledger.limits, key=lambda each: each.epsilon)
    spent = ledger.spent()
    rows = []
    for (run, stage), group in groupby(ledger.releases, lambda each: (each.run, _stage(each))):
        releases, cost = list(group), Composition()
        for release in releases:
            cost = release.added_to(cost)
        rows.append(_row(printable(run), stage, releases, cost.epsilon(limit.delta)))
    rows.append(_row(_ALL, "", ledger.releases, spent.epsilon(limit.delta)))
    left = max(0.0, limit.epsilon - spent.epsilon(limit.delta))
    node = {"node": printable(ledger.node), "samples": samples[:8]}
    return [node | row | {"limit": str(limit), "left": round(left, 4)} for row in rows]


def _row(run: str, stage: str, releases: list[Release], epsilon: float) -> dict[str, Any]:
    until = releases[-1].time if releases else ""
    row = {"run": run, "released": stage, "times": len(releases), "until": until}
    return row | {"epsilon": round(epsilon, 4)}


def _stage(release: Release) -> str:
    """Return the stage of a round, or what else was released."""
    return release.what.rpartition(", round ")[0] or release.what
