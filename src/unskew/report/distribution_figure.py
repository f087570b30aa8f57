"""The data distribution of a federation: a figure and a table of clients' sizes and labels."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from unskew.errors import UnskewError
from unskew.skew.diagnosis import diagnose_counts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase, SubFigure
    from rich.table import Table as RichTable

    from unskew.data.federation import Federation

BUBBLES = 60
"""The maximum number of clients drawn as columns of bubbles; more are drawn as a map."""

COLUMNS = 500
"""The maximum number of columns of a map; beyond it, neighbours share a column."""

EXAMPLES = 6
"""The number of example images per client, which show noise."""

BLUE, GREY = "#0072B2", "#5F6B73"
"""Two colours that are distinguishable with every kind of colour blindness (Okabe and Ito)."""

Counts = NDArray[np.int64]


def draw_distribution(federation: "Federation", path: str | Path) -> Path:
    """Draw the data distribution and write it to ``path``, in the format of its suffix."""
    path = Path(path)
    figure = distribution_figure(federation)
    if path.suffix[1:].lower() not in figure.canvas.get_supported_filetypes():
        raise UnskewError(f"{path}: the name of a figure must end in .png, .svg or .pdf")
    figure.savefig(path)
    return path


def distribution_figure(federation: "Federation") -> "Figure":
    """Draw the number of training samples per client and class; bins of a regression target.

    Up to 60 clients are drawn as bubbles whose area is the number of samples; more are sorted by
    their most frequent class and drawn as a map of label shares. Noise is shown by example images.
    """
    from unskew.report.figure import Figure  # noqa: PLC0415 (slow to import)

    binned = federation.with_target_bins()
    what = "quantile bin of the target" if federation.is_regression else "class"
    counts = binned.train.label_counts(binned.classes)
    names = None if federation.client_names is None else list(map(str, federation.client_names))
    strip = _shows_images(federation)
    figure = Figure(figsize=_size(counts, strip), dpi=150, layout="constrained")
    upper: FigureBase = figure
    if strip:
        height = figure.get_figheight() - 2.4
        upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[height, 2.4])[:, 0]
        _draw_strip(federation, lower)
    top = _draw_counts(upper, counts, names, _class_names(binned), what)
    top.set_title(_title(federation, counts), fontsize=10, loc="left")
    return figure


def counts_figure(
    counts: Counts, client_names: Sequence[str] | None, class_names: Sequence[str]
) -> "Figure":
    """Draw the data distribution from label counts (clients x classes), without a heading."""
    from unskew.report.figure import Figure  # noqa: PLC0415 (slow to import)

    figure = Figure(figsize=_size(counts, False), dpi=150, layout="constrained")
    _draw_counts(figure, counts, client_names, class_names)
    return figure


def _draw_counts(
    figure: "FigureBase",
    counts: Counts,
    client_names: Sequence[str] | None,
    class_names: Sequence[str],
    what: str = "class",
) -> "Axes":
    """Draw sizes above bubbles or a map, and return the upper axes."""
    top, main = figure.subplots(2, 1, sharex=True, height_ratios=[1, max(2.0, _height(counts))])
    if len(counts) <= BUBBLES:
        _draw_sizes(top, counts.sum(axis=1), len(counts))
        _draw_bubbles(main, counts, client_names)
    else:
        shares, sizes = sorted_shares(counts)
        _draw_sizes(top, sizes, len(counts))
        _draw_map(main, shares, len(counts), what)
    _label_classes(main, class_names, what)
    return cast("Axes", top)


def distribution_table(federation: "Federation", rows: int = 20) -> "RichTable":
    """Return a table of the training samples per class of the first ``rows`` clients.

    With many classes it lists each client's most frequent classes instead of all.
    """
    from rich.table import Table as RichTable  # noqa: PLC0415 (only terminals need it)

    federation = federation.with_target_bins()
    counts = federation.train.label_counts(federation.classes)
    names = _class_names(federation)
    wide = federation.classes <= 12
    table = RichTable(title=_title(federation, counts), title_justify="left", show_footer=True)
    table.add_column("client", footer="all")
    table.add_column("samples", justify="right", footer=f"{counts.sum():,}")
    if wide:
        for name, total in zip(names, counts.sum(axis=0), strict=True):
            table.add_column(name, justify="right", footer=f"{total:,}")
    else:
        table.add_column("classes", justify="right", footer=str((counts.sum(axis=0) > 0).sum()))
        table.add_column("most frequent", footer=_most_frequent(counts.sum(axis=0), names))
    for k in range(min(rows, len(counts))):
        cells = (
            [f"{n:,}" if n else "·" for n in counts[k]]
            if wide
            else [str((counts[k] > 0).sum()), _most_frequent(counts[k], names)]
        )
        table.add_row(_client_name(federation, k), f"{counts[k].sum():,}", *cells)
    if len(counts) > rows:
        table.add_row(f"… {len(counts) - rows:,} more", *["…"] * (len(table.columns) - 1))
    return table


def _title(federation: "Federation", counts: Counts) -> str:
    diagnosis = diagnose_counts(counts)
    skew = federation.report.skew if federation.report else "custom partition"
    clients = f"{len(counts):,} client{'s' if len(counts) != 1 else ''}"
    return (
        f"{federation.name} · {skew} · {clients}\n"
        f"label skew {diagnosis.label_skew:.2f} "
        f"(by chance {diagnosis.label_skew_by_chance:.2f}) · "
        f"sizes {counts.sum(axis=1).min():,} to {counts.sum(axis=1).max():,}"
    )


def _height(counts: Counts) -> float:
    """Return the height of the class axis in inches, by the number of classes."""
    return float(np.clip(0.3 * counts.shape[1], 1.2, 7.0))


def _size(counts: Counts, strip: bool) -> tuple[float, float]:
    width = np.clip(0.3 * len(counts) + 2.5, 6.5, 13.0) if len(counts) <= BUBBLES else 9.0
    return float(width), max(2.0, _height(counts)) + 1.8 + 2.4 * strip


def _draw_sizes(axes: "Axes", sizes: NDArray[Any], clients: int) -> None:
    width = 0.8 if clients <= BUBBLES else 1.0
    axes.bar(np.arange(len(sizes)), sizes, width=width, color=GREY, linewidth=0)
    axes.set_ylabel("samples" if clients == len(sizes) else "mean samples", fontsize=9)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.tick_params(labelsize=8, bottom=False, labelbottom=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.locator_params(axis="y", nbins=3)


def _draw_bubbles(axes: "Axes", counts: Counts, names: Sequence[str] | None) -> None:
    client, label = np.nonzero(counts)
    samples = counts[client, label]
    # The largest bubble fills a cell of the grid, but stays large enough to see.
    room = min(_height(counts) / counts.shape[1], (_size(counts, False)[0] - 1.5) / len(counts))
    areas = (72 * np.clip(0.95 * room, 0.14, 0.3)) ** 2 * samples / max(1, counts.max())
    axes.scatter(client, label, s=areas, color=BLUE, alpha=0.85, linewidth=0)
    axes.set_xlim(-0.7, len(counts) - 0.3)
    axes.set_ylim(-0.7, counts.shape[1] - 0.3)
    axes.grid(color="0.92", linewidth=0.6)
    axes.set_axisbelow(True)
    step = max(1, round(len(counts) / 30))
    places = np.arange(0, len(counts), step)
    if names is None:
        axes.set_xticks(places, [str(k) for k in places])
    else:
        labels = [_shortened(names[k], 18) for k in places.tolist()]
        axes.set_xticks(places, labels, rotation=45, ha="right")
    axes.set_xlabel(f"client (the largest bubble is {counts.max():,} samples)", fontsize=9)
    axes.tick_params(labelsize=8, length=2)
    axes.spines[["top", "right"]].set_visible(False)


def sorted_shares(
    counts: Counts, max_columns: int = COLUMNS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return label shares (classes x columns) and sizes, sorted by the most frequent class.

    Clients with the same most frequent class are sorted by their share of it, in descending order.
    With more than ``max_columns`` clients, a column is the mean of neighbours.
    """
    sizes = counts.sum(axis=1)
    shares = counts / np.maximum(sizes, 1)[:, None]
    order = np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))
    columns = min(len(counts), max_columns)
    starts = np.arange(columns) * len(counts) // columns
    run = np.diff(starts, append=len(counts))
    mean_shares = np.add.reduceat(shares[order], starts, axis=0) / run[:, None]
    return mean_shares.T, np.add.reduceat(sizes[order], starts) / run


