"""The data distribution of a federation and its skew as HTML, for notebooks."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unskew.utils.html import html_line
from unskew.utils.svg import counts_svg

_MAX_CLIENTS, _MAX_CLASSES = 60, 30
"""The map shows the first clients and classes, up to these numbers."""


def distribution_html(
    counts: NDArray[np.int64], class_names: Sequence[str] | None = None, what: str = "class"
) -> str:
    """Return a map of label counts (clients x classes): which client has how much of which class.

    It is limited to what fits on a page. ``what`` is the word for a class.
    """
    clients, classes = counts.shape
    names = list(class_names or (f"class {c}" for c in range(classes)))[:_MAX_CLASSES]
    shown = counts[:_MAX_CLIENTS, :_MAX_CLASSES]
    if not shown.size:
        return ""
    cut = "" if shown.shape == counts.shape else (
        f" (the first {shown.shape[0]} of {clients} clients, {shown.shape[1]} of {classes} classes)"
    )  # fmt: skip
    title = f"Samples per client and {what}"
    chart = counts_svg(shown, rows=names, columns="client", label=title)
    return html_line(f"{title}{cut}", soft=True) + chart
