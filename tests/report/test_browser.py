"""The page in a real browser: every chart is drawn, hovering and hiding work, at any width.

Skipped without playwright or Chromium; `make test-all` installs both.
"""

import json
from pathlib import Path

import pytest

import unskew as us
from reports import CHROMIUM, FEDERATION, clustered_run
from unskew.report.page import write_page
from unskew.runs.runs import Runs

pytestmark = [
    pytest.mark.extras("playwright"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
]

MARKS = {
    "forest": "circle.estimate",
    "curves": "path.curve",
    "boxes": "rect.box",
    "bars": "rect.bar",
    "bubbles": "circle.bubble",
    "maps": "image.map",
    "clusters": "image.map",
    "points": "circle.point",
    "histograms": "path.steps",
}
"""The element that a chart of each kind must contain."""


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    """The page of a real comparison, with a method that has clusters and sample weights.

    One method reaches the target, one reaches it with one seed of two, and one never does.
    """
    runs = us.compare(FEDERATION, "fedavg,mean", seeds=2, model="logistic", rounds=4, batch_size=8)
    return write_page(
        tmp_path_factory.mktemp("page") / "report.html", Runs([*runs, clustered_run()]),
        command="unskew compare --data digits", embedding=True, target=0.3,
    )  # fmt: skip


def charts(page):
    return json.loads(page.locator("#report-data").text_content())["charts"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
def test_every_chart_is_drawn_and_fits(opened, scheme, width):
    page = opened(width=width, color_scheme=scheme)
    kinds = {chart["kind"] for chart in charts(page)}
    assert kinds == set(MARKS)
    for chart in charts(page):
        drawing = page.locator(f"#{chart['name']} .drawing")
        assert drawing.locator(MARKS[chart["kind"]]).count() > 0, chart["name"]
        box = drawing.bounding_box()
        assert box["height"] > 100
        assert box["x"] + box["width"] <= width
        assert "NaN" not in drawing.inner_html()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [1200, 360])
def test_no_text_of_a_chart_is_cut_off(opened, width):
    page = opened(width=width)
    cut = page.evaluate(
        """() => [...document.querySelectorAll("figure svg text")].filter((text) => {
            const box = text.getBoundingClientRect();
            const frame = text.ownerSVGElement.getBoundingClientRect();
            return box.left < frame.left - 1 || box.right > frame.right + 1
                || box.bottom > frame.bottom + 1 || box.top < frame.top - 1;
        }).map((text) => text.closest("figure").id + ": " + text.textContent)"""
    )
    assert cut == []


def test_every_chart_shows_a_tooltip(opened):
    page = opened()
    for chart in charts(page):
        area = page.locator(f"#{chart['name']} .hover").first
        area.scroll_into_view_if_needed()
        page.mouse.move(2, 2)
        assert not page.locator("#tip").is_visible()
        area.hover(force=True)
        assert page.locator("#tip").is_visible(), chart["name"]
        assert page.locator("#tip").inner_text().strip()


def test_hovering_a_curve_shows_the_round(opened):
    page = opened()
    area = page.locator("#global-accuracy .hover")
    box = area.bounding_box()
    area.hover(position={"x": 2, "y": box["height"] / 2})
    text = page.locator("#tip").inner_text()
    assert text.startswith("round 1")
    assert "fedavg" in text
    assert "%" in text


def test_a_method_can_be_hidden_everywhere_and_shown_again(opened):
    page = opened()
    curves = page.locator("#global-accuracy path.curve")
    boxes = page.locator("#clients-local rect.box")
    before = curves.count(), boxes.count()
    button = page.locator("#legend button", has_text="mean")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert (curves.count(), boxes.count()) == (before[0] - 1, before[1] - 1)
    button.click()
    assert (curves.count(), boxes.count()) == before


def test_all_methods_can_be_hidden(opened):
    page = opened()
    for button in page.locator("#legend button").all():
        button.click()
    assert page.locator("path.curve").count() == 0


def test_a_method_has_one_color(opened):
    page = opened()
    data = {chart["name"]: chart["data"] for chart in charts(page)}

    def colors(marks, attribute, rows):
        found = [mark.get_attribute(attribute) for mark in page.locator(marks).all()]
        return set(zip((row["method"] for row in rows), found, strict=True))

    lines = colors("#global-accuracy path.curve", "stroke", data["global-accuracy"]["series"])
    boxes = colors("#clients-local rect.box", "fill", data["clients-local"]["boxes"])
    rounds = data["cost-to-target"]["panels"][0]["bars"]
    reached = [bar for bar in rounds if bar["mean"] is not None]  # the others have no bar
    bars = colors("#cost-to-target rect.bar", "fill", reached * 2)  # rounds, then megabytes
    assert len({color for _, color in lines}) == len(lines) == 3
    assert boxes == lines
    assert {method for method, _ in bars} == {"fedavg", "ifca"}
    assert bars < lines


@pytest.mark.parametrize("suffix", ["SVG", "PNG", "CSV"])
def test_charts_are_saved_as_files(opened, tmp_path, suffix):
    page = opened(color_scheme="dark")
    with page.expect_download() as download:
        page.locator("#global-accuracy .tools button", has_text=suffix).click()
    assert download.value.suggested_filename == f"global-accuracy.{suffix.lower()}"
    download.value.save_as(tmp_path / "file")
    content = (tmp_path / "file").read_bytes()
    if suffix == "PNG":
        assert content.startswith(b"\x89PNG")
    elif suffix == "SVG":
        assert b"var(" not in content
        assert b"#0072b2" in content  # the colours of the light page, also on a dark screen
    else:
        assert content.startswith(b"method,round,mean,sd")


def test_the_page_can_be_printed(opened):
    page = opened(color_scheme="dark")
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator(".tools").first.is_visible()