def _draw_map(axes: "Axes", shares: NDArray[np.float64], clients: int, what: str) -> None:
    # The scale ends well above even shares, so that random variation does not look like skew.
    top = min(1.0, max(shares.max(), 3 * shares.mean(axis=1).max()))
    image = axes.imshow(
        shares, aspect="auto", origin="lower", cmap="cividis", vmin=0, vmax=top,
        interpolation="nearest",
    )  # fmt: skip
    bar = axes.figure.colorbar(image, ax=axes, pad=0.01, aspect=30)
    bar.set_label("share of the client's samples", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    merged = (
        "" if clients == shares.shape[1] else f", about {clients // shares.shape[1]} per column"
    )
    axes.set_xlabel(f"clients, sorted by their most frequent {what}{merged}", fontsize=9)
    axes.set_xticks([])


def _label_classes(axes: "Axes", names: Sequence[str], what: str) -> None:
    step = max(1, -(-len(names) // 35))
    places = range(0, len(names), step)
    axes.set_yticks(list(places), [_shortened(names[c], 18) for c in places])
    axes.tick_params(axis="y", labelsize=8 if len(names) <= 20 else 6, length=2)
    axes.set_ylabel(what, fontsize=9)


def _shows_images(federation: "Federation") -> bool:
    """Return whether the partition adds noise to images, so that examples are worth showing."""
    noisy = federation.report is not None and "noise" in federation.report.skew
    return noisy and len(federation.shape) == 3 and federation.shape[0] in (1, 3)


def _draw_strip(federation: "Federation", figure: "SubFigure") -> None:
    """Show example images of the first, the middle and the last client that has samples."""
    nonempty = np.flatnonzero(federation.train.sizes)
    chosen = np.unique(nonempty[[0, len(nonempty) // 2, -1]])
    grid = figure.subplots(len(chosen), EXAMPLES, squeeze=False)
    for k, row in zip(chosen, grid, strict=True):
        images = federation.train.client(int(k))[0][:EXAMPLES]
        for axes in row:
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(False)
        for axes, image in zip(row, images, strict=False):
            axes.imshow(image.transpose(1, 2, 0), cmap="gray", interpolation="nearest")
        label = f"client {_client_name(federation, int(k))}"
        row[0].set_ylabel(label, fontsize=9, rotation=0, ha="right", va="center")


def _class_names(federation: "Federation") -> tuple[str, ...]:
    return federation.class_names or tuple(str(c) for c in range(federation.classes))


def _client_name(federation: "Federation", k: int) -> str:
    return str(k) if federation.client_names is None else str(federation.client_names[k])


def _most_frequent(counts: Counts, names: tuple[str, ...]) -> str:
    """Return the three most frequent classes and their numbers of samples."""
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    shown = ", ".join(f"{_shortened(names[c], 18)} {counts[c]:,}" for c in order[:3])
    return shown + (", …" if len(order) > 3 else "")


def _shortened(text: str, length: int) -> str:
    """Shorten a long name in the middle, because names often differ at their ends."""
    half = (length - 1) // 2
    return text if len(text) <= length else f"{text[:half]}…{text[-half:]}"
