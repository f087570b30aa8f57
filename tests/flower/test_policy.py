"""A site's policy decides what its node sends and computes; the server can only ask for less."""

import json
import logging
import shutil
from contextlib import contextmanager

import pytest

from every_method import QUICK
from unskew.errors import UnskewError

grids = pytest.importorskip("grids")

import numpy as np  # noqa: E402
from hostile import (  # noqa: E402
    ask,
    honest_run,
    merged,
    plain_request,
    reason_in,
    refusal_of,
    repeat,
    with_array,
    with_request,
)
from node_tables import COLUMNS, run_on_nodes  # noqa: E402

from unskew.flower.policy import Limits, Policy  # noqa: E402
from unskew.flower.traffic_preview import preview_messages, preview_traffic  # noqa: E402

OPTIONS = {"rounds": 2, "lr": 0.1, "batch_size": 8, "evaluate_every": 0}


def run_with(policy, method="fedavg", *, state=None, sites=("3",), **options):
    """Run on seven nodes, some of which have a policy in their config."""
    federation = grids.seven_clients()
    app = grids.client_app(grids.MODEL, federation, method, state=state)
    configs = [
        {"partition-id": i, **({"policy": str(policy)} if str(i) in sites else {})}
        for i in range(len(federation))
    ]
    grid = grids.InProcessGrid(app, configs)
    return grids.run_on_grid(federation, method, grid=grid, **OPTIONS | options)


def lines_of(state):
    return [json.loads(line) for line in (state / "sent.jsonl").read_text().splitlines()]


@contextmanager
def warnings_of_the_server(caplog):
    """Collect what the server logs; Flower's logger does not pass it on."""
    logger, level = logging.getLogger("flwr"), logging.getLogger("flwr").level
    logger.addHandler(caplog.handler)
    logger.setLevel(logging.INFO)
    yield caplog
    logger.removeHandler(caplog.handler)
    logger.setLevel(level)


@pytest.fixture
def policy_file(tmp_path):
    def write(text):
        path = tmp_path / "policy.toml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    ("method", "text", "reason"),
    [
        ("scaffold", 'refuse = ["scaffold"]', "its policy refuses scaffold"),
        ("fedprox+median", 'refuse = ["median"]', "its policy refuses median"),
        ("ccvr", 'leaves = ["scalars", "models"]', "lets no statistics or counts leave"),
        ("fedavg", 'leaves = ["models"]', "lets no scalars leave"),
    ],
)
def test_a_method_that_the_policy_forbids_starts_without_the_node(
    policy_file, caplog, method, text, reason
):
    with warnings_of_the_server(caplog) as log:
        run = run_with(policy_file(text), method).run
    assert run.clients == 6
    assert any(reason in message for message in log.messages)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('leaves = ["scalars", "statistics"]', "lets no models leave"),
        ('refuse = ["task"]', "refuses task"),
        (
            "limits.steps = 1",
            "settings.epochs: its policy allows 1 steps in one run (got 2, after 0)",
        ),
        ("limits.samples = 13", "allows 13 samples in one run (got 16, after 0)"),
    ],
)
def test_a_round_that_the_policy_forbids_goes_on_without_the_node(policy_file, text, reason):
    strategy = run_with(policy_file(text))
    assert [list(row["rejected"]) for row in strategy.run.metrics] == [["3"]] * 2
    assert reason in strategy.run.metrics[0]["rejected"]["3"]
    assert all("rejected" not in row for row in run_with(policy_file("")).run.metrics)


def test_personal_models_are_tuned_within_the_limit_of_steps(policy_file):
    path = policy_file("limits.steps = 4")  # as many as two rounds of training take
    grid = run_with(path, "fedbabu:epochs=3", evaluate_every=2).grid
    refused = {name: refusal_of(reply) for name, _, reply in grid.of_kind("evaluate.unskew")}
    assert "allows 4 steps in one run (got 6, after 4)" in refused.pop("3")
    assert set(refused.values()) == {None}


def test_a_run_has_no_more_messages_than_the_policy_allows(policy_file, tmp_path):
    for state in (None, tmp_path / "state"):
        grid = run_with(policy_file("limits.messages = 2"), rounds=3, state=state).grid
        refused = [refusal_of(reply) for name, _, reply in grid.of_kind("train.unskew")
                   if name == "3"]  # fmt: skip
        assert refused[0] is None
        assert all("its policy allows 2 messages in one run" in why for why in refused[1:])


