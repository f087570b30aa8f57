"""Federations as HTML, for notebooks."""

from typing import TYPE_CHECKING

from unskew.skew.html import distribution_html
from unskew.utils.html import html_block, html_heading, html_line
from unskew.utils.wording import plural

if TYPE_CHECKING:
    from unskew.data.federation import Federation


def federation_html(federation: "Federation") -> str:
    """Return the sizes of a federation, and how its labels are distributed over clients."""
    sizes = (
        f"{plural(len(federation), 'client')}, {federation.train.samples:,} training samples, "
        f"{federation.test.samples:,} on the clients' own tests, {federation.common.samples:,} on "
        f"the common test; samples of shape {federation.shape}, "
        + ("a number to predict" if federation.is_regression else f"{federation.classes} classes")
    )
    name, report = federation.name, federation.report
    binned = federation.with_target_bins()
    counts = binned.train.label_counts(binned.classes) if federation.has_samples else None
    what = "quantile bin of the target" if federation.is_regression else "class"
    return html_block(
        html_heading(f"{name} · {report.skew}" if report else name),
        html_line(sizes, soft=True),
        "" if counts is None else distribution_html(counts, binned.class_names, what),
    )
