"""What the progress display shows, for one run and for many."""

from unskew.engine.progress import show_progress, show_progress_of_many


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
