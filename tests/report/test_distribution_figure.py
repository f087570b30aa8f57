"""The figure and the table of a federation's data distribution."""

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from marks import long_after
from unskew.data.federation import Federation
from unskew.errors import UnskewError
from unskew.partition.report import PartitionReport
from unskew.report import distribution_figure
from unskew.report.distribution_figure import distribution_table, draw_distribution


def federation(
    clients: int, classes: int = 4, shape: tuple[int, ...] = (2,), skew: str | None = None
) -> Federation:
    each = 2 * classes
    y = np.tile(np.arange(each) % classes, clients)
    x = np.random.default_rng(0).random((len(y), *shape), dtype=np.float32)
    made = Federation.from_arrays(x, y, np.repeat(np.arange(clients), each), classes=classes)
    if skew is None:
        return made
    counts = made.train.label_counts(classes)
    report = PartitionReport(skew, counts.sum(axis=1), counts, 0)
    return Federation(made.train, made.test, made.common, classes, report=report)


@pytest.mark.parametrize(
    ("clients", "classes", "shape", "skew"),
    long_after(
        2,
        [
            (5, 4, (2,), "iid"),
            (3, 4, (1, 8, 8), "noise"),
            (1, 1, (2,), None),
            (60, 100, (2,), "iid"),
            (61, 4, (2,), "dirichlet"),
            (1200, 100, (1,), "dirichlet"),
            (2, 4, (3, 8, 8), "iid+noise"),
        ],
    ),
)
def test_every_kind_of_figure_is_drawn(
    tmp_path: Path, clients: int, classes: int, shape: tuple[int, ...], skew: str | None
) -> None:
    path = draw_distribution(federation(clients, classes, shape, skew), tmp_path / "data.png")
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["data", "data.docx"])
def test_a_figure_needs_a_format(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnskewError, match="must end in"):
        draw_distribution(federation(2), tmp_path / name)


def test_noise_is_shown_by_example_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(
        distribution_figure, "_draw_strip", lambda f, figure: drawn.append(f.report.skew)
    )
    for shape, skew in (((1, 8, 8), "noise:level=1"), ((1, 8, 8), "iid"), ((64,), "noise")):
        draw_distribution(federation(3, shape=shape, skew=skew), tmp_path / "data.png")
    assert drawn == ["noise:level=1"]


def test_clients_are_sorted_by_class_then_share() -> None:
    counts = np.array([[1, 3], [4, 0], [0, 4], [3, 1]])
    shares, sizes = distribution_figure.sorted_shares(counts)
    assert shares.tolist() == [[1, 0.75, 0, 0.25], [0, 0.25, 1, 0.75]]
    assert sizes.tolist() == [4, 4, 4, 4]


def test_many_clients_are_averaged_into_columns() -> None:
    shares, sizes = distribution_figure.sorted_shares(
        np.array([[6, 0], [0, 1], [2, 0], [0, 3]]), max_columns=2
    )
    assert shares.tolist() == [[1, 0], [0, 1]]
    assert sizes.tolist() == [4, 2]


def shown(table: object) -> str:
    console = Console(width=200, record=True, file=None, quiet=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_a_table_of_few_classes_lists_all() -> None:
    y = np.array([0, 0, 1, 2, 2, 2])
    f = Federation.from_arrays(np.zeros((6, 1)), y, ["ann", "ann", "ann", "bob", "bob", "bob"])
    text = shown(distribution_table(f))
    rows = [line.replace("│", " ").split() for line in text.splitlines()]
    assert ["ann", "3", "2", "1", "·"] in rows
    assert ["bob", "3", "·", "·", "3"] in rows
    assert ["all", "6", "2", "1", "3"] in rows
    assert "label skew 0.50" in text  # pooled (2, 1, 3)/6: both clients are 1/2 away


def test_a_table_of_many_classes_and_clients_is_shortened() -> None:
    text = shown(distribution_table(federation(30, classes=20), rows=5))
    assert "… 25 more" in text
    assert "0 2, 1 2, 2 2, …" in text


def test_long_names_are_shortened_in_the_middle() -> None:
    assert (
        distribution_figure._shortened("kermany_guangzhou_pediatric/12", 18) == "kermany_…atric/12"
    )
    assert distribution_figure._shortened("short", 18) == "short"
