"""The page about a comparison holds everything, and nothing of it can break the page."""

import re
from html.parser import HTMLParser

import pytest

from toys import small_federation
from unskew.report.curves import draw_curves, to_svg
from unskew.report.page import html_table, write_page
from unskew.report.table import Table
from unskew.runs.run import Run
from unskew.runs.runs import Runs


def made_run(method="fedavg", seed=0, data="digits", accuracies=(0.3, 0.5), local=True):
    run = Run(method, "mlp", data, seed, 4)
    traffic = {"parameters_up": 1, "parameters_down": 1, "bytes_up": 4, "bytes_down": 4}
    for i, accuracy in enumerate(accuracies, 1):
        row = {"stage": "task", "round": i, "train_loss": 1 / i, "traffic": traffic}
        if accuracy is not None:
            row["global"] = {"accuracy": accuracy, "loss": 1.0}
        if local:
            row["local"] = row["personal"] = {"accuracy": 0.4, "min": 0.2, "loss": 1.0}
        run.metrics.append(row)
    return run


RUNS = Runs([made_run(method, seed) for method in ("fedavg", "mean") for seed in (0, 1)])


class Reader(HTMLParser):
    """Notes every tag, what stands in cells, and tags that are closed before they are opened."""

    def __init__(self):
        super().__init__()
        self.tags, self.open, self.cells, self.wrong = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th", "h1", "code"):
            self.cells.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    assert reader.wrong == []
    assert reader.open == []
    return reader


def page_of(tmp_path, runs=RUNS, **options) -> str:
    path = write_page(
        tmp_path / "new" / "page.html", runs, **({"command": "unskew compare"} | options)
    )
    assert path == tmp_path / "new" / "page.html"
    return path.read_text(encoding="utf-8")


def test_the_page_holds_table_curves_and_command(tmp_path):
    page = page_of(tmp_path, target=0.5, command="unskew compare --data digits")
    reader = read(page)
    assert reader.tags.count("table") == 1
    assert reader.tags.count("svg") == 1
    table = RUNS.table(0.5)
    assert [*table.columns, *table.rows[0], *table.rows[1]] == reader.cells[1:-1]
    assert reader.cells[0] == "digits, 4 clients, mlp, 2 rounds, 2 seeds"
    assert reader.cells[-1] == "unskew compare --data digits"


def test_who_holds_what_is_drawn_when_the_data_is_given(tmp_path):
    page = page_of(tmp_path, federation=small_federation())
    assert "Who holds what" in page
    assert read(page).tags.count("svg") == 2


def test_the_page_needs_nothing_from_elsewhere(tmp_path):
    page = page_of(tmp_path, federation=small_federation())
    assert not re.search(r'(?:src|href)="(?!#)(?!data:)', page)
    assert "<script" not in page
    assert "@import" not in page


def test_names_are_escaped(tmp_path):
    nasty = "<script>alert('&\"')</script>"
    runs = Runs([made_run(nasty, data="<b>data</b> & more")])
    page = page_of(tmp_path, runs, command=f"unskew compare --data '{nasty}'")
    reader = read(page)
    assert "script" not in reader.tags
    assert "b" not in reader.tags
    assert nasty in reader.cells
    assert reader.cells[0].startswith("<b>data</b> & more, 4 clients")
    assert reader.cells[-1] == f"unskew compare --data '{nasty}'"


def test_braces_and_dollars_stay_as_they_are(tmp_path):
    odd = "a{title}$b$_{c}%"
    assert odd in read(page_of(tmp_path, Runs([made_run(odd)]))).cells


def test_html_table_escapes_its_cells():
    html = html_table(Table(["a<b", "c"], [["&", "<i>"]]))
    assert html == (
        "<table><thead><tr><th>a&lt;b</th><th>c</th></tr></thead>"
        "<tbody><tr><td>&amp;</td><td>&lt;i&gt;</td></tr></tbody></table>"
    )


def test_every_method_has_a_line_in_every_panel():
    figure = draw_curves(RUNS)
    for axes in figure.axes:
        lines = [line for line in axes.get_lines() if len(line.get_xdata()) == 2]
        assert [line.get_label() for line in lines] == ["fedavg", "mean"]
    assert figure.axes[0].get_lines()[0].get_ydata().tolist() == [0.3, 0.5]
    assert figure.axes[1].get_lines()[0].get_ydata().tolist() == [0.2, 0.2]


def test_lines_are_means_over_seeds_of_the_rounds_all_have():
    runs = Runs(
        [made_run(seed=0, accuracies=(0.2, 0.4, 0.9)), made_run(seed=1, accuracies=(0.4, 0.6))]
    )
    line = draw_curves(runs).axes[0].get_lines()[0]
    assert list(line.get_xdata()) == [1, 2]
    assert line.get_ydata().tolist() == pytest.approx([0.3, 0.5])


@pytest.mark.parametrize(
    "options",
    [
        {"accuracies": (None, None)},
        {"accuracies": (None, None), "local": False},
        {"accuracies": (0.1, 0.2), "local": False},
    ],
)
def test_what_was_not_measured_leaves_its_panel_empty(tmp_path, options):
    page = page_of(tmp_path, Runs([made_run(**options)]))
    assert read(page).tags.count("svg") == 1


def test_a_round_without_any_good_client_leaves_a_gap():
    run = made_run()
    run.metrics[0]["train_loss"] = None
    line = draw_curves(Runs([run])).axes[2].get_lines()[0]
    assert str(line.get_ydata().tolist()) == "[nan, 0.5]"


def test_svg_is_one_element():
    svg = to_svg(draw_curves(RUNS))
    assert svg.startswith("<svg")
    assert svg.rstrip().endswith("</svg>")