@pytest.mark.parametrize(("text", "trained"), [("steps = 5", 2), ("samples = 40", 2)])
def test_the_work_of_a_run_is_limited_on_the_node(policy_file, tmp_path, text, trained):
    for state in (None, tmp_path / "state"):
        grid = run_with(policy_file(f"limits.{text}"), rounds=4, state=state).grid
        refused = [refusal_of(reply) for name, _, reply in grid.of_kind("train.unskew")
                   if name == "3"]  # fmt: skip
        assert refused[:trained] == [None] * trained
        assert all("settings.epochs: its policy allows" in why for why in refused[trained:])
    grid.forget("3")  # its new process counts on
    exchange = next(each for each in grid.of_kind("train.unskew") if each[0] == "3")
    assert "in one run" in reason_in(repeat(grid, exchange))


def test_refused_messages_count_and_their_log_ends(policy_file, tmp_path):
    state = tmp_path / "state"
    grid = run_with(policy_file("limits.messages = 20"), state=state).grid
    exchange = next(each for each in grid.of_kind("train.unskew") if each[0] == "3")
    reasons = [reason_in(repeat(grid, exchange, stage_index=7)) for _ in range(30)]
    assert "stage_index" in reasons[0]
    assert all("allows 20 messages in one run" in why for why in reasons[17:])
    (count,) = (state / ".work").rglob("work.json")
    count.write_text(json.dumps({"messages": Limits().messages}))
    before = len(lines_of(state))
    assert "messages in one run" in reason_in(repeat(grid, exchange))
    assert "messages in one run" in reason_in(repeat(grid, exchange, round=-1))
    assert len(lines_of(state)) == before


def test_invented_runs_are_limited(policy_file, tmp_path):
    state = tmp_path / "state"
    grid = run_with(policy_file("limits.runs = 3"), "ditto", state=state).grid
    exchange = next(each for each in grid.of_kind("train.unskew") if each[0] == "3")
    reasons = [reason_in(repeat(grid, exchange, run=f"r{i}")) for i in range(9)]
    assert reasons[:2] == [None, None]
    assert all("run: its policy allows files of 3 runs" in why for why in reasons[2:])
    assert len(list(state.glob("[!.]*/3"))) == 3
    assert reason_in(repeat(grid, exchange)) is None
    shutil.rmtree(state / "r0")
    assert reason_in(repeat(grid, exchange, run="r9")) is None


def test_the_log_is_written_and_never_read(policy_file, tmp_path):
    state = tmp_path / "state"
    grid = run_with(policy_file("limits.messages = 4"), state=state).grid
    exchange = next(each for each in grid.of_kind("train.unskew") if each[0] == "3")
    (state / "sent.jsonl").unlink()
    reasons = [reason_in(repeat(grid, exchange)) for _ in range(3)]
    assert [why and why[-14:] for why in reasons] == [None, *["limits.messages"[-14:]] * 2]


@pytest.mark.parametrize("field", ["steps", "epochs"])
def test_an_absurd_number_of_steps_is_refused_at_once_by_default(field):
    grid = honest_run()
    name, message, _ = grid.of_kind("train.unskew")[0]
    plain = merged(plain_request(message), {"settings": {"epochs": None, field: 10**9}})
    reply, seconds = ask(grid, name, with_request(message, plain))
    assert f"settings.{field}: its policy allows 10000000 steps" in refusal_of(reply)
    assert seconds < 1


def test_a_batch_is_no_larger_than_the_nodes_samples():
    grid = honest_run()
    name, message, _ = grid.of_kind("train.unskew")[0]
    replies = []
    for size in (20, 10**9, 10**9 + 1):
        plain = merged(plain_request(message), {"settings": {"batch_size": size}})
        reply, seconds = ask(grid, name, with_request(message, plain))
        assert seconds < 1
        replies.append(reply)
    assert "settings.batch_size must be less" in refusal_of(replies[2])
    full, same = (each.content.array_records["arrays"]["model"].numpy() for each in replies[:2])
    np.testing.assert_array_equal(full, same)


def test_large_messages_and_tables_are_refused(tmp_path, policy_file):
    path = policy_file("limits.megabytes = 1")
    assert Policy.of(path).limits.megabytes == 1
    grid = run_with(path).grid
    name, message, _ = next(each for each in grid.of_kind("train.unskew") if each[0] == "3")
    large = grids.Array(np.zeros(300_000, np.float32))
    reply, _ = ask(grid, name, with_array(message, "model", large))
    assert "its policy allows messages of at most 1 MB" in refusal_of(reply)


