"""Tables of several runs, computed by hand."""

import csv
import io
import math

import pytest

from unskew.errors import UnskewError
from unskew.runs.run import NO_GLOBAL_MODEL, Run
from unskew.runs.runs import Runs
from unskew.utils.tables import Table


def made_run(method, seed, accuracies, *, local=None, personal=None, megabytes=1.0, every=1):
    """A run with these global accuracies that sends ``megabytes`` per round, half of it up."""
    run = Run(method, "mlp", "digits", seed, 5)
    half = int(megabytes * 500_000)
    for i, accuracy in enumerate(accuracies, 1):
        row = {
            "stage": "task",
            "round": i,
            "train_loss": 1.0,
            "traffic": {"parameters_up": 1, "parameters_down": 1}
            | {"bytes_up": half, "bytes_down": half},
        }
        if accuracy is not None:
            row["global"] = {"accuracy": accuracy, "loss": 1.0}
        if local is not None:
            row["local"] = {"accuracy": local, "min": local / 2, "loss": 1.0}
            row["personal"] = {"accuracy": personal or local, "loss": 1.0}
        run.metrics.append(row)
    return run


TWO = Runs(
    [
        made_run("fedavg", 0, [0.2, 0.6, 0.8], local=0.6),
        made_run("fedavg", 1, [0.4, 0.8, 0.7], local=0.8),
        made_run("mean", 0, [0.1, 0.3, 0.5], local=0.5, megabytes=2),
        made_run("mean", 1, [0.1, 0.2, 0.3], local=0.5, megabytes=2),
    ]
)


def test_summaries_by_hand():
    fedavg, mean = TWO.summaries(target=0.5)
    assert (fedavg.method, fedavg.seeds) == ("fedavg", 2)
    assert fedavg.accuracy == pytest.approx((1.6 + 1.9) / 6)  # of three evaluations each
    assert fedavg.accuracy_sd == pytest.approx(
        math.sqrt(0.005)
    )  # of 1.6 / 3 and 1.9 / 3, over n - 1
    assert fedavg.local == pytest.approx(0.7)
    assert fedavg.worst_client == pytest.approx(0.35)
    assert (fedavg.reached, fedavg.rounds_to_target) == (2, 2)
    assert fedavg.bytes_to_target == 2_000_000
    assert (mean.reached, mean.rounds_to_target, mean.bytes_to_target) == (1, 3, 6_000_000)


def test_table_by_hand():
    table = TWO.table(target=0.5)
    assert table.columns == [
        "method", "accuracy", "local", "worst", "rounds to 50 %", "MB to 50 %",
    ]  # fmt: skip
    assert table.rows == [
        ["fedavg", "58.33 ± 7.07 %", "70.00 %", "35.00 %", "2.0", "2.00"],
        ["mean", "25.00 ± 7.07 %", "50.00 %", "25.00 %", "3.0 (1/2 seeds)", "6.00"],
    ]
    assert table.title == "digits, 5 clients, mlp, 3 rounds, 2 seeds"


def test_rows_are_ordered_by_the_judged_metric():
    values = {"b": 0.5, "unmeasured": None, "best": 0.9, "a": 0.5}
    runs = Runs([made_run(method, 0, [value]) for method, value in values.items()])
    assert runs.methods == list(values)
    assert [row[0] for row in runs.table().rows] == ["best", "b", "a", "unmeasured"]
    assert [row[0] for row in runs.table_with_verdict().rows] == runs.ranking()
    assert runs.verdict().leader == runs.ranking()[0]


def test_without_a_common_test_rows_are_ordered_by_the_local_metric():
    runs = Runs([made_run("a", 0, [None], local=0.4), made_run("b", 0, [None], local=0.6)])
    assert runs.ranking() == ["b", "a"]


def test_losses_are_ordered_from_the_lowest():
    runs = [made_run(method, 0, [0.5]) for method in ("a", "b")]
    for run, loss in zip(runs, (2.0, 1.0), strict=True):
        run.metrics[0]["global"] = {"loss": loss}
    assert Runs(runs).ranking() == ["b", "a"]


def test_seeds_that_never_reach_the_target():
    assert [row[-2:] for row in TWO.table(target=0.99).rows] == [["-", "-"], ["-", "-"]]
    assert [summary.reached for summary in TWO.summaries(target=0.99)] == [0, 0]


