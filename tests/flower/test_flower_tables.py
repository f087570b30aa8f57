"""Nodes with raw tables: the preprocessing precedes the first round and gives the same bits."""

import json
import logging
import re

import pytest
import torch

import unskew as us
from hospitals import HOSPITALS, hospital_rows, write_csv
from marks import long_after
from unskew.cli.flower_up import RoundPrinter
from unskew.errors import UnskewError
from unskew.flower.loopback.apps import read_app_config
from unskew.flower.loopback.parity import check_parity
from unskew.flower.scaffolding import write_app
from unskew.runs.read import read_run

grids = pytest.importorskip("grids")

from flwr.app import ConfigRecord  # noqa: E402
from node_tables import COLUMNS, run_on_nodes, simulate, tables  # noqa: E402


@pytest.mark.parametrize(
    ("prepare", "columns"),
    [
        ("federated", None),
        ("federated:scale=robust,points=20,max_categories=2", None),
        ("federated:categories=hashed,buckets=4", None),
        ("local", None),
        ("federated:epsilon=2", COLUMNS),
    ],
)
def test_nodes_and_a_simulation_give_the_same_bits(tmp_path, prepare, columns):
    nodes = run_on_nodes(tmp_path, prepare=prepare, columns=columns).run
    simulated = simulate(prepare=prepare, columns=columns)
    assert torch.equal(grids.vector_of(nodes.model), grids.vector_of(simulated.model))
    ours, theirs = (run.metadata["preprocessing"] for run in (nodes, simulated))
    assert ours["transform"] == theirs["transform"]
    assert [row["traffic"] for row in nodes.metrics] == [r["traffic"] for r in simulated.metrics]
    if prepare != "local":
        row = hospital_rows(1, seed=9)
        assert nodes.predictor.predict(row) == simulated.predictor.predict(row)


def test_texts_of_nodes_get_one_vocabulary(tmp_path):
    words = {"north": "fever", "south": "cough", "east": "pain", "west": "fever"}
    rows = [
        {"note": f"the {words[site]} is {how} today", "hospital": site, "outcome": str(y)}
        for site in HOSPITALS for y, how in enumerate(("gone", "back")) for _ in range(4)
    ]  # fmt: skip
    nodes = run_on_nodes(tmp_path, rows).run
    simulated = simulate(rows)
    assert nodes.network == "bilstm"
    vocabulary = nodes.metadata["preprocessing"]["transform"]["columns"][0]["words"]
    assert sorted(vocabulary[2:]) == ["cough", "fever", "is", "pain", "the", "today"]
    assert torch.equal(grids.vector_of(nodes.model), grids.vector_of(simulated.model))


def test_labels_that_are_numbers_at_one_node_only_are_names(tmp_path):
    rows = hospital_rows(120)
    for row in rows:
        if row["hospital"] == "east":
            row["outcome"] = "1"
    nodes = run_on_nodes(tmp_path, rows).run
    assert nodes.metadata["data"]["class_names"] == ["1", "died", "left"]
    assert torch.equal(grids.vector_of(nodes.model), grids.vector_of(simulate(rows).model))


def test_a_run_may_have_more_classes_than_its_nodes(tmp_path):
    run = run_on_nodes(tmp_path, classes=5, out=tmp_path / "run").run
    assert read_run(run.folder).metadata["data"]["class_names"] is None
    assert run.predictor.predict_proba(hospital_rows(1)).shape == (1, 5)


def test_a_common_test_of_raw_rows(tmp_path):
    tests = hospital_rows(40, seed=7)
    labels = [row["outcome"] for row in tests]
    nodes = run_on_nodes(tmp_path, common=(tests, labels), evaluate_every=1).run
    predicted = nodes.predictor.predict(tests)
    accuracy = sum(p == y for p, y in zip(predicted, labels, strict=True)) / len(labels)
    assert nodes.accuracy == pytest.approx(accuracy)


def test_local_tests_are_held_out_and_prepared(tmp_path):
    nodes = run_on_nodes(tmp_path, node={"holdout": 0.25}, evaluate_every=1).run
    assert 0 < nodes.last("local") <= 1


