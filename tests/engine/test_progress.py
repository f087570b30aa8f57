"""What the progress display shows, for one run and for many."""

import sys
from types import SimpleNamespace

import pytest

from unskew.engine import progress_bars
from unskew.engine.progress import ProgressDisplay, show_progress, show_progress_of_many
from unskew.engine.progress_bars import Lines, NotebookBars, in_notebook, surface_for
from unskew.engine.time_estimate import TimeEstimate
from unskew.utils.wording import duration


def test_the_bar_of_a_run_shows_rounds_and_metrics(capsys):
    with show_progress(True, "fedavg", rounds=3, done=1) as on_round:
        on_round(3, {"train_loss": 0.25, "global": {"accuracy": 0.5, "loss": 1.0}})
    shown = capsys.readouterr().err
    assert "fedavg" in shown
    assert "3/3" in shown
    assert "loss 0.250  accuracy 50.0 %" in shown


def test_without_an_accuracy_the_test_loss_is_shown(capsys):
    with show_progress(True, "vae", rounds=1, done=0) as on_round:
        on_round(1, {"train_loss": None, "global": {"loss": 466.99}})
    assert "test loss 467" in capsys.readouterr().err


def test_without_a_common_test_the_local_level_is_shown(capsys):
    with show_progress(True, "fedavg", rounds=1, done=0) as on_round:
        on_round(1, {"train_loss": 0.25, "local": {"accuracy": 0.5, "loss": 1.0}})
    assert "loss 0.250  local accuracy 50.0 %" in capsys.readouterr().err


def test_the_display_of_many_runs_counts_the_finished_ones(capsys):
    with show_progress_of_many(True, runs=2, rounds=5) as display:
        for label in ("fedavg, seed 0", "ida, seed 0"):
            on_round = display.start(label, rounds=2)
            on_round(2, {"train_loss": 0.1})
            display.finish(label)
    shown = capsys.readouterr().err
    assert "runs" in shown
    assert "2/2" in shown
    assert "fedavg" not in shown  # a finished run has no bar


def test_nothing_is_shown_unless_standard_error_is_a_terminal(capsys):
    with show_progress(None, "fedavg", rounds=1, done=0) as on_round:
        on_round(1, {})
    with show_progress_of_many(None, runs=1, rounds=1) as display:
        display.start("fedavg")(1, {})
        display.finish("fedavg")
    assert capsys.readouterr().err == ""


def test_a_callback_is_used_as_it_is():
    calls = []
    with show_progress(lambda *call: calls.append(call), "fedavg", 1, 0) as on_round:
        on_round(1, {"train_loss": 0.1})
    assert calls == [(1, {"train_loss": 0.1})]


def pretend_notebook(monkeypatch, shell):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))


def test_a_notebook_is_a_shell_with_a_kernel(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not in_notebook()
    for shell, expected in (
        (None, False),
        (SimpleNamespace(), False),  # IPython on a terminal
        (SimpleNamespace(kernel=None), False),
        (SimpleNamespace(kernel=object()), True),
    ):
        pretend_notebook(monkeypatch, shell)
        assert in_notebook() is expected


@pytest.mark.parametrize(
    ("progress", "notebook", "terminal", "expected"),
    [
        (None, False, False, "lines"),
        (None, False, True, "terminal"),
        (None, True, False, "notebook"),
        (True, True, False, "notebook"),
        (True, False, False, "terminal"),
        (False, True, True, "nothing"),
        (False, False, False, "nothing"),
    ],
)
def test_where_progress_is_shown(monkeypatch, progress, notebook, terminal, expected):
    monkeypatch.setattr(progress_bars, "in_notebook", lambda: notebook)
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: terminal))
    assert surface_for(progress) == expected


