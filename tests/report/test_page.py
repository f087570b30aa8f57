"""The page of a comparison contains everything, and no input can break it."""

import html
import json
import re
from html.parser import HTMLParser

import pytest
from jinja2 import UndefinedError
from torch import nn

import unskew as us
from reports import RUNS, made_run, trained_runs
from unskew.errors import UnskewError
from unskew.report.first_screen import describe
from unskew.report.page import write_page
from unskew.report.templating import template_environment
from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.stats.waves import Waves
from unskew.utils.tables import Table


class Reader(HTMLParser):
    """Records all tags, the texts of cells, and tags that are closed in the wrong order."""

    def __init__(self):
        super().__init__()
        self.tags, self.open, self.cells, self.wrong, self.figures = [], [], [], [], []
        self.data = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "figure":
            self.figures.append(dict(attrs)["id"])
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th", "h1", "code"):
            self.cells.append(data)
        if self.open and self.open[-1] == "script" and not self.data:
            self.data = data

    @property
    def charts(self):
        return {chart["name"]: chart for chart in json.loads(self.data)["charts"]}


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    assert reader.wrong == []
    assert reader.open == []
    return reader


def page_of(tmp_path, runs=RUNS, **options) -> str:
    path = write_page(tmp_path / "new" / "page.html", runs, **options)
    assert path == tmp_path / "new" / "page.html"
    return path.read_text(encoding="utf-8")


def test_the_page_has_verdict_table_charts_and_command(tmp_path):
    page = page_of(tmp_path, target=0.5, command="unskew compare --data digits")
    reader = read(page)
    table = RUNS.table(0.5)
    assert set(table.columns) < set(reader.cells)
    assert set(table.rows[0]) | set(table.rows[1]) < set(reader.cells)
    assert "unskew compare --data digits" in reader.cells
    assert "All methods have the accuracy of fedavg with every seed." in page
    assert str(RUNS.verdict()) in html.unescape(page)
    assert reader.figures == ["verdict", "global-accuracy", "worst-accuracy", "test-loss",
                              "train-loss", "cost-to-target"]  # fmt: skip


def test_a_real_comparison_has_every_chart(tmp_path):
    reader = read(page_of(tmp_path, trained_runs(), embedding=True))
    expected = {
        "verdict", "global-accuracy", "worst-accuracy", "test-loss", "train-loss", "clients-local",
        "cost-to-target", "data-distribution", "aggregation-weights", "embedding",
    }  # fmt: skip
    assert set(reader.figures) == expected
    assert set(reader.charts) == expected


def test_the_skew_is_shown(tmp_path):
    runs = trained_runs()
    page = page_of(tmp_path, runs)
    skew = runs[0].metadata["data"]["diagnosis"]["label_skew"]
    assert f'<div class="big">{skew:.2f}' in page
    assert f"width:{100 * skew:.1f}%" in page


def test_the_page_is_self_contained(tmp_path):
    page = page_of(tmp_path, trained_runs())
    assert not re.search(r'(?:src|href)\s*=\s*"(?!#)(?!data:)', page)
    assert "@import" not in page
    assert "url(" not in page
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert len(page) < 1_000_000


def test_names_are_escaped(tmp_path):
    markup = "</script><script>alert('&\"')</script>"
    runs = Runs([made_run(markup, data="<b>data</b> & more")])
    page = page_of(tmp_path, runs, command=f"unskew compare --data '{markup}'")
    reader = read(page)
    assert reader.tags.count("script") == 2
    assert "b" not in reader.tags
    assert markup in reader.cells
    assert reader.cells[0] == "<b>data</b> & more"
    assert f"unskew compare --data '{markup}'" in reader.cells
    assert json.loads(reader.data)["methods"] == [markup]


def test_braces_and_dollars_are_kept(tmp_path):
    name = "a{title}$b$_{c}%"
    assert name in read(page_of(tmp_path, Runs([made_run(name)]))).cells


def test_html_table_escapes_its_cells_and_marks_the_leader():
    call = '{% from "table.html.j2" import html_table %}{{ html_table(table, "x") }}'
    template = template_environment().from_string(call)
    html = template.render(table=Table(["a<b", "c"], [["&", "<i>"], ["x", "y"]]))
    assert html.replace("\n", "") == (
        "<table><thead><tr><th>a&lt;b</th><th>c</th></tr></thead><tbody>"
        '<tr><td data-method="&amp;">&amp;</td><td>&lt;i&gt;</td></tr>'
        '<tr class="leads"><td data-method="x">x</td><td>y</td></tr></tbody></table>'
    )


def test_an_undefined_name_in_a_template_is_an_error():
    with pytest.raises(UndefinedError):
        template_environment().from_string("{{ missing }}").render()


def test_data_of_a_page_cannot_end_its_script_and_has_no_nan():
    template = template_environment().from_string("{{ data | tojson }}")
    assert "<" not in template.render(data={"a": "</script><!--"})
    with pytest.raises(ValueError, match="JSON"):
        template.render(data=float("nan"))


@pytest.mark.parametrize(
    ("options", "figures"),
    [
        (
            {"accuracies": (None, None)},
            ["local-accuracy", "worst-accuracy", "test-loss", "train-loss", "cost-to-target"],
        ),
        ({"accuracies": (None, None), "local": False}, ["train-loss"]),
        (
            {"accuracies": (0.1, 0.2), "local": False},
            ["global-accuracy", "test-loss", "train-loss", "cost-to-target"],
        ),
    ],
)
def test_metrics_that_were_not_measured_have_no_chart(tmp_path, options, figures):
    assert read(page_of(tmp_path, Runs([made_run(**options)]))).figures == figures


