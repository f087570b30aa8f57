"""What preparatory stages will cost is announced before they start, and is true."""

import pytest

import unskew as us
from unskew.engine.preparation import planned_rounds
from unskew.methods import make_method

pytestmark = pytest.mark.filterwarnings("ignore:feddisk. the samples of")

FEDDISK = "feddisk:density_rounds=3,ratio_rounds=2,hidden=4"
OPTIONS = {"seeds": 1, "model": "logistic", "rounds": 1}


@pytest.fixture(scope="module")
def digits():
    return us.load("digits", clients=3, samples=150)


def test_a_comparison_announces_preparatory_stages(digits, capsys):
    us.compare(digits, f"fedavg,{FEDDISK}", **OPTIONS)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("feddisk:")
    assert "2 preparatory stages before the task's 1 round: density (up to 3 rounds of 3" in line
    assert line.endswith("parameters, which stay on the clients)")


def test_nothing_is_announced_without_progress(digits, capsys):
    us.compare(digits, FEDDISK, progress=False, **OPTIONS)
    assert capsys.readouterr().err == ""


def test_the_announced_traffic_is_what_is_sent(digits, capsys):
    run = us.train(digits, "latent:vae_rounds=3,encoder=8", rounds=1, progress=True)
    sent = sum(
        row["traffic"]["bytes_up"] + row["traffic"]["bytes_down"]
        for row in run.metrics
        if row["stage"] == "vae"
    )
    announced = capsys.readouterr().err
    assert "1 preparatory stage before the task's 1 round: vae (up to 3 rounds of 3" in announced
    assert f"up to {sent / 1e6:.1f} MB" in announced


def test_a_method_that_cannot_be_announced_fails_in_its_run(digits):
    with pytest.raises(us.UnskewError, match="quorum"):
        us.compare(digits, FEDDISK, quorum=9, **OPTIONS)


def test_planned_rounds_count_all_stages():
    assert planned_rounds(make_method("fedavg").stages(), 10) == 10
    assert planned_rounds(make_method(FEDDISK).stages(), 10) == 15