@pytest.mark.parametrize(
    ("target", "words"), [(0.855, "85.5 %"), (0.57, "57 %"), (0.9, "90 %"), (1, "100 %")]
)
def test_the_target_is_shown_as_given(target, words):
    assert TWO.table(target=target).columns[-1] == f"MB to {words}"


def test_the_default_target_is_reached_by_every_run_of_good_methods():
    """With every seed a reaches at least 0.7 and b 0.6; the failed method is ignored."""
    rows = {"a": ([0.2, 0.7], [0.8, 0.1]), "b": ([0.6, 0.5], [0.65, 0.7])}
    runs = [made_run(name, seed, row) for name in rows for seed, row in enumerate(rows[name])]
    assert Runs(runs).default_target() == 0.6
    failed = [made_run("failed", seed, [0.1, 0.12]) for seed in range(2)]
    assert Runs([*runs, *failed]).default_target() == 0.6
    assert Runs([*runs, *failed]).table().columns[-2] == "rounds to 60 %"
    assert [summary.reached for summary in Runs([*runs, *failed]).summaries()] == [2, 2, 0]
    assert Runs(failed).default_target() == 0.12


def test_the_default_target_is_rounded():
    uneven = Runs([made_run("a", 0, [0.817]), made_run("b", 0, [0.9])])
    assert uneven.default_target() == 0.81
    assert Runs([made_run("a", 0, [0.57])]).default_target() == 0.57
    broken = Runs([made_run("a", 0, [0.5, math.nan]), made_run("b", 0, [math.nan])])
    assert broken.default_target() == 0.5


def test_without_a_common_test_the_target_is_of_the_local_tests():
    runs = Runs([made_run("a", seed, [None], local=0.4 + 0.1 * seed) for seed in range(2)])
    assert runs.level == "local"
    assert runs.default_target() == 0.4
    assert [row[-2:] for row in runs.table().rows] == [["1.0", "1.00"]]


def test_without_a_common_test_the_local_level_leads_with_its_spread():
    runs = Runs(
        [made_run("a", seed, [None], local=0.4 + 0.2 * seed, personal=0.9) for seed in range(2)],
        level="local",
    )
    table = runs.table()
    assert table.columns[:4] == ["method", "local accuracy", "personal", "worst"]
    assert table.rows[0][:4] == ["a", "50.00 ± 14.14 %", "90.00 %", "25.00 %"]
    assert table.notes[0].startswith("Local accuracy (mean over the clients' own tests) and worst")
    assert r"local accuracy & personal" in table.to_latex()
    assert r"50.00 $\pm$ 14.14 \%" in table.to_latex()
    summary = runs.summaries()[0]
    assert (summary.level, summary.accuracy) == ("local", summary.local)
    assert summary.accuracy_sd == pytest.approx(math.sqrt(0.02))
    assert (runs[0].level, runs[0].accuracy) == ("personal", 0.4)
    assert runs[0].table().columns == ["round", "train loss", "local", "worst client", "personal"]


def test_the_target_counts_preparatory_rounds():
    run = made_run("prepared", 0, [None, None, 0.5])
    assert Runs([run]).summaries(target=0.5)[0].rounds_to_target == 3


def test_personal_models_have_a_column_where_they_differ():
    runs = Runs(
        [
            made_run("personal", 0, [0.5], local=0.4, personal=0.9),
            made_run("b", 0, [0.5], local=0.4),
        ],
        level="global",
    )
    table = runs.table()
    assert table.columns[2:4] == ["local", "personal"]
    assert [row[3] for row in table.rows] == ["90.00 %", "40.00 %"]


def test_missing_values_are_dashes_without_extra_columns():
    table = Runs([made_run("a", 0, [0.5, 0.6])]).table()
    assert "personal" not in table.columns
    assert table.rows == [["a", "55.00 %", "-", "-", "2.0", "2.00"]]
    unevaluated = Runs([made_run("a", 0, [None, None])])
    assert math.isnan(unevaluated.default_target())
    assert unevaluated.table().rows == [["a", "-", "-", "-", "-", "-"]]
    assert unevaluated.table().columns[-1] == "MB to target"


def test_the_title_uses_the_singular():
    assert Runs([made_run("a", 3, [0.5])]).table().title.endswith("1 round, 1 seed")


