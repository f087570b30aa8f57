"""Predictions by the model that a client uses: in memory, after a read, and of every method."""

import json
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

import unskew as us
from every_method import SPECS, train_quickly
from marks import long_after
from toys import opposed, small_federation
from unskew.errors import UnskewError, UnskewWarning
from unskew.methods import make_method
from unskew.runs.read import read_run

OPTIONS = {"rounds": 2, "lr": 0.1, "batch_size": 4, "model": "mlp:hidden=6", "progress": False}
NAMES = ["Breda", "Delft", "Gouda", "Leiden"]
PERSONAL = [spec for spec in SPECS if make_method(spec).about.kind == "personal"]


def named(federation):
    return us.Federation.from_arrays(
        federation.train.x, federation.train.y,
        np.repeat(NAMES, federation.train.sizes), holdout=0.3,
    )  # fmt: skip


def reported(run):
    """The last table of personal accuracies, by client."""
    table = [each for each in run.client_tables if each["kind"] == "personal"][-1]
    return dict(zip(table["client"], table["accuracy"], strict=True))


def accuracies(predictor, federation):
    found = {}
    for k in np.flatnonzero(federation.test.sizes).tolist():
        x, y = federation.test.client(k)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnskewWarning)
            found[k] = float((predictor.predict_proba(x, client=k).argmax(1) == y).mean())
    return found


IN_ANOTHER_PROCESS = """
import json, sys, numpy as np
from unskew.runs.read import read_run
run, x = read_run(sys.argv[1]), np.load(sys.argv[2])
print(json.dumps(run.predictor.predict_proba(x, client="Gouda").tolist()))
print(len(run.states), type(run.personal_model("Gouda")).__name__)
"""


@pytest.mark.parametrize("method", [*long_after(8, [*PERSONAL, "fedbabu:part=all", "ifca"])])
def test_a_client_is_predicted_by_the_model_that_was_evaluated(method, tmp_path):
    federation = small_federation(unit=True)
    run = train_quickly(federation, method, rounds=2, out=tmp_path / "run", progress=False)
    expected = reported(run)
    assert accuracies(run.predictor, federation) == pytest.approx(expected)
    loaded = read_run(tmp_path / "run")
    assert accuracies(loaded.predictor, federation) == pytest.approx(expected)
    moved = pickle.loads(pickle.dumps(run))
    assert accuracies(moved.predictor, federation) == pytest.approx(expected)


@pytest.mark.long
@pytest.mark.parametrize("method", SPECS)
def test_every_method_predicts_as_it_was_evaluated(method, tmp_path):
    federation = small_federation((20, 13, 9, 14, 8, 11, 17), unit=True)
    run = train_quickly(federation, method, rounds=2, out=tmp_path / "run", progress=False)
    if run.clients == len(federation):  # central has one client
        assert accuracies(run.predictor, federation) == pytest.approx(reported(run))
        loaded = read_run(tmp_path / "run").predictor
        assert accuracies(loaded, federation) == pytest.approx(reported(run))


def test_a_personal_model_predicts_in_another_process(tmp_path):
    federation = named(opposed())
    run = us.train(federation, "ditto", out=tmp_path / "run", **OPTIONS)
    x = federation.test.client(2)[0]
    np.save(tmp_path / "x.npy", x)
    printed = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS, str(tmp_path / "run"), str(tmp_path / "x.npy")],
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    expected = run.predictor.predict_proba(x, client="Gouda")
    assert json.loads(printed[0]) == expected.tolist()
    assert printed[1] == f"4 {type(run.model).__name__}"
    with pytest.warns(UnskewWarning):
        assert not np.array_equal(expected, run.predictor.predict_proba(x))


