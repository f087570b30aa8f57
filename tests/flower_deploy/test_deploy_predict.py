"""``flower up`` with nodes that have raw tables, and predictions on a node's machine after it."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("flwr")

from deployments import NODES, RUN_TIMEOUT, make_table_app

from hospitals import HOSPITALS, hospital_rows, write_csv

pytestmark = pytest.mark.long


def unskew(folder, *arguments):
    command = [sys.executable, "-m", "unskew", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=RUN_TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_up_runs_tables_with_personal_models_and_a_node_predicts(tmp_path):
    rows = hospital_rows()
    for number, name in enumerate(HOSPITALS[:NODES]):
        own = [row for row in rows if row["hospital"] == name]
        without = [{n: cell for n, cell in row.items() if n != "hospital"} for row in own]
        write_csv(tmp_path / f"{number}.csv", without)
    write_csv(tmp_path / "common.csv", hospital_rows(50, seed=8))
    app = make_table_app(tmp_path / "app", "ditto", tmp_path)
    client = app / "client_app.py"
    client.write_text(client.read_text().replace('"outcome")', '"outcome", holdout=0.3)'))
    printed = unskew(tmp_path, "flower", "up", "app", "--tls", "--out", "run", "--rounds", 1)
    assert "run: run" in printed
    state = tmp_path / "run" / "states" / "node-1"
    predicted = json.loads(
        unskew(tmp_path, "flower", "predict", "1.csv", "--state", state, "--json")
    )
    assert len(predicted) == len((tmp_path / "1.csv").read_text().splitlines()) - 1
    assert {row["predicted"] for row in predicted} <= {"died", "left"}
