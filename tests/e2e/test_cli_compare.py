"""The commands ``unskew compare`` and ``unskew report``."""

import csv
import json
import re
from pathlib import Path

import pytest

from unskew.experiments.scheduler import folder_name
from unskew.report.page import read_comparison
from unskew.report.reproduce import python_text
from unskew.runs.read import read_runs


def compare(data: Path, *options: object) -> tuple[object, ...]:
    return ("compare", "--data", data, "--model", "logistic", "--rounds", 2, "--seeds", 2, *options)


def test_compare_prints_one_row_per_method(terminal, data):
    output = terminal.output(*compare(data, "--methods", "fedavg,fedprox:mu=0.1,buffers=local"))
    assert "custom, 4 clients, logistic, 2 rounds, 2 seeds" in output
    assert "All seeds have the same clients and test samples" in output
    assert "fedprox:buffers=local,mu=0.1" in output
    assert "rounds to" in output


def test_parts_with_the_same_option_are_compared_with_their_own_values(terminal, data):
    methods = "fedavg,fedprox:mu=0.1+moon:mu=0.5+ida+fedadam:server_lr=0.01"
    rows = terminal.json(*compare(data, "--model", "mlp:hidden=6", "--methods", methods))
    assert {row["method"] for row in rows} == set(methods.split(","))
    assert len({row["accuracy"] for row in rows} | {row["local"] for row in rows}) > 2


def test_compare_writes_runs_table_and_page(terminal, data, tmp_path):
    out = tmp_path / "comparison"
    output = terminal.output(*compare(data, "--methods", "fedavg,fedprox:mu=0.1", "--out", out))
    assert f"page: {out / 'report.html'}" in output
    for method in ("fedavg", "fedprox-mu=0.1"):
        for seed in (0, 1):
            assert (out / method / f"seed{seed}" / "metrics.jsonl").read_text().count("\n") == 2
    assert (out / "table.md").read_text().startswith("| method | accuracy |")
    assert (out / "table.tex").read_text().startswith("\\begin{tabular}")
    page = (out / "report.html").read_text()
    assert f"unskew compare --data {data} --model logistic" in page
    assert '<figure id="data-distribution">' in page


def test_report_writes_the_same_page_as_compare(terminal, data, tmp_path):
    out, again = tmp_path / "out", tmp_path / "again.html"
    terminal.output(*compare(data, "--methods", "mean,fedavg", "--out", out, "--target", "0.3"))
    output = terminal.output("report", out, "-o", again)
    assert f"page: {again}" in output
    assert "the best" in output  # the verdict
    assert again.read_text() == (out / "report.html").read_text()


def test_a_page_goes_to_its_folder_and_replaces_no_foreign_file(terminal, data, tmp_path):
    out, other = tmp_path / "out", tmp_path / "other"
    for folder, method in ((out, "fedavg"), (other, "mean")):
        terminal.output(*compare(data, "--seeds", 1, "--methods", method, "--out", folder))
    page = out / "report.html"
    page.unlink()
    assert f"page: {page}" in terminal.output("report", out)
    assert page.is_file()
    terminal.output("report", out)  # a page is replaced
    assert not Path("report.html").exists()
    assert "page: report.html" in terminal.output("report", out, other)
    for foreign, folders in ((page, [out]), (Path("report.html"), [out, other])):
        foreign.write_text("notes")
        error = terminal.error("report", *folders)
        assert f"{foreign}: exists, and is not a report page; choose a path with --out" in error
        assert foreign.read_text() == "notes"


@pytest.fixture
def visits(tmp_path):
    """A table of 24 visits to two sites, by day, pulse and illness."""
    rows = [f"mo,{50 + i},{i % 2},{'ab'[i % 3 == 0]}" for i in range(24)]
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(["day,pulse,ill,site", *rows]) + "\n")
    return path


def test_a_table_is_compared_on_local_tests(terminal, visits):
    columns = ("--label-column", "ill", "--client-column", "site", "--features", "pulse")
    output = terminal.output(
        *compare(visits, "--methods", "fedavg,mean", "--holdout", "0.25", *columns)
    )
    assert "visits, 2 clients" in output
    assert "clients' own tests" in output
    assert re.search(r"fedavg +[\d.]+ ± [\d.]+ %", output)
    assert "same clients and test samples" not in output  # each seed holds out its own tests
    rows = json.loads(
        terminal.output(
            *compare(visits, "--methods", "fedavg,mean", "--holdout", "0.25", *columns, "--json")
        )
    )
    assert rows[0]["rounds_to_target"] >= 1
    assert (rows[0]["level"], rows[0]["accuracy"]) == ("local", rows[0]["local"])
    (rival,) = (row for row in rows if row["method"] == "mean")
    assert {"difference", "low", "high", "p", "seeds_needed"} <= set(rival)
    assert rival["baseline"] == "fedavg"
    assert rival["answer"] in ("better", "worse", "equivalent", "undecided")