def test_only_the_messages_of_the_preprocessing_precede_the_first_round(tmp_path):
    grid = run_on_nodes(tmp_path).grid
    kinds = [kind for name, kind, *_ in grid.log if name == "north"]
    assert kinds == ["query.unskew", *["query.unskew_prepare"] * 3, *["train.unskew"] * 2]
    private = run_on_nodes(tmp_path, prepare="federated:epsilon=1", columns=COLUMNS).grid
    sent = [reply for name, _, reply in private.of_kind("query.unskew_prepare") if name == "north"]
    assert len(sent) == 2
    summary = json.loads(sent[0].content.config_records["reply"]["json"])["columns"]
    assert {name: sorted(part) for name, part in summary.items()} == {
        "age": ["count", "squares", "sum"], "income": ["count", "squares", "sum"],
        "pressure": ["count", "squares", "sum"], "ward": [], "smokes": [],
        "admitted": ["count", "squares", "sum"],
    }  # fmt: skip


def test_secret_noise_differs_from_run_to_run_and_is_released_once(tmp_path):
    options = {"prepare": "federated:epsilon=1", "columns": COLUMNS, "noise": "secret"}
    first, second = (run_on_nodes(tmp_path, state=tmp_path / name, **options) for name in "ab")
    transforms = [each.run.metadata["preprocessing"]["transform"] for each in (first, second)]
    assert transforms[0] != transforms[1]
    (message, reply), *_ = [
        (sent, reply) for name, sent, reply in first.grid.of_kind("query.unskew_prepare")
        if name == "north"
    ]  # fmt: skip
    node = next(n for n in first.grid.contexts if first.grid.name_of(n) == "north")
    again = first.grid.app(message, first.grid.contexts[node])
    records = [each.content.config_records["reply"]["json"] for each in (reply, again)]
    assert records[0] == records[1]
    request = json.loads(message.content.config_records["request"]["json"])
    for asked, reason in (
        (
            ["number", 0.0, 60.0, None],
            "its privacy budget for these samples is 1, of which epsilon 0 is left",
        ),
        (["number", 0.0, None, None], "has no range"),
        (["text", None, None, None], "is text"),
    ):
        changed = {**request, "schema": {**request["schema"], "age": asked}}
        message.content["request"] = ConfigRecord({"json": json.dumps(changed)})
        refused = first.grid.app(message, first.grid.contexts[node])
        assert reason in refused.content.config_records["refusal"]["reason"]
    changed = {**request, "step": "describe"}
    message.content["request"] = ConfigRecord({"json": json.dumps(changed)})
    refused = first.grid.app(message, first.grid.contexts[node])
    assert "does not describe" in refused.content.config_records["refusal"]["reason"]


def test_a_node_takes_part_only_in_the_preprocessing_it_agreed_to(tmp_path):
    with pytest.raises(UnskewError, match=r"it prepares its table by federated:epsilon=1.0, but"):
        run_on_nodes(tmp_path, node={"prepare": "federated:epsilon=1"}, columns=COLUMNS)
    for prepare in ("pooled", "none"):
        with pytest.raises(UnskewError, match=f"prepare: {prepare} is not possible on nodes"):
            grids.Strategy(prepare=prepare)


def in_west(rows, **changes):
    """Change columns of the rows of one hospital; ``None`` leaves a column out."""
    changed = []
    for row in rows:
        given = {name: change(row[name]) for name, change in changes.items() if change is not None}
        whole = row | given if row["hospital"] == "west" else row
        changed.append({n: c for n, c in whole.items() if changes.get(n, 1) or row is whole})
    return changed


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"age": lambda cell: "old" if cell == "70" else cell},
         r"column 'age': \d+ of \d+ cells are not numbers: row \d+ looks like 'a'"),
        ({"income": lambda cell: "inf"}, r"column 'income': .* is infinite or beyond 1e\+100"),
        ({"admitted": lambda cell: "31.1.2024"},
         r"column 'admitted': .* cells are not dates: row 1 looks like '9\.9\.9'"),
        ({"income": lambda cell: cell.replace(".", ",")},
         r"column 'income': holds numbers with decimal commas, such as '9,9': write 12\.5"),
        ({"ward": lambda cell: "many words of a long note"},
         r"column 'ward': holds texts, and as category its values would leave"),
        ({"smokes": lambda cell: "perhaps"}, r"column 'smokes': .* cells are not booleans"),
    ],
)  # fmt: skip
def test_a_node_with_other_cells_is_left_out_by_name(tmp_path, caplog, changes, reason):
    rows = in_west(hospital_rows(200, blank=0), **changes)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        nodes = run_on_nodes(tmp_path, rows).run
    assert nodes.clients == 3
    (warning,) = (each.message for each in caplog.records if "without this node" in each.message)
    assert re.search(f"without this node: west: {reason}", warning)
    others = [row for row in rows if row["hospital"] != "west"]
    assert torch.equal(grids.vector_of(nodes.model), grids.vector_of(simulate(others).model))


