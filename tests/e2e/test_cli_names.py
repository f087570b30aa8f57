"""Names that are formulas, escape sequences or not UTF-8 do not end a command."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

NAMES = ["$5_$", "=HYPERLINK(1)", os.fsdecode(b"\xff\xfe"), "\x1b[31mred", "[blue]", "a\nb"]


@pytest.fixture
def images(tmp_path):
    """A folder of images in which clients and classes have unusual names."""
    rng = np.random.default_rng(0)
    root = tmp_path / os.fsdecode(b"im\xffages")
    for client in NAMES[:3]:
        for label in NAMES:
            folder = root / client / label
            folder.mkdir(parents=True)
            for i in range(4):
                pixels = rng.integers(0, 255, (8, 8), np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    return root


@pytest.mark.long
def test_unusual_names_reach_neither_terminal_nor_spreadsheet(terminal, images):
    output = terminal.output("data", "show", images, "--out", "figure.svg")
    assert "\x1b" not in output
    assert "[blue]" in output
    options = ("--data", images, "--holdout", 0.3, "--methods", "fedavg", "--rounds", 1)
    output = terminal.output("compare", *options, "--seeds", 1, "--out", "out")
    assert "\x1b" not in output
    page = Path("out/report.html").read_bytes()
    assert b"\x1b" not in page
    assert "\\udcff" in page.decode()
    terminal.output("report", "out", "-o", "page.html", "--figures", "figures")
    cells = Path("figures/data-distribution.csv").read_text()
    assert "'=HYPERLINK(1)" in cells
    assert Path("figures/data-distribution.svg").stat().st_size > 1000
    assert Path("figures/table.tex").is_file()


def test_errors_about_unusual_names_are_one_printable_line(terminal):
    error = terminal.error("data", "show", "no\x1b[31m\udcffthing.csv")
    assert "\x1b" not in error