def test_the_metric_decides_the_table_and_the_verdict(terminal, visits, tmp_path):
    (tmp_path / "own.py").write_text(
        "def cost(targets, scores):\n    return -abs(targets - scores).sum()\n"
    )
    out = tmp_path / "out"
    columns = ("--label-column", "ill", "--client-column", "site", "--features", "pulse")
    options = ("--metric", "auc", "--metrics", f"f1,{tmp_path / 'own.py'}:cost", "--out", out)
    command = compare(visits, "--methods", "fedavg,mean", "--holdout", "0.25", *columns, *options)
    terminal.output(*command)
    header = (out / "table.md").read_text().splitlines()[0].strip("| ").split(" | ")
    assert header[:4] == ["method", "local auc", "worst", "pooled"]
    assert header[4:7] == ["accuracy", "f1", "cost"]
    row = next(csv.DictReader((out / "table.csv").read_text().splitlines()))
    assert (row["metric"], row["level"]) == ("auc", "local")
    assert float(row["others.cost"]) < 0 <= float(row["others.f1"]) <= 1
    rows = json.loads(terminal.run(*command, "--json")[1])
    (found,) = (each for each in rows if each["method"] == row["method"])
    assert float(row["accuracy"]) == found["accuracy"]  # the auc
    assert float(row["others.accuracy"]) == found["others"]["accuracy"]
    terminal.output("report", out, "-o", tmp_path / "by.html", "--metric", "pooled_f1")
    assert "pooled_f1" in (tmp_path / "by.html").read_text()
    error = terminal.error(*compare(visits, "--holdout", "0.25", *columns, "--metric", "rmse"))
    assert "rmse is for a regression target and this one is binary" in error


@pytest.fixture
def stays(tmp_path):
    """A table of 60 stays at two sites: days, a number, by age."""
    rows = [f"{i},{3 + 0.25 * i},{'ab'[i % 2]}" for i in range(60)]
    path = tmp_path / "stays.csv"
    path.write_text("\n".join(["age,days,site", *rows]) + "\n")
    return path


def test_a_column_of_numbers_is_a_regression(terminal, stays, tmp_path):
    columns = ("--label-column", "days", "--client-column", "site", "--holdout", "0.25")
    rows = terminal.json(
        *compare(stays, "--model", "linear", "--methods", "fedavg,ida", *columns, "--json")
    )
    assert {row["level"] for row in rows} == {"local"}
    assert set(rows[0]["others"]) == {"mae", "r2"}
    error = terminal.error(*compare(stays, "--methods", "feddisco", *columns))
    assert "feddisco needs classes, and the target is a quantity" in error
    error = terminal.error(*compare(stays, "--methods", "fedavg", *columns, "--task", "binary"))
    assert "binary needs two classes, and there are 60" in error
    shown = terminal.output("data", "show", stays, *columns[:4])
    assert "regression" in shown
    (tmp_path / "run.toml").write_text(f'''
        method = "fedavg"
        model = "linear"
        [data]
        name = "{stays}"
        label_column = "age"
        client_column = "site"
        task = "regression"
        holdout = 0.25
        [train]
        rounds = 1
        loss = "huber"
        metric = "mae"
    ''')
    levels = terminal.json("run", tmp_path / "run.toml", "--json")["levels"]
    assert next(iter(levels["local"])) == "mae"


def test_errors_for_data_without_tests_or_columns_name_the_fix(terminal, visits):
    columns = ("--label-column", "ill", "--features", "pulse")
    assert "--holdout 0.2" in terminal.error(*compare(visits, *columns))
    assert "it has: day, pulse, ill, site" in terminal.error(*compare(visits))
    missing = visits.with_name("other.csv")
    assert f"{missing}: no such file or folder" in terminal.error(*compare(missing))


def test_report_of_an_empty_folder_is_an_error(terminal, tmp_path):
    assert "there is no run in it" in terminal.error("report", tmp_path)


def test_adding_a_method_or_seed_repeats_no_run(terminal, data, tmp_path, monkeypatch):
    from unskew.engine import round_loop

    out, seeds_run, run_round = tmp_path / "out", [], round_loop.run_round

    def counted(context, *arguments):
        seeds_run.append(context.settings.seed)
        return run_round(context, *arguments)

    monkeypatch.setattr(round_loop, "run_round", counted)
    for methods, seeds, new in (
        ("fedavg", 1, [0, 0]),
        ("fedavg,mean", 1, [0, 0]),
        ("fedavg,mean", 2, [1, 1] * 2),
        ("fedavg,mean", 2, []),
    ):
        seeds_run.clear()
        options = ("--methods", methods, "--out", out, "--seeds", seeds, "--jobs", 1)
        terminal.output(*compare(data, *options))
        assert seeds_run == new