def test_no_values_of_a_number_leave_although_the_server_takes_it_for_a_category(tmp_path):
    for said in ("income=category", "income=text"):
        with pytest.raises(UnskewError, match=r"holds numbers, and as .* its values would leave"):
            run_on_nodes(tmp_path, columns=said, node={"features": ["income"]})


def test_a_node_refuses_to_send_ids(tmp_path):
    rows = [{**row, "patient": f"p{k}"} for k, row in enumerate(hospital_rows(200))]
    with pytest.raises(UnskewError, match=r"column 'patient': has .* leave the columns out"):
        run_on_nodes(tmp_path, rows)
    fed = us.Federation.from_table(rows, label="outcome", client="hospital")
    assert [error.subject for error in us.check(fed).errors] == ["column 'patient'"]
    with pytest.raises(UnskewError, match="'patient': has 200 different values, such as"):
        us.train(fed, rounds=1, progress=False)
    known = {"label": "outcome", "client": "hospital", "columns": {"patient": "category"}}
    assert us.check(us.Federation.from_table(rows, **known)).ok


def test_nodes_that_all_have_one_value_have_nothing_to_learn(tmp_path):
    rows = [row | {"outcome": "left"} for row in hospital_rows(200)]
    with pytest.raises(UnskewError, match="target: has the same value in all training samples"):
        run_on_nodes(tmp_path, rows)


def changed(step, change):
    """Change the reply of the node ``west`` to one step of the preprocessing."""
    steps = []

    def spoil(name, kind, reply):
        if (name, kind) != ("west", "query.unskew_prepare"):
            return reply
        steps.append(name)
        if len(steps) == step:
            record = reply.content.config_records["reply"]
            reply.content["reply"] = ConfigRecord({"json": change(json.loads(record["json"]))})
        return reply

    return spoil


def with_column(column, **fields):
    def change(message):
        columns = message.get("columns", message)
        columns[column] = {**columns[column], **fields}
        return json.dumps(message)

    return change


@pytest.mark.parametrize(
    ("step", "change"),
    long_after(
        6,
        [
            (1, lambda message: "{"),
            (1, with_column("age", numbers=-1)),
            (2, with_column("age", mean=float("nan"))),
            (2, with_column("ward", counts={"x": 1})),
            (2, lambda message: json.dumps({**message, "labels": []})),
            (3, lambda message: "x"),
            (1, lambda message: "[]"),
            (1, lambda message: json.dumps({"age": message["age"]})),
            (1, with_column("age", present=10**9)),
            (1, with_column("age", more=1)),
            (2, with_column("age", mean=1e200)),
            (2, with_column("age", squares=-1.0)),
            (2, with_column("age", count=3)),
            (2, with_column("ward", counts={"x": "1"})),
            (2, lambda message: json.dumps({**message, "labels": [1.5]})),
            (2, lambda message: json.dumps({"columns": {}, "labels": ["died"]})),
        ],
    ),
)
def test_a_node_that_sends_something_wrong_drops_out_alone(tmp_path, step, change):
    nodes = run_on_nodes(tmp_path, spoil=changed(step, change)).run
    rows = [row for row in hospital_rows(200) if row["hospital"] != "west"]
    assert nodes.clients == 3
    assert "rejected" not in nodes.metrics[0]
    if step < 3:
        expected = simulate(rows)
        assert torch.equal(grids.vector_of(nodes.model), grids.vector_of(expected.model))


def test_a_resumed_run_keeps_its_preprocessing(tmp_path):
    out = {"out": tmp_path / "run", "state": tmp_path / "states"}
    run_on_nodes(tmp_path, **out)
    longer = run_on_nodes(tmp_path, **out, resume=True, rounds=4)
    steps = [
        json.loads(message.content.config_records["request"]["json"])["step"]
        for name, message, _ in longer.grid.of_kind("query.unskew_prepare") if name == "north"
    ]  # fmt: skip
    assert steps == ["apply"]
    whole = run_on_nodes(tmp_path, rounds=4).run
    assert torch.equal(grids.vector_of(longer.run.model), grids.vector_of(whole.model))
    with pytest.raises(UnskewError, match="the run was prepared by federated"):
        run_on_nodes(tmp_path, **out, resume=True, prepare="local")