def test_every_message_that_leaves_is_a_line_of_the_log(tmp_path, policy_file):
    grid = run_with(policy_file(""), "scaffold", state=tmp_path / "state", evaluate_every=2).grid
    lines = lines_of(tmp_path / "state")
    own = [line for line in lines if line["node"] == "3"]
    assert [line["kind"] for line in own] == ["info", "train", "train", "evaluate"]
    assert len(lines) == len(grid.log)
    first = own[1]
    (_, sent, reply), *_ = [each for each in grid.of_kind("train.unskew") if each[0] == "3"]
    arrays = reply.content.array_records["arrays"]
    assert first["run"] == plain_request(sent)["run"]
    assert (first["stage"], first["round"], first["epsilon"]) == ("task", 0, None)
    assert first["values"]["extra/scaffold/control"] == list(arrays["model"].shape)
    assert set(first["values"]) == {*arrays, *reply.content.metric_records["metrics"]}
    assert first["bytes"] > sum(len(array.data) for array in arrays.values())


def test_a_message_that_cannot_be_logged_does_not_leave(tmp_path, policy_file):
    (tmp_path / "state/sent.jsonl").mkdir(parents=True)
    with pytest.raises(UnskewError, match="quorum"):
        run_with(policy_file(""), state=tmp_path / "state", sites=tuple("0123456"))


def test_of_a_refusal_that_cannot_be_logged_only_that_leaves(tmp_path, policy_file):
    state, policy = tmp_path / "state", policy_file("")
    grid = run_with(policy, state=state).grid
    name, message, _ = next(each for each in grid.of_kind("train.unskew") if each[0] == "3")
    policy.write_text("limits.steps = 1")
    assert "its policy allows 1 steps" in refusal_of(ask(grid, name, message)[0])
    (state / "sent.jsonl").unlink()
    (state / "sent.jsonl").mkdir()
    refused = refusal_of(ask(grid, name, message)[0])
    assert refused == "it cannot log what it sends: Is a directory"


def test_refusals_are_logged_with_their_reason(tmp_path, policy_file):
    grid = run_with(policy_file(""), state=tmp_path / "state").grid
    name, message, _ = grid.of_kind("train.unskew")[0]
    asked = plain_request(message)
    ask(grid, name, with_request(message, {**asked, "round": -1}))
    line = lines_of(tmp_path / "state")[-1]
    assert "round must be greater" in line["reason"]
    assert (line["kind"], line["values"]) == ("refusal", {"reason": []})
    assert (line["run"], line["stage"], line["round"]) == (asked["run"], "task", None)


@pytest.mark.parametrize(
    ("changes", "run", "stage", "round_"),
    [
        ({"method": "fedprox"}, None, "task", 1),
        ({"round": 50}, None, "task", 50),
        ({"stage_index": 7}, None, None, 1),
        ({"settings": "x" * 200_000}, None, "task", 1),
        ({"run": "x" * 201, "round": True, "stage_index": [0]}, "", None, None),
    ],
)
def test_the_line_of_a_refusal_says_what_was_asked(tmp_path, changes, run, stage, round_):
    grid = run_with("", sites=(), state=tmp_path / "state").grid
    name, message, _ = grid.of_kind("train.unskew")[-1]
    asked = plain_request(message)
    first = {each: asked[each] for each in ("run", "stage_index", "round")}
    reply, _ = ask(grid, name, with_request(message, {**first, **asked, **changes}))
    line = lines_of(tmp_path / "state")[-1]
    assert line["reason"] == refusal_of(reply)
    where = (asked["run"] if run is None else run, stage, round_)
    assert (line["run"], line["stage"], line["round"]) == where