def test_a_longer_run_is_not_reused_for_fewer_rounds(terminal, data, tmp_path):
    command = compare(data, "--methods", "fedavg", "--out", tmp_path / "out", "--rounds", 3)
    terminal.output(*command)
    message = terminal.error(*command, "--rounds", 2)
    assert "has 3 already (requested 2)" in message
    terminal.output(*command, "--rounds", 4)


def test_compare_prints_only_json_to_stdout(terminal, data, tmp_path):
    code, output, errors = terminal.run(*compare(data, "--out", tmp_path / "out", "--json"))
    rows = json.loads(output, parse_constant=pytest.fail)
    assert code == 0
    assert errors == f"page: {tmp_path / 'out' / 'report.html'}\n"
    assert {row["method"] for row in rows} == {"fedavg", "mean", "fedprox"}
    accuracies = [row["accuracy"] for row in rows]
    assert accuracies == sorted(accuracies, reverse=True)
    assert all(row["seeds"] == 2 for row in rows)


def test_a_target_that_no_method_reaches_is_null(terminal, data):
    rows = terminal.json(*compare(data, "--methods", "mean", "--target", "1"))
    assert (rows[0]["reached"], rows[0]["rounds_to_target"]) == (0, None)


def test_seeds_are_added_until_methods_are_decided(terminal, data, tmp_path):
    out, methods = tmp_path / "out", "fedavg,mean,fedprox:mu=1"
    command = compare(data, "--methods", methods, "--decide", "--max-seeds", 4, "--out", out)
    code, output, progress = terminal.run(*command)
    assert code == 0, progress
    assert "decided: " in progress
    code, printed, _ = terminal.run(*command, "--json")
    rows = json.loads(printed)
    decided = {row["method"] for row in rows if row["answer"] not in (None, "undecided")}
    assert len(decided) < 2  # so further seeds were needed
    for row in rows:
        assert row["seeds"] == (2 if row["method"] in decided else 4)
        assert len(list((out / folder_name(row["method"])).iterdir())) == row["seeds"]
    assert "runs were trained" in output
    page = (out / "report.html").read_text()
    terminal.output("report", out, "-o", tmp_path / "again.html")
    assert "runs were trained" in page
    assert (tmp_path / "again.html").read_text() == page


def test_long_comparisons_print_how_long_they_take(terminal, data, monkeypatch):
    monkeypatch.setattr("unskew.engine.progress._WORTH_A_LINE", 0.0)
    monkeypatch.setattr("unskew.engine.time_estimate._MIN_SECONDS", 0.0)
    command = compare(data, "--methods", "fedavg", "--rounds", 10, "--jobs", 1)
    code, _, progress = terminal.run(*command)
    assert code == 0
    first = progress.splitlines()[0]
    assert re.fullmatch(r"2 runs: about [\d.]+ s in total, if all rounds .*", first)


def test_compare_resumes(terminal, data, tmp_path):
    command = compare(data, "--methods", "fedavg", "--out", tmp_path / "out")
    first = terminal.output(*command)
    assert terminal.output(*command) == first
    assert "there is a run already" in terminal.error(*command, "--no-resume")
    message = terminal.error(*command, "--lr", "1")
    assert "cannot resume, settings.lr was 0.05 and is now 1.0" in message


def test_compare_partitions_by_the_seed(terminal, tmp_path):
    terminal.output(
        "compare", "--skew", "dirichlet:alpha=0.3", "--clients", 3, "--methods", "mean",
        "--model", "logistic", "--rounds", 1, "--seeds", 2, "--set", "steps=1",
        "--out", tmp_path / "out",
    )  # fmt: skip
    metadata = [
        json.loads((tmp_path / "out" / "mean" / f"seed{seed}" / "run.json").read_text())
        for seed in (0, 1)
    ]
    assert metadata[0]["identity"]["data"] != metadata[1]["identity"]["data"]
    assert metadata[0]["identity"]["settings"]["steps"] == 1