def test_runs_are_a_sequence_by_method():
    assert len(TWO) == 4
    assert TWO.methods == ["fedavg", "mean"]
    assert [run.seed for run in TWO.of("mean")] == [0, 1]
    assert TWO[0].method == "fedavg"


def test_markdown():
    lines = TWO.table(target=0.5).to_markdown().splitlines()
    assert lines[0] == "| method | accuracy | local | worst | rounds to 50 % | MB to 50 % |"
    assert lines[1] == "| --- | ---: | ---: | ---: | ---: | ---: |"
    assert lines[2] == "| fedavg | 58.33 ± 7.07 % | 70.00 % | 35.00 % | 2.0 | 2.00 |"


def test_markdown_escapes_bars():
    table = Table(["a", "b"], [["x|y", "1"]])
    assert table.to_markdown().splitlines()[2] == r"| x\|y | 1 |"


def test_csv_round_trip():
    table = Table(["method", "note"], [["fedprox:mu=0.1,buffers=local", 'say "so"'], ["a", "ü"]])
    rows = list(csv.reader(io.StringIO(table.to_csv())))
    assert rows == [["method", "note"], *table.rows]


def test_text_aligns_columns():
    assert str(Table(["m", "x"], [["a", "1"], ["bb", "22"]])) == "m    x\na    1\nbb  22"


def test_the_table_of_one_run():
    table = made_run("fedavg", 0, [0.25, None, 0.5], local=0.5).table()
    assert table.columns == ["round", "train loss", "global", "local", "worst client", "personal"]
    assert table.rows[0] == ["1", "1.0000", "25.00 %", "50.00 %", "25.00 %", "50.00 %"]
    assert table.rows[1][2] == "-"


def test_the_title_counts_only_the_rounds_of_the_task():
    run = made_run("feddisk", 0, [None, None, 0.2, 0.6, 0.8])
    for row in run.metrics[:2]:
        row["stage"] = "density"
    assert (run.rounds, run.task_rounds) == (5, 3)
    assert "3 rounds" in Runs([run]).table(0.5).title


def test_the_level_is_found_out_once_per_text_not_once_per_round(monkeypatch):
    """It looks at all runs, so a comparison of many runs and rounds would take minutes."""
    runs, calls, find = Runs([made_run("a", seed, [0.5]) for seed in range(4)]), [], Run.level_of

    def counted(self, metric):
        calls.append(self)
        return find(self, metric)

    monkeypatch.setattr(Run, "level_of", counted)
    assert runs.final_text
    assert len(calls) <= len(runs)


def test_a_verdict_follows_what_it_is_computed_from(monkeypatch):
    from unskew.runs import runs as module

    calls, judge = [], module.judge_scores
    monkeypatch.setattr(
        module, "judge_scores", lambda *args, **named: calls.append(1) or judge(*args, **named)
    )
    ends = {"fedavg": [0.5, 0.6, 0.7], "mean": [0.6, 0.6, 0.8]}
    runs = Runs(
        made_run(method, seed, [0.1, end], local=end)
        for method, each in ends.items()
        for seed, end in enumerate(each)
    )
    first = runs.verdict()
    assert runs.verdict() is first
    assert len(calls) == 1
    assert runs.verdict("local").level == "local"
    runs[0].metrics[-1]["global"]["accuracy"] += 0.25
    assert runs.verdict().means["fedavg"] != first.means["fedavg"]
    runs.margin = 50.0
    assert runs.verdict().answers.margin == 50.0
    assert len(calls) == 4


def in_precision(run, precision):
    if precision is not None:
        run.metadata["configuration"] = {"precision": precision}
    return run


def test_runs_in_different_precisions_are_compared_with_a_remark():
    precisions = {"fedavg": None, "mean": "float32", "fedprox": "bf16", "scaffold": "bf16"}
    runs = [
        in_precision(made_run(method, seed, [0.5 + seed / 10, 0.6]), precision)
        for method, precision in precisions.items()
        for seed in range(2)
    ]
    remark = (
        "Precision differs, so methods are not compared on equal terms: float32 for fedavg and "
        "mean, bf16 for fedprox and scaffold."
    )
    both = Runs(runs)
    assert remark in both.table().notes
    assert remark in both.table_with_verdict().notes
    assert str(both.verdict()).endswith(f" {remark}")
    for same in (Runs(runs[:4]), Runs(runs[4:])):
        assert "recision" not in f"{same.table()} {same.verdict()}"


