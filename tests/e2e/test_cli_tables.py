"""``unskew compare`` on a raw table: gaps, categories, dates and unscaled numbers."""

import pytest

from hospitals import write_csv, write_hospitals

QUICK = ["--holdout", 0.25, "--seeds", 1, "--methods", "fedavg"]
ROLES = ["--label-column", "outcome", "--client-column", "hospital"]


@pytest.mark.parametrize("prepare", ["federated", "pooled:scale=robust", "local"])
def test_a_raw_table_in_one_command(terminal, tmp_path, prepare):
    visits = write_hospitals(tmp_path)
    (row,) = terminal.json(
        "compare", "--data", visits, *ROLES, *QUICK, "--rounds", 15, "--prepare", prepare
    )
    # The most frequent outcome has 57 % of the samples.
    assert row["local"] > 0.8


def test_a_table_of_texts_trains_the_bilstm(terminal, tmp_path):
    words = {"0": "well", "1": "ill"}
    rows = [
        {"note": f"the patient feels {words[y]} on day {i}", "site": str(i // 2 % 2), "label": y}
        for i, y in enumerate("01" * 40)
    ]
    notes = write_csv(tmp_path / "notes.csv", rows)
    out = terminal.output(
        "compare", "--data", notes, "--client-column", "site", *QUICK, "--rounds", 8, "--lr", 1
    )
    assert "bilstm" in out
    assert "100.00 %" in out


def test_a_table_in_toml(terminal, tmp_path):
    write_hospitals(tmp_path)
    (tmp_path / "visits.toml").write_text("""
        [data]
        name = "visits.csv"
        label_column = "outcome"
        client_column = "hospital"
        prepare = "federated:epsilon=5,categories=hashed"
        holdout = 0.25
        columns = {age = [0, 120], income = "0..200000", pressure = "50..250", ward = "category", \
smokes = "boolean", admitted = "2024-01-01..2024-12-31"}
        [train]
        rounds = 1
    """)
    assert terminal.json("run", "visits.toml")["rounds"] == 1


def test_show_lists_what_the_columns_became(terminal, tmp_path):
    show = ["data", "show", write_hospitals(tmp_path), *ROLES]
    lines = terminal.output(*show).splitlines()
    (ward,) = (line.split() for line in lines if line.strip().startswith("ward"))
    assert ward == ["ward", "category", "3", "categories", "5", "yes"]
    (admitted,) = (line.split() for line in lines if line.strip().startswith("admitted"))
    assert admitted[:3] == ["admitted", "date", "2024-07-01"]
    assert terminal.json(*show)["preprocessing"]["spec"] == "federated"


def test_errors_are_one_line(terminal, tmp_path):
    visits = write_hospitals(tmp_path, samples=40)
    compare = ["compare", "--data", visits, *QUICK]
    error = terminal.error(*compare, "--label-column", "outcom", "--client-column", "hospitl")
    assert "'outcom' (did you mean 'outcome'?), 'hospitl' (did you mean 'hospital'?)" in error
    assert "--client-column" in error
    assert "did you mean 'federated'?" in terminal.error(*compare, *ROLES, "--prepare", "fedrated")
    error = terminal.error(*compare, *ROLES, "--columns", "age=young")
    assert "'age' must be a kind" in error
    error = terminal.error("compare", "--data", "digits", "--prepare", "pooled")
    assert "remove prepare" in error