def test_runs_judged_by_loss_have_a_page(tmp_path):
    runs = Runs(made_run(m, s, metric="loss") for m in ("a", "b") for s in (0, 1))
    reader = read(page_of(tmp_path, runs))
    assert reader.figures == [
        "verdict",
        "global-loss",
        "worst-loss",
        "train-loss",
        "cost-to-target",
    ]
    assert not reader.charts["global-loss"]["data"]["share"]


def test_a_diverged_run_does_not_break_the_page(tmp_path):
    run = made_run("diverged")
    for row in run.metrics:
        row["train_loss"], row["global"]["accuracy"] = None, None
    reader = read(page_of(tmp_path, Runs([made_run(), run])))
    (series,) = reader.charts["global-accuracy"]["data"]["series"]
    assert series["method"] == "fedavg"


def test_a_page_without_rounds_is_an_error(tmp_path):
    with pytest.raises(UnskewError, match="no round is finished yet"):
        write_page(tmp_path / "page.html", Runs([Run("fedavg", "mlp", "digits", 0, 4)]))
    (tmp_path / "file").write_text("")
    with pytest.raises(UnskewError, match="cannot be written"):
        write_page(tmp_path / "file" / "page.html", RUNS)


def test_the_description_is_one_sentence():
    assert describe(RUNS) == "2 methods, 2 seeds; mlp on 4 clients; 2 rounds"
    assert describe(trained_runs()) == (
        "2 methods, 2 seeds; logistic on 6 clients, 3 per round; 2 rounds; "
        "1 epoch of sgd per round, lr 0.05"
    )


def test_the_python_code_judges_as_the_comparison_did():
    from unskew.report.reproduce import python_text

    runs = Runs([made_run(seed=seed) for seed in range(5)], final="last", margin=2.0)
    text = python_text(runs)
    assert "seeds=[0, 1, 2, 3, 4]" in text
    assert "final='last', margin=2.0" in text
    assert "level='personal'" in python_text(Runs(list(runs), level="personal"))
    text = python_text(Runs(list(runs), waves=Waves((3, 5), best=True)))
    assert "seeds=3, " in text
    assert "decide={'max_seeds': 5, 'best': True}" in text


def test_the_code_of_a_page_repeats_the_runs(tmp_path):
    """Given the federation, which a reader of the page has to supply."""
    from reports import FEDERATION
    from unskew.report.reproduce import python_text

    text = python_text(trained_runs())
    names = {"your_federation": FEDERATION}
    exec(text, names)
    assert str(names["runs"].table()) == str(trained_runs().table())


def test_the_code_of_a_page_loads_the_same_samples():
    from unskew.report.reproduce import python_text

    def federation(seed):
        return us.load("digits", "iid", 3, seed, holdout=0.4, common="union", samples=100)

    runs = us.compare(federation, ["fedavg"], seeds=1, model="logistic", rounds=1)
    names = {}
    exec(python_text(runs), names)
    assert names["federation"](0).fingerprint == federation(0).fingerprint
    assert str(names["runs"].table()) == str(runs.table())


def test_the_code_of_a_page_partitions_once_if_the_runs_share_a_partition():
    from unskew.report.reproduce import python_text

    federation = us.load("digits", "dirichlet:alpha=0.1", 5, seed=3)
    runs = us.compare(federation, ["fedavg", "mean"], seeds=2, model="logistic", rounds=2)
    names = {}
    exec(python_text(runs), names)
    assert names["federation"].fingerprint == federation.fingerprint
    assert str(names["runs"].table()) == str(runs.table())


def test_the_code_of_a_page_has_placeholders_for_custom_objects():
    from reports import FEDERATION
    from unskew.report.reproduce import python_text

    class Mine(us.ClientSide):
        pass

    network = nn.Linear(5, 3)
    runs = us.compare(FEDERATION, [Mine(), "mean"], seeds=2, model=network, rounds=1)
    names = {"your_federation": FEDERATION, "your_network": network, "your_method_mine": Mine()}
    exec(python_text(runs), names)
    assert str(names["runs"].table()) == str(runs.table())


def test_a_sample_of_a_source_has_no_code():
    from unskew.experiments.studies.case_data import open_case_data
    from unskew.experiments.studies.study import StudyData
    from unskew.report.reproduce import python_text

    subsampled = open_case_data(
        StudyData(name="digits", skew="iid", clients=3, samples=100), seed=0
    )
    runs = us.compare(subsampled, ["fedavg"], seeds=1, model="logistic", rounds=1)
    assert python_text(runs) is None


def test_the_same_runs_give_the_same_page(tmp_path):
    assert page_of(tmp_path, trained_runs()) == page_of(tmp_path, trained_runs())


def test_runs_with_other_settings_have_no_common_recipe():
    from reports import FEDERATION
    from unskew.report.reproduce import python_text

    rates = enumerate((0.1, 0.2))
    runs = [us.train(FEDERATION, model="logistic", seed=n, lr=lr, rounds=1) for n, lr in rates]
    assert python_text(Runs(runs)) is None
    assert "lr=0.2" in python_text(Runs(runs[1:]))
