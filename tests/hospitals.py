"""A table as hospitals have it: unscaled numbers, categories as text, dates, and gaps."""

import csv
from pathlib import Path

import numpy as np

HOSPITALS = ("north", "south", "east", "west")
COLUMNS = ("age", "income", "pressure", "ward", "smokes", "admitted", "hospital", "outcome")
_RISK = {"surgery": 1.5, "heart": 0.5, "eyes": -1.5}


def hospital_rows(samples: int = 600, seed: int = 0, blank: float = 0.1) -> list[dict[str, str]]:
    """Return rows of four hospitals; in three of them a share of the cells is blank."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(samples):
        place = rng.integers(len(HOSPITALS))
        age, pressure = rng.normal(55 + 5 * place, 12), rng.normal(130, 15)
        income = np.exp(rng.normal(10.5, 0.5))
        ward = rng.choice(list(_RISK), p=[0.4, 0.4, 0.2])
        smokes = rng.random() < 0.4
        day = int(rng.integers(0, 365))
        risk = (age - 60) / 8 + (pressure - 130) / 10 + _RISK[ward] + (1.2 if smokes else -0.8)
        died = risk + rng.normal(0, 0.5) > 0.5
        rows.append({
            "age": f"{age:.0f}",
            "income": f"{income:.2f}",
            "pressure": f"{pressure:.1f}",
            "ward": ward,
            "smokes": "yes" if smokes else "no",
            "admitted": str(np.datetime64("2024-01-01") + day),
            "hospital": HOSPITALS[place],
            "outcome": "died" if died else "left",
        })  # fmt: skip
    for row in rows:
        for name in COLUMNS[:-2]:
            if row["hospital"] != "north" and rng.random() < blank:
                row[name] = ""
    return rows


def write_csv(path: Path, rows: list[dict[str, str]]) -> Path:
    """Write rows to a CSV file with a header line."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_hospitals(folder: Path, **options) -> Path:
    """Write the table of all hospitals to ``visits.csv``."""
    return write_csv(folder / "visits.csv", hospital_rows(**options))
