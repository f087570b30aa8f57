"""Tables of clients: bounded by a limit, on disk where the run has a folder, the same when read."""

import json
import pickle

import numpy as np
import pytest

import unskew as us
from toys import small_federation
from unskew.errors import UnskewError
from unskew.report.charts.aggregation_weights import weight_charts
from unskew.report.charts.clients import box_charts
from unskew.runs import client_tables
from unskew.runs.client_tables import ClientTables, client_table
from unskew.runs.read import read_run
from unskew.runs.runs import Runs

CLIENTS = 12
OPTIONS = {"model": "logistic", "progress": False, "batch_size": 8}


@pytest.fixture
def low_limit(monkeypatch):
    monkeypatch.setattr(client_tables, "MAX_ROWS", 6)
    monkeypatch.setattr(client_tables, "LISTED", 5)


@pytest.fixture
def many_clients():
    return small_federation(sizes=(10,) * CLIENTS)


def test_a_table_up_to_the_limit_has_one_row_per_client(low_limit):
    table = client_table(
        {"client": [0, 1, 2], "loss": np.array([0.5, 0.25, 1.0])}, {"cluster": [1, 0, 1]}
    )
    assert table == {
        "client": [0, 1, 2],
        "loss": [0.5, 0.25, 1.0],
        "diagnostics": {"cluster": [1, 0, 1]},
    }


def test_a_larger_table_lists_percentiles_and_summarises_all_clients(low_limit):
    accuracy = np.array([0.8, 0.1, 0.5, 0.3, 0.9, 0.2, 0.7, 0.4, 0.6])
    columns = {"client": np.arange(9), "accuracy": accuracy, "loss": 1 - accuracy}
    table = client_table(columns, rank_by="accuracy")
    assert table["client"] == [1, 2, 3, 4, 6]
    assert sorted(table["accuracy"]) == [0.1, 0.3, 0.5, 0.7, 0.9]
    assert table["loss"] == [1 - accuracy[k] for k in table["client"]]
    assert table["of"] == 9
    summary = table["summary"]["accuracy"]
    assert summary == pytest.approx(
        {
            "count": 9, "mean": 0.5, "sd": np.sqrt(0.6 / 9), "min": 0.1, "q05": 0.14, "q25": 0.3,
            "median": 0.5, "q75": 0.7, "q95": 0.86, "max": 0.9,
        }
    )  # fmt: skip


def test_missing_values_are_not_summarised(low_limit):
    weights = [None, 0.25, None, 0.75, None, None, None, None]
    table = client_table({"client": list(range(8)), "weight": weights}, {"cluster": [None] * 8})
    assert table["client"] == [0, 2, 4, 5, 7]
    assert table["summary"]["weight"]["count"] == 2
    assert table["summary"]["weight"]["mean"] == 0.5
    assert table["summary"]["cluster"] == {"count": 0}


@pytest.mark.parametrize("folder", [False, True])
def test_a_round_of_many_clients_records_few_rows(low_limit, many_clients, tmp_path, folder):
    out = tmp_path / "run" if folder else None
    run = us.train(many_clients, "fedavg", rounds=3, out=out, **OPTIONS)
    assert [table["kind"] for table in run.client_tables] == ["round", "local", "personal"] * 3
    for table in run.client_tables:
        assert len(table["client"]) == 5
        assert table["of"] == CLIENTS
    last = run.client_tables[-1]
    assert last["summary"]["accuracy"]["mean"] == pytest.approx(run.last("personal"))
    assert last["summary"]["accuracy"]["min"] == run.last("personal", "min")
    assert run.weights.shape == (3, CLIENTS)
    assert np.isfinite(run.weights).sum() == 3 * 5


def test_a_run_with_a_folder_keeps_no_tables_in_memory(many_clients, tmp_path):
    runs = {
        rounds: us.train(
            many_clients, "fedavg", rounds=rounds, out=tmp_path / str(rounds), **OPTIONS
        )
        for rounds in (1, 20)
    }
    short, long = (len(pickle.dumps(runs[rounds].client_tables)) for rounds in (1, 20))
    assert long <= short + 10
    assert len(runs[20].client_tables) == 60
    in_memory = us.train(many_clients, "fedavg", rounds=20, **OPTIONS)
    assert runs[20].client_tables == in_memory.client_tables
    assert read_run(tmp_path / "20").client_tables == in_memory.client_tables