@pytest.mark.parametrize(
    ("options", "leaves", "reason"),
    [
        ({}, ["scalars", "models"], "lets no statistics leave"),
        ({}, ["scalars", "models", "statistics"], "lets no counts leave"),
        ({"prepare": "federated:epsilon=1", "columns": COLUMNS}, ["scalars", "models"],
         "lets no statistics"),
    ],
)  # fmt: skip
def test_statistics_of_tables_leave_only_if_the_policy_allows(tmp_path, options, leaves, reason):
    with pytest.raises(UnskewError, match=reason):
        run_on_nodes(tmp_path, app={"policy": {"leaves": leaves}}, **options)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("leave = []", "policy.toml: leave is not known; did you mean 'leaves'?"),
        ("limits.step = 5", "limits.step is not known; did you mean 'steps'?"),
        ("min_cell = 0", "min_cell must be greater than or equal to 1"),
        ('leaves = ["samples"]', "leaves.0 must be 'scalars', 'statistics', 'counts' or 'models'"),
        ('refuse = ["fedisk"]', "'fedisk' is neither a method"),
        ("limits.steps = 1.5", "limits.steps"),
        ('kinds = {age = "old"}', "kinds: columns: 'age' must be a kind"),
        ("leaves", "is not a TOML file"),
        (None, "cannot be read"),
    ],
)
def test_an_error_in_a_policy_names_the_key(tmp_path, policy_file, text, reason):
    path = tmp_path / "policy.toml" if text is None else policy_file(text)
    with pytest.raises(UnskewError) as error:
        grids.client_app(grids.MODEL, grids.seven_clients(), policy=path)
    assert reason in str(error.value)
    grid = run_with(path).grid
    refused = [refusal_of(reply) for name, _, reply in grid.of_kind("query.unskew") if name == "3"]
    assert reason in refused[0]


def test_the_site_decides_and_an_app_can_only_narrow():
    site = Policy.of({"leaves": ["scalars", "models"], "min_cell": 10, "refuse": ["ccvr"],
                      "limits": {"steps": 500_000}})  # fmt: skip
    app = Policy.of({"leaves": ["models", "counts"], "min_cell": 2, "limits": {"messages": 9}})
    both = site.narrowed(app)
    assert (both.leaves, both.min_cell, both.refuse) == (("models",), 10, ("ccvr",))
    assert (both.limits.steps, both.limits.messages) == (500_000, 9)
    with pytest.raises(UnskewError, match=r"differ in kinds\.age"):
        Policy.of({"kinds": {"age": "number"}}).narrowed(Policy.of({"kinds": {"age": "text"}}))


@pytest.mark.parametrize(
    ("method", "categories"),
    [
        ("fedavg", "scalars, models"),
        ("ccvr", "scalars, statistics, counts, models"),
        ("fedas", "scalars, models"),
        ("local", "scalars"),
        ("feddisk", "scalars, models"),
    ],
)
def test_the_categories_are_known_before_a_run(method, categories):
    assert preview_traffic(method).row["leaves"] == categories


PRIVATE = f"{QUICK['feddisk']},privacy=2/1e-3"


@pytest.mark.parametrize("method", ["scaffold", "fedper+feddisco", "local", PRIVATE])
def test_shapes_bytes_and_epsilon_are_known_before_a_run(tmp_path, method):
    if method == PRIVATE:
        pytest.importorskip("opacus")
    run_with("", method, sites=(), state=tmp_path / "state")
    sent = set()
    for line in lines_of(tmp_path / "state"):
        values = [f"{name} {shape}" if shape else name for name, shape in line["values"].items()]
        if line["kind"] == "train":
            sent.add((line["stage"], ", ".join(sorted(values)), line["bytes"]))
    rows = preview_messages(method, grids.seven_clients(), grids.MODEL)
    assert {(row["stage"], row["values and shapes"], row["bytes"]) for row in rows} == sent
    assert {row["epsilon of all rounds"] for row in rows} == (
        {"2", "-"} if method == PRIVATE else {"-"}
    )


def test_the_kind_of_a_column_is_the_sites(tmp_path):
    options = {"columns": "income=category"}
    with pytest.raises(UnskewError, match="the server says category, and its policy number"):
        run_on_nodes(tmp_path, app={"policy": {"kinds": {"income": "number"}}}, **options)
    run = run_on_nodes(tmp_path, app={"policy": {"kinds": {"income": "category"}}}, **options).run
    kinds = {each["name"]: each["kind"] for each in
             run.metadata["preprocessing"]["transform"]["columns"]}  # fmt: skip
    assert kinds["income"] == "category"


def test_rare_categories_of_the_sites_own_limit_stay_at_the_node(tmp_path):
    def sent(policy):
        grid = run_on_nodes(tmp_path, app={"policy": policy}).grid
        replies = [json.loads(reply.content.config_records["reply"]["json"])
                   for _, _, reply in grid.of_kind("query.unskew_prepare")]  # fmt: skip
        columns = [reply["columns"]["ward"] for reply in replies if "columns" in reply]
        return [each["counts"] for each in columns]

    assert min(min(counts.values()) for counts in sent({"min_cell": 1})) < 12
    kept = [number for counts in sent({"min_cell": 12}) for number in counts.values()]
    assert kept
    assert min(kept) >= 12