@pytest.mark.parametrize(
    ("name", "content", "field"),
    [
        ("nodes.json", "[]", "list"),
        ("nodes.json", '{"run": 1, "nodes": {}}', "run must be a valid string"),
        ("nodes.json", '{"run": "1", "nodes": {"west": {}}}', "nodes.west: its report has no name"),
        ("nodes.json", '{"run": "1", "nodes": {}, "keys": {"west": []}}', "keys.west"),
        ("preprocessing.json", "{}", "preprocessing: it is damaged"),
        ("preprocessing.json", "7", "int"),
    ],
)
def test_files_of_another_kind_are_one_line(tmp_path, name, content, field):
    out = {"out": tmp_path / "run", "state": tmp_path / "states"}
    run_on_nodes(tmp_path, **out, rounds=1)
    (file,) = (tmp_path / "run").glob(f"*{name}")
    file.write_text(content)
    with pytest.raises(UnskewError, match=rf"^[^\n]*{name}: is [^\n]*{field}[^\n]*$"):
        run_on_nodes(tmp_path, **out, resume=True)


def test_the_preview_lists_what_nodes_send(tmp_path):
    from unskew.flower.preprocessing_preview import preview_preprocessing

    for prepare, columns in (("federated:scale=robust", None), ("federated:epsilon=1", COLUMNS)):
        grid = run_on_nodes(tmp_path, prepare=prepare, columns=columns).grid
        listed = {
            (row["step"], row["kind of column"]): row["sent up by every node"]
            for row in preview_preprocessing(prepare)
        }
        kinds = {"age": "number", "ward": "category", "smokes": "boolean", "admitted": "date"}
        for name, message, reply in grid.of_kind("query.unskew_prepare"):
            step = json.loads(message.content.config_records["request"]["json"])["step"]
            sent = json.loads(reply.content.config_records["reply"]["json"])
            if step == "apply" or name != "east":
                continue
            columns_sent = sent.get("columns", sent)
            for column, kind in kinds.items():
                found = listed[step, "every kind" if step == "describe" else kind]
                assert ", ".join(columns_sent[column]) == found.removeprefix("-")
    with pytest.raises(UnskewError, match="pooled is not possible on nodes"):
        preview_preprocessing("pooled")


def test_false_statistics_of_one_node_hardly_change_the_accuracy(tmp_path):
    tests = hospital_rows(200, seed=7)
    common = (tests, [row["outcome"] for row in tests])
    options = {"common": common, "rounds": 10, "evaluate_every": 10, "epochs": 2}
    honest = run_on_nodes(tmp_path, **options).run
    lie = with_column("age", mean=1e90, squares=1e190)
    spoilt = run_on_nodes(tmp_path, spoil=changed(2, lie), **options).run
    assert spoilt.clients == 4
    assert spoilt.accuracy > honest.accuracy - 0.05


def test_a_node_with_other_columns_learns_which(tmp_path, caplog):
    rows = hospital_rows(120)
    files = tables(tmp_path, rows)
    own = [row | {"alter": row["age"]} for row in rows if row["hospital"] == "west"]
    for row in own:
        del row["age"], row["hospital"]
    write_csv(files["west"], own)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        nodes = run_on_nodes(tmp_path, rows, files=files).run
    assert nodes.clients == 3
    assert "west: its columns are not those of most nodes: it lacks age; it also has alter" in (
        caplog.text
    )


def test_a_node_whose_texts_are_too_few_sends_no_word(tmp_path, caplog):
    rows = [
        {"note": f"the fever is back in case {site}", "hospital": site, "outcome": str(k % 2)}
        for site in HOSPITALS for k in range(2 if site == "west" else 6)
    ]  # fmt: skip
    with caplog.at_level(logging.WARNING, logger="flwr"):
        nodes = run_on_nodes(tmp_path, rows).run
    assert nodes.clients == 4
    assert "west: no value of column 'note' is in enough of its rows to leave it" in caplog.text
    few = [row for row in rows if row["hospital"] == "west"]
    few += [{**row, "hospital": site} for row in few for site in HOSPITALS[:3]]
    with pytest.raises(UnskewError, match="'note': no client has a word in enough of its texts"):
        run_on_nodes(tmp_path / "few", few)