def test_resumed_runs_write_the_same_logs(low_limit, many_clients, tmp_path):
    options = {**OPTIONS, "cohort": 7, "checkpoint_seconds": 0.0}
    us.train(many_clients, "scaffold", rounds=4, out=tmp_path / "whole", **options)
    first = us.train(many_clients, "scaffold", rounds=2, out=tmp_path / "parts", **options)
    tables = list(first.client_tables)
    us.train(many_clients, "scaffold", rounds=4, out=tmp_path / "parts", resume=True, **options)
    logs = [(tmp_path / name / "clients.jsonl").read_bytes() for name in ("whole", "parts")]
    assert logs[0] == logs[1]
    assert first.client_tables == tables, "what was appended later is not included"


def test_charts_show_summarised_tables_and_say_so(low_limit, many_clients, tmp_path):
    run = us.train(many_clients, "fedavg", rounds=2, out=tmp_path / "run", **OPTIONS)
    runs = Runs([read_run(tmp_path / "run")])
    (chart,) = box_charts(runs)
    (box,) = chart.data["boxes"]
    assert box["count"] == CLIENTS
    assert box["mean"] == pytest.approx(run.last("local"), rel=1e-4)
    assert "one per percentile" in chart.note
    assert len(chart.table.rows) == 5
    (weights,) = weight_charts(runs)
    assert "are shown" in weights.note
    runs.report(tmp_path / "page.html")
    assert "one per percentile" in (tmp_path / "page.html").read_text()


def test_tables_are_read_like_a_list(tmp_path):
    path = tmp_path / "clients.jsonl"
    assert list(ClientTables(path)) == []
    path.write_text("".join(json.dumps({"round": i}) + "\n" for i in range(3)) + '{"round": 3')
    tables = ClientTables(path)
    expected = [{"round": i} for i in range(3)]
    assert tables == expected
    assert (tables[0], tables[2], tables[-1], tables[-3]) == (*expected[::2], *expected[::-2])
    assert tables[1:] == expected[1:]
    assert list(reversed(tables)) == expected[::-1]
    assert list(reversed(ClientTables(tmp_path / "none.jsonl"))) == []
    for index in (3, -4):
        with pytest.raises(IndexError):
            tables[index]
    path.unlink()
    with pytest.raises(UnskewError, match=r"clients\.jsonl: cannot be read"):
        list(tables)
    with pytest.raises(UnskewError, match=r"clients\.jsonl: cannot be read"):
        list(reversed(tables))
    path.write_text("")
    assert list(reversed(tables)) == []


def test_the_last_tables_are_found_without_reading_the_others(tmp_path):
    path = tmp_path / "clients.jsonl"
    path.write_text('{"damaged\n{"round": 1}\n{"round": 2}\n')
    tables = reversed(ClientTables(path))
    assert [next(tables), next(tables)] == [{"round": 2}, {"round": 1}]
    with pytest.raises(UnskewError, match="is not JSON"):
        next(tables)


def with_summary(folder, tables, summary):
    tables = [table | {"summary": summary} for table in tables]
    lines = "".join(json.dumps(table) + "\n" for table in tables)
    (folder / "clients.jsonl").write_text(lines)


def test_changed_summaries_are_errors_or_are_not_used(low_limit, many_clients, tmp_path):
    run = us.train(many_clients, "fedavg", rounds=1, out=tmp_path, **OPTIONS)
    tables = list(run.client_tables)
    for damaged in ({"accuracy": {}}, {"accuracy": {"count": "2"}}, 5):
        with_summary(tmp_path, tables, damaged)
        with pytest.raises(UnskewError, match="is damaged or of another version: summary"):
            read_run(tmp_path)
    for useless in ({}, {"accuracy": {"count": 0, "mean": 0.5}}, {"accuracy": {"count": 2}}):
        with_summary(tmp_path, tables, useless)
        (chart,) = box_charts(Runs([read_run(tmp_path)]))
        assert chart.data["boxes"][0]["count"] == 5