def test_a_notebook_gets_few_updates_and_keeps_one_line(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(progress_bars.time, "monotonic", lambda: clock[0])
    shown = []
    bars = NotebookBars(shown.append)
    display = ProgressDisplay(bars, runs=1, rounds=1000)
    on_round = display.start("<fedavg>, seed 0")
    for round_ in range(1, 1001):
        clock[0] += 0.002  # two seconds in all
        on_round(round_, {"train_loss": 0.5})
    assert len(shown) < 15
    assert "&lt;fedavg&gt;, seed 0" in shown[-1]
    assert "<progress" in shown[-1]
    display.finish("<fedavg>, seed 0")
    bars.close()
    assert shown[-1].count("<p") == 1
    assert "runs: 1/1 in 2.0 s" in shown[-1]
    assert "progress" not in shown[-1]


def test_lines_of_a_notebook_stay():
    shown = []
    bars = NotebookBars(shown.append)
    bars.say("feddisk: <2> stages")
    bars.close()
    assert "feddisk: &lt;2&gt; stages" in shown[-1]


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_the_time_left_follows_from_the_rounds_per_second():
    clock = Clock()
    estimate = TimeEstimate(21, clock)
    assert estimate.elapsed == 0
    clock.now = 50.0  # the first round includes the start
    estimate.finish_round()
    assert estimate.seconds_left is None
    for _ in range(10):
        clock.now += 2.0
        estimate.finish_round()
    assert estimate.seconds_left == pytest.approx(20.0)
    estimate.expect(5)
    assert estimate.seconds_left == pytest.approx(30.0)
    estimate.expect(-100)
    assert estimate.seconds_left == 0


def run_many(seconds, total_rounds=None, runs=4, rounds=20):
    """Run all rounds, each taking the seconds of its run, and return the printed lines."""
    clock, lines = Clock(), []
    display = ProgressDisplay(Lines(lines.append), runs, rounds, total_rounds)
    display._estimate._clock = clock
    for run in range(runs):
        on_round = display.start(f"run {run}")
        for round_ in range(1, rounds + 1):
            clock.now += seconds[run]
            on_round(round_, {})
        display.finish(f"run {run}")
    return lines


def test_a_long_comparison_prints_one_line():
    assert run_many([1, 1, 1, 1]) == [
        "4 runs: about 79 s in total, if all rounds take as long as the first ones"
    ]


@pytest.mark.parametrize("total_rounds", [80, None])
def test_runs_that_are_only_read_do_not_count(total_rounds):
    clock, lines = Clock(), []
    display = ProgressDisplay(Lines(lines.append), 4, 20, total_rounds)
    display._estimate._clock = clock
    display.skip(2, 40)
    for run in range(4):
        on_round = display.start(f"run {run}", rounds=0 if run < 2 else 20)
        for round_ in range(1, 21) if run >= 2 else ():
            clock.now += 2
            on_round(round_, {})
        display.finish(f"run {run}")
    assert lines == ["2 runs: about 78 s in total, if all rounds take as long as the first ones"]


def test_the_line_waits_until_rounds_take_as_long_as_later_ones():
    clock, lines = Clock(), []
    display = ProgressDisplay(Lines(lines.append), runs=2, rounds=200)
    display._estimate._clock = clock
    on_round = display.start("a")
    for round_ in range(1, 61):
        clock.now += 0.15
        on_round(round_, {})
        assert lines == []
    clock.now += 0.15
    on_round(61, {})
    assert len(lines) == 1


def test_a_comparison_that_slows_down_prints_another():
    first, second, *_ = run_many([1, 1, 10, 10])
    assert "about 79 s" in first
    assert second.startswith("slower than expected: about ")


def test_a_short_comparison_prints_nothing():
    assert run_many([0.2] * 4) == []


def test_runs_that_are_done_already_do_not_count():
    clock, lines = Clock(), []
    display = ProgressDisplay(Lines(lines.append), 3, 10)
    display._estimate._clock = clock
    display.start("finished before")
    display.finish("finished before")
    on_round = display.start("resumed")
    for round_ in range(5, 11):
        clock.now += 1
        on_round(round_, {"stage": "task"})
    assert display._estimate.seconds_left == pytest.approx(10)


def test_rounds_of_all_stages_are_counted(capsys):
    with show_progress_of_many(True, runs=2, rounds=2) as display:
        on_round = display.start("feddisk, seed 0", rounds=5)
        for stage, rounds in (("density", 3), ("task", 2)):
            for round_ in range(1, rounds + 1):
                on_round(round_, {"stage": stage})
        other = display.start("feddisk, seed 1", rounds=5)
        other(1, {"stage": "density"})
    shown = capsys.readouterr().err
    assert "5/5" in shown
    assert "1/5 density" in shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (3.21, "3.2 s"), (42.4, "42 s"), (99.6, "2 min"), (1800, "30 min"),
     (7200, "2 h"), (7830, "2 h 10 min")],
)  # fmt: skip
def test_durations(seconds, text):
    assert duration(seconds) == text