def test_a_node_that_spells_its_labels_otherwise_is_left_out(tmp_path, caplog, capsys):
    rows = hospital_rows(200, blank=0)
    for row in rows:
        if row["hospital"] == "west":
            row["outcome"] = row["outcome"].upper()
    with caplog.at_level(logging.WARNING, logger="flwr"):
        nodes = run_on_nodes(tmp_path, rows, out=tmp_path / "run").run
    assert (nodes.clients, nodes.metadata["data"]["class_names"]) == (3, ["died", "left"])
    RoundPrinter(tmp_path / "run").print_new()  # as unskew flower up shows it
    assert "without node west: its label 'DIED'" in capsys.readouterr().out
    assert "west: its label 'DIED' is spelled 'died' by most" in caplog.text
    found = us.check(us.Federation.from_table(rows, label="outcome", client="hospital"))
    assert "client 'west'" in [warning.subject for warning in found.warnings]


def test_means_over_nodes_say_that_one_has_left(tmp_path):
    from unskew.runs.remarks import remarks_on

    rounds = []

    def gone(name, kind, reply):
        rounds.append(kind == "evaluate.unskew" and name == "west")
        return None if rounds[-1] and sum(rounds) > 1 else reply

    options = {"node": {"holdout": 0.25}, "evaluate_every": 1, "rounds": 3}
    run = run_on_nodes(tmp_path, spoil=gone, **options).run
    assert [row.get("not_evaluated", []) for row in run.metrics] == [[], ["west"], ["west"]]
    assert "means over clients are without west in 2 evaluations" in remarks_on(run.metrics)


def asked_again(grid, step, **changes):
    """Send north a request of a finished run with other content; return the reply or refusal."""
    message = next(
        sent for name, sent, _ in grid.of_kind("query.unskew_prepare")
        if name == "north"
        and json.loads(sent.content.config_records["request"]["json"])["step"] == step
    )  # fmt: skip
    node = next(n for n in grid.contexts if grid.name_of(n) == "north")
    request = json.loads(message.content.config_records["request"]["json"]) | changes
    message.content["request"] = ConfigRecord({"json": json.dumps(request)})
    records = grid.app(message, grid.contexts[node]).content.config_records
    return records["refusal"]["reason"] if "refusal" in records else records["reply"]["json"]


def test_means_within_many_ranges_do_not_spell_out_the_values(tmp_path):
    grid = run_on_nodes(tmp_path, state=tmp_path / "state").grid
    replies = [
        asked_again(grid, "summarise", run=f"run{k}",
                    schema={"income": ["number", 1000.0 * k, 1000.0 * k + 1, None]})
        for k in range(40, 50)
    ]  # fmt: skip
    assert sum("mean" in reply for reply in replies) == 2  # the run itself has asked for no range
    assert "it has answered 3 ranges of this column" in replies[-1]
    site = {"policy": {"kinds": {"age": "0..120"}}}
    grid = run_on_nodes(tmp_path, state=tmp_path / "other", app=site).grid
    narrow = asked_again(grid, "summarise", schema={"age": ["number", 60.0, 61.0, None]})
    assert "the server says number 60..61, and its policy number 0..120" in narrow


def test_a_transformation_cannot_take_a_number_for_a_category(tmp_path):
    grid = run_on_nodes(tmp_path).grid
    columns = [{"name": "income", "kind": "category", "levels": ["52000.5"]}]
    fitted = {"transform": {"columns": columns}, "classes": ["died", "left"]}
    assert "as category its values would leave" in asked_again(grid, "apply", fitted=fitted)


def test_invented_labels_are_refused(tmp_path):
    invented = [f"label {k}" for k in range(20_000)]
    change = changed(2, lambda message: json.dumps({**message, "labels": invented}))
    nodes = run_on_nodes(tmp_path, spoil=change).run
    assert nodes.metadata["data"]["class_names"] == ["died", "left"]


def test_a_run_on_tables_of_the_nodes_is_not_compared_with_other_samples(tmp_path):
    app = tmp_path / "app"
    write_app(app, method="fedavg", data="digits", clients=4, rounds=2)
    run_on_nodes(tmp_path / "tables", out=tmp_path / "run")
    with pytest.raises(UnskewError, match=r"--check-parity: .* \(NodeTable\), .*run without it"):
        check_parity(app, read_app_config(app), tmp_path / "run")
