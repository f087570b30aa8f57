"""The ledgers of privacy in a node's state folder, as rows of a table."""

from itertools import groupby
from pathlib import Path
from typing import Any

from unskew.errors import UnskewError
from unskew.flower.ledger import FOLDER, LedgerFile, Release, read_ledger
from unskew.flower.node_files import NodeFiles
from unskew.privacy import Composition
from unskew.utils.printable import printable


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


def _rows_of(ledger: LedgerFile, samples: str) -> list[dict[str, Any]]:
    limit = min(ledger.limits, key=lambda each: each.epsilon)
    spent = ledger.spent().epsilon(limit.delta)
    rows = []
    for (run, stage), group in groupby(ledger.releases, lambda each: (each.run, _stage(each))):
        releases, cost = list(group), Composition()
        for release in releases:
            cost = release.added_to(cost)
        row = {"run": printable(run), "released": stage, "releases": len(releases)}
        row |= {"until": releases[-1].time, "epsilon": round(cost.epsilon(limit.delta), 4)}
        rows.append(row)
    total = {"run": "all", "released": "", "releases": len(ledger.releases)}
    total |= {"until": ledger.releases[-1].time if ledger.releases else None}
    rows.append(total | {"epsilon": round(spent, 4)})
    common = {"node": printable(ledger.node), "samples": samples[:8]}
    budget = {"limit": str(limit), "left": round(max(0.0, limit.epsilon - spent), 4)}
    return [common | row | budget for row in rows]


def _stage(release: Release) -> str:
    """Return the stage of a round, or what else was released."""
    return release.what.rpartition(", round ")[0] or release.what
