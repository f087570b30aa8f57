"""A SuperLink and three SuperNodes with TLS and node keys end with the weights of one process."""

import json

import pytest
from sklearn.metrics import roc_auc_score

pytest.importorskip("flwr")

from deployments import NODES, make_app, make_table_app, parity, rounds, run_app, settings, until

import unskew as us
from hospitals import hospital_rows, write_csv
from unskew.flower.loopback.certificates import make_node_key
from unskew.flower.loopback.federation import CONNECTION, Loopback
from unskew.flower.loopback.parity import compare_tensors, final_tensors
from unskew.runs.read import read_run

pytestmark = pytest.mark.long

METHOD = "feddisk:density_rounds=1,ratio_rounds=1+scaffold+ida"
"""Preparatory stages, state on the nodes, extras in both directions, and weights from models."""


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with Loopback(tmp_path_factory.mktemp("federation"), NODES, tls=True) as started:
        yield started
    assert started.programs.processes == []


def count_online(federation: Loopback) -> int:
    """Return how many nodes the SuperLink lists as online."""
    printed = federation.flwr(["supernode", "list", CONNECTION, "--format", "json"])
    return sum(node["status"] == "online" for node in json.loads(printed)["nodes"])


@pytest.mark.filterwarnings("ignore::unskew.errors.UnskewWarning")
def test_real_nodes_and_one_process_end_with_the_same_bits(federation, tmp_path):
    app = make_app(tmp_path / "app", METHOD)
    config = settings(tmp_path / "run")
    run_app(federation, app, config)
    found = parity(app, config)
    assert found.largest_difference == 0, str(found)
    assert found.numbers > 2 * 600  # the network and the control variate
    assert [row.get("missing") for row in rounds(tmp_path / "run")].count(None) >= 2


def test_nodes_with_a_csv_each_end_with_the_bits_of_one_table(federation, tmp_path):
    """All three have categories as text and a tenth of their cells blank."""
    rows = [row for row in hospital_rows() if row["hospital"] != "north"]
    names = sorted({row["hospital"] for row in rows})
    for number, name in enumerate(names):
        own = [row for row in rows if row["hospital"] == name]
        without = [{n: cell for n, cell in row.items() if n != "hospital"} for row in own]
        write_csv(tmp_path / f"{number}.csv", without)
    new = hospital_rows(50, seed=8)
    common = write_csv(tmp_path / "common.csv", new)
    app = make_table_app(tmp_path / "app", "fedavg", tmp_path)
    run_app(federation, app, settings(tmp_path / "run", **{"train.evaluate_every": 2}))
    on_nodes = read_run(tmp_path / "run")
    roles = {"label": "outcome", "client": "hospital", "common": common}
    table = us.Federation.from_table(rows, prepare="federated:min_cell=5", **roles)
    same = {"lr": 0.1, "rounds": 2, "runner": "loop", "evaluate_every": 2, "metric": "auc"}
    simulated = us.train(table, out=tmp_path / "simulated", progress=False, **same)
    found = compare_tensors(final_tensors(tmp_path / "run"), final_tensors(tmp_path / "simulated"))
    assert found.largest_difference == 0, str(found)
    ours, theirs = (run.metadata["preprocessing"] for run in (on_nodes, simulated))
    assert ours | {"spec": theirs["spec"]} == theirs
    assert on_nodes.cost == simulated.cost
    assert on_nodes.metrics[-1]["global"] == simulated.metrics[-1]["global"]
    probabilities = simulated.predictor.predict_proba(common)[:, 1]
    auc = roc_auc_score([row["outcome"] == "left" for row in new], probabilities)
    assert on_nodes.last("global", "auc") == pytest.approx(auc, abs=1e-9)
    expected = simulated.predictor.predict(new)
    assert on_nodes.predictor.predict(new).tolist() == expected.tolist()


def test_unregistered_nodes_and_plain_text_are_rejected(federation):
    key = make_node_key(federation.folder / "keys", "unregistered")
    trust = ["--root-certificates", str(federation.folder / "certificates" / "ca.crt")]
    unregistered = federation.launch_node(
        NODES, [*trust, "--auth-supernode-private-key", str(key.private)]
    )
    without_key = federation.launch_node(NODES + 1, trust)
    without_tls = federation.launch_node(NODES + 2, ["--insecure", "--max-retries", "1"])
    rejected = (unregistered, without_key, without_tls)
    until(lambda: not any(each.is_running for each in rejected), "unregistered nodes exit", 180)
    assert all(each.exit_code != 0 for each in rejected), [each.text() for each in rejected]
    assert count_online(federation) <= NODES


def test_a_registered_node_cannot_take_the_name_of_another(federation, tmp_path):
    key = make_node_key(federation.folder / "keys", "elsewhere")
    command = ["supernode", "register", str(key.public), CONNECTION, "--name", "elsewhere"]
    federation.flwr(command)
    options = ["--root-certificates", str(federation.folder / "certificates" / "ca.crt")]
    options += ["--auth-supernode-private-key", str(key.private)]
    online = count_online(federation)
    intruder = federation.launch_node(NODES + 3, [*options, "--node-config", "partition-id=0"])
    until(lambda: count_online(federation) > online, "the intruder connects", 180)
    config = settings(tmp_path / "run")
    log = run_app(federation, make_app(tmp_path / "app", "fedavg"), config)
    intruder.stop()
    assert "refused: 0: its key is registered with the name 'elsewhere'" in log
    assert parity(tmp_path / "app", config).largest_difference == 0
