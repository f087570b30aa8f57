"""Runs on nodes with raw tables, and the same in a simulation."""

import grids

import unskew as us
from hospitals import HOSPITALS, hospital_rows, write_csv
from unskew.flower import NodeTable

OPTIONS = {"rounds": 2, "seed": 3, "lr": 0.1, "batch_size": 16, "evaluate_every": 0}
COLUMNS = ("age=0..120,income=0..200000,pressure=50..250,ward=eyes|heart,smokes=boolean,"
           "admitted=2024-01-01..2024-12-31")  # fmt: skip
TABLE = {"label": "outcome", "client": "hospital"}


def tables(folder, rows):
    """Write one CSV per hospital, as each has its own."""
    folder.mkdir(exist_ok=True)
    return {
        name: write_csv(
            folder / f"{name}.csv",
            [{n: c for n, c in row.items() if n != "hospital"}
             for row in rows if row["hospital"] == name],
        )
        for name in HOSPITALS
    }  # fmt: skip


def run_on_nodes(folder, rows=None, *, spoil=None, node=None, app=None, **options):
    """Execute a run on nodes with a CSV each; ``node`` and ``app`` are their options."""
    files = options.pop("files", None) or tables(folder, rows or hospital_rows(200))
    prepare = options.pop("prepare", "federated")
    client = grids.client_app(
        None,
        lambda context: NodeTable(
            files[context.node_config["site"]],
            **{"label": "outcome", "prepare": prepare, **(node or {})},
        ),
        state=options.pop("state", None),
        noise=options.pop("noise", "seeded"),
        **(app or {}),
    )
    # Nodes connect in any order; they are numbered by name.
    grid = grids.InProcessGrid(client, [{"site": name} for name in HOSPITALS], spoil)
    settings = {"nodes": 4, "wait": 0.0, "prepare": prepare, **OPTIONS, **options}
    strategy = grids.Strategy("fedavg", **settings)
    strategy.grid = grid
    strategy.start(grid)
    return strategy


def simulate(rows=None, prepare="federated", **table):
    at_nodes = f"{prepare}{',' if ':' in prepare else ':'}min_cell=5"  # their default
    federation = us.Federation.from_table(
        rows or hospital_rows(200), **TABLE, prepare=at_nodes, seed=OPTIONS["seed"], **table
    )
    return us.train(federation, runner="loop", progress=False, **OPTIONS)