def test_one_method_in_two_precisions_is_listed_with_both():
    runs = [
        in_precision(made_run("fedavg", seed, [0.5, 0.6]), precision)
        for seed, precision in enumerate(("float32", "bf16"))
    ]
    assert "float32 for fedavg, bf16 for fedavg." in str(Runs(runs).table())


def personal(level):
    """Two methods of equal global models; the personal models of the second are better."""
    runs = [made_run("fedavg", seed, [0.5], local=0.6 + seed / 100) for seed in range(3)]
    for seed in range(3):
        run = made_run("ditto", seed, [0.5], local=0.6, personal=0.9 + seed / 100)
        run.metrics[0]["personal"]["min"] = 0.7
        runs.append(run)
    return Runs(runs, level=level)


def test_personal_models_are_judged_where_a_method_has_them():
    runs = personal(None)
    assert Runs(runs.of("fedavg")).level == "global"
    assert (runs.level, str(runs.table())) == ("personal", str(personal("personal").table()))
    table = runs.table_with_verdict(target=0.85)
    assert table.columns[:6] == [
        *("method", "personal accuracy", "global", "local", "worst", "rounds to 85 %")
    ]
    assert table.rows[0][:6] == ["ditto", "91.00 ± 1.00 %", "50.00 %", "60.00 %", "70.00 %", "1.0"]
    assert table.rows[1][5] == "-"
    assert table.notes[0].startswith(
        "Personal accuracy (personal models on the clients' own tests)"
    )
    verdict = runs.verdict()
    assert (verdict.level, verdict.pairs[0].difference) == ("personal", pytest.approx(30))
    assert str(verdict).startswith("By personal models on the clients' own tests, on average: ")
    assert runs.with_same_judging(list(runs)).level == "personal"
    local = personal("local").table(target=0.85)
    assert local.columns[:5] == ["method", "local accuracy", "global", "personal", "worst"]


def test_personal_models_that_were_not_measured_everywhere_are_not_judged():
    runs = [made_run("fedavg", 0, [0.5]), made_run("ditto", 0, [0.6], local=0.5, personal=0.9)]
    assert Runs(runs).level == "global"
    ditto = made_run("ditto", 0, [0.6])  # no client has a test
    ditto.metadata["models"] = {"global": True, "personal": True}
    assert (ditto.level, Runs([runs[0], ditto]).level) == ("global", "global")


def without_global_model(seed):
    run = made_run("local", seed, [0.1, 0.1], local=0.1, personal=0.8 + seed / 100)
    run.metadata["models"] = {"global": False, "personal": True}
    run.metadata["data"] = {"majority": {"global": 0.1, "local": 0.1}}
    return run


def test_a_method_without_a_global_model_is_never_judged_by_one():
    known = [made_run("fedavg", seed, [0.5, 0.6], local=0.6) for seed in (0, 1, 2)]
    runs = [*known, *map(without_global_model, (0, 1, 2))]
    table = Runs(runs).table_with_verdict(target=0.85)
    assert table.columns[1:5] == ["personal accuracy", "global", "local", "worst"]
    assert table.rows[0][:4] == ["local", "81.00 ± 1.00 %", "-", "-"]
    assert Runs(runs).failures("local") == {}
    for level in ("global", "local"):
        asked = Runs(runs, level=level)
        rows = asked.table_with_verdict(target=0.05).rows
        assert [row[0] for row in rows] == ["fedavg", "local"]
        assert (rows[1][1], rows[1][-3], rows[1][-1]) == ("-", "-", "no global model")
        assert asked.failures("local") == {}
        assert list(asked.verdict().means) == ["fedavg"]
        assert asked.remarks["local"] == [NO_GLOBAL_MODEL]
    assert math.isnan(runs[-1].accuracy)
    assert (runs[-1].level, runs[-1].last("personal")) == ("personal", pytest.approx(0.82))
    assert runs[-1].table().rows[-1][2:] == ["-", "-", "-", "82.00 %"]
    assert runs[-1].remarks == [NO_GLOBAL_MODEL]


def test_an_unknown_level_is_an_error():
    with pytest.raises(UnskewError, match="level must be global, local or personal"):
        personal("own")