def test_an_unknown_client_is_refused_with_the_names():
    run = us.train(named(opposed()), "fedavg", **OPTIONS)
    x = np.zeros((1, 5), np.float32)
    with pytest.raises(UnskewError, match="client: 'delft' is not one of the run's clients; use"):
        run.predictor.predict(x, client="delft")
    with pytest.raises(UnskewError, match="'Breda', 'Delft', 'Gouda' or 'Leiden'"):
        run.personal_model("x")
    unnamed = us.train(opposed(), "fedavg", **OPTIONS).predictor
    assert unnamed.predict(x, client=3).shape == (1,)
    with pytest.raises(UnskewError, match=r"client: 4 is not one .*; use a number from 0 to 3"):
        unnamed.predict(x, client=4)


@pytest.mark.parametrize("method", ["local", "fedrep", "fedper", "fedas", "fedproto", "ifca"])
def test_without_a_trained_global_model_a_client_is_needed(method, tmp_path):
    run = us.train(named(opposed()), method, out=tmp_path / "run", **OPTIONS)
    for each in (run, read_run(tmp_path / "run")):
        with pytest.raises(UnskewError, match="trains no global model; name the client"):
            each.predictor.predict(np.zeros((1, 5), np.float32))


@pytest.mark.parametrize(
    "method", ["ditto", "fedala", "fedbn", "fedrod", "feddbe", "fedpac", "fedper:fallback=average"]
)
def test_a_trained_global_model_is_used_and_named(method):
    federation = named(opposed())
    run = us.train(federation, method, **OPTIONS | {"model": "mlp:hidden=6,norm=batch"})
    x = federation.test.client(0)[0]
    with pytest.warns(UnskewWarning, match=r"the global model of .* client to 'Breda'"):
        by_global = run.predictor.predict_proba(x)
    assert not np.array_equal(by_global, run.predictor.predict_proba(x, client="Delft"))


def test_a_client_that_never_took_part_is_not_predicted_by_an_untrained_head():
    federation = named(opposed())
    options = OPTIONS | {"rounds": 1, "cohort": 1}
    run = us.train(federation, "fedper", **options)
    (trained,) = run.states
    x = federation.test.client(0)[0]
    assert run.predictor.predict(x, client=NAMES[trained]).shape == (len(x),)
    other = NAMES[trained - 1]
    with pytest.raises(UnskewError, match=f"client: {other!r} never took part in the training"):
        run.predictor.predict(x, client=other)
    ditto = us.train(federation, "ditto", **options)
    (trained,) = ditto.states
    with pytest.warns(UnskewWarning, match="never took part .*, so the global model predicts"):
        ditto.predictor.predict(x, client=NAMES[trained - 1])


def test_models_that_stayed_in_another_process_are_named():
    run = pickle.loads(pickle.dumps(us.train(opposed(), "ditto", **OPTIONS)))
    with pytest.raises(UnskewError, match="stayed in the process that executed the run; set out"):
        run.predictor.predict(np.zeros((1, 5), np.float32), client=0)


def test_a_resumed_run_tunes_its_final_models_again(tmp_path):
    federation = small_federation(unit=True)
    options = OPTIONS | {"cohort": 2}
    us.train(federation, "fedbabu", out=tmp_path / "a", **options)
    options["rounds"] = 4
    longer = us.train(federation, "fedbabu", out=tmp_path / "a", resume=True, **options)
    once = us.train(federation, "fedbabu", out=tmp_path / "b", **options)
    assert longer.metrics[1]["personal"] == once.metrics[1]["personal"]
    found = accuracies(read_run(tmp_path / "a").predictor, federation)
    assert found == accuracies(once.predictor, federation) == pytest.approx(reported(once))


def test_the_models_of_an_unfinished_run_are_not_tuned_yet(tmp_path):
    def stop(round_, metrics):
        if round_ == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        us.train(opposed(), "fedbabu", out=tmp_path / "run", **OPTIONS | {"progress": stop})
    predictor = read_run(tmp_path / "run").predictor
    with pytest.raises(UnskewError, match="fine-tuned when a run ends; resume it first"):
        predictor.predict(np.zeros((1, 5), np.float32), client=0)