def test_local_training_is_judged_by_what_clients_use(terminal, data, tmp_path):
    command = compare(data, "--methods", "fedavg,local,ditto", "--out", tmp_path / "out")
    _, printed, _ = terminal.run(*command, "--json")
    rows = {row["method"]: row for row in json.loads(printed)}
    assert {row["level"] for row in rows.values()} == {"personal"}
    assert rows["local"]["accuracy"] == rows["local"]["personal"] > 0
    assert rows["local"]["local"] is None
    assert rows["fedavg"]["accuracy"] == rows["fedavg"]["local"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "By personal models on the clients" in page
    assert "By the global model on the common test: " in page
    code, output, _ = terminal.run(*command, "--level", "global")
    assert (code, "no global model" in output) == (0, True)
    assert "local collapsed" not in output


TUNED = ("--methods", "fedavg,fedprox,ditto", "--tune", "--tune-lr", "0.01,0.2", "--seeds", 1)


def test_a_tuned_comparison_reports_the_chosen_settings(terminal, data, tmp_path, monkeypatch):
    out = tmp_path / "out"
    command = compare(data, *TUNED, "--tune-budget", 5, "--tune-rounds", 1, "--out", out)
    output = terminal.output(*command)
    words = (
        "tuned on 20 % of each client's training samples (budget per method: 5 rounds, rounds of a "
        "chosen setting: 1"
    )
    assert words in " ".join(output.split())
    assert "personal accuracy" in output
    for suffix in ("csv", "tex", "md"):
        assert (out / f"tuning.{suffix}").is_file()
        assert (out / f"tuning-history.{suffix}").is_file()
    assert (out / "tuning.md").read_text().startswith("| chosen | lr | validation |")
    page = (out / "report.html").read_text()
    assert "<h2>Chosen settings</h2>" in page
    tune = "tune={'lr': [0.01, 0.2], 'budget': 5, 'rounds': 1, 'seeds': 2}"
    code = python_text(read_comparison(out).sorted(read_runs(out)))
    assert tune in code
    assert "['fedavg', 'fedprox', 'ditto']" in code
    metadata = json.loads((out / "fedprox" / "seed0" / "run.json").read_text())
    assert metadata["identity"]["settings"]["lr"] == metadata["tuning"]["chosen"]["lr"]
    monkeypatch.setattr("unskew.engine.round_loop.run_round", lambda *_: pytest.fail("run again"))
    assert terminal.output(*command) == output
    again = terminal.output("report", out, "-o", tmp_path / "again.html")
    assert words in " ".join(again.split())
    assert (tmp_path / "again.html").read_text() == page


def test_a_tuned_comparison_as_json(terminal, data):
    rows = terminal.json(*compare(data, *TUNED, "--tune-budget", 5))
    for row, requested in zip(rows, ("fedavg", "fedprox", "ditto"), strict=True):
        assert row["tuning"]["requested"] == requested
        assert row["tuning"]["chosen"]["method"] == row["method"]
        assert len(row["tuning"]["results"]) == 4
        assert row["tuning"]["rounds"] == 1  # a quarter of two, rounded up


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--methods", "fedavg,fedpro"], "did you mean 'fedprox'?"),
        (["--methods", "fedavg,fedavg"], "methods must be distinct"),
        (["--methods", ","], "methods: name at least one"),
        (["--lr", "-1"], "lr must be greater than 0"),
        (["--participation", "0"], "participation must be greater than 0"),
        (["--participation", "0.5", "--cohort", "2"], "give participation or cohort, not both"),
        (["--set", "momentun=0.9"], "momentun is not known; did you mean 'momentum'?"),
        (["--set", "seed=3"], "seed: a comparison takes seeds instead"),
        (["--set", "model=mlp"], "model is not known"),
        (["--set", "train.lr=1"], "train is not known"),
        (["--jobs", "0"], "jobs must be at least 1"),
        (["--tune-lr", "0.1,0.2"], "--tune-lr: has no effect without --tune; add --tune"),
        (["--tune", "--tune-lr", "0.1;0.2"], "--tune-lr: must be comma-separated numbers"),
        (["--tune", "--tune-lr", "0.1"], "lr: give the lowest and the highest"),
        (["--tune", "--tune-budget", "1"], "budget must be at least 5 rounds per method"),
        (["--tune", "--tune-rounds", "0"], "rounds must be greater than"),
        (["--tune", "--methods", "fedprox,fedprox:mu=1"], "may both become fedprox:mu=1.0"),
        (["--budget", "1h"], "--budget: has no effect without --decide; add --decide"),
        (["--decide", "--budget", "soon"], "budget must be a time such as 90s, 20m or 1h30m"),
        (["--decide", "--max-seeds", "1"], "max_seeds must be greater than or equal to 2"),
        (["--target", "75"], "target must be"),
        (["--target", "-0.1"], "target must be"),
        (["--target", "nan"], "target must be a number (got nan)"),
        (["--label-column", "sick"], "is a saved federation; remove label_column"),
        (["--size", "8"], "is a saved federation; remove size"),
        (["--clients", "3"], "defines its own clients"),
        (["--samples", "3"], "defines its own clients"),
        (["--skew", "dirichlt"], "did you mean 'dirichlet'?"),
    ],
)
def test_invalid_comparisons_print_one_line_and_exit_with_2(terminal, data, options, words):
    assert words in terminal.error(*compare(data, *options))


def test_an_invalid_comparison_writes_no_files(terminal, data, tmp_path):
    terminal.error(*compare(data, "--lr", "-1", "--out", tmp_path / "out"))
    assert not (tmp_path / "out").exists()
