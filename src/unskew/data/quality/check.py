"""``us.check``: one pass over the data of a federation, before anything is trained."""

import warnings
from collections.abc import Container, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from unskew.data.preprocessing.identifying import LEAVE_OUT
from unskew.data.quality.clients import client_findings
from unskew.data.quality.duplicates import duplicate_findings
from unskew.data.quality.findings import DataCheck, Finding, Severity
from unskew.data.quality.finite import finite_findings
from unskew.data.quality.labels import label_findings
from unskew.data.quality.sampled import SampledFeatures
from unskew.data.quality.scales import is_scalable, pixel_findings, scale_findings
from unskew.data.quality.targets import ONE_VALUE, target_findings
from unskew.errors import DataWarning, NotAFederationError

if TYPE_CHECKING:
    from unskew.data.federation import Federation

_CHANNELS = (1, 3, 4)
"""The number of channels of images: grey, RGB, RGB with transparency."""


def check(federation: "Federation") -> DataCheck:
    """Return what is wrong or doubtful about the data of a federation, and what to do.

    Errors are values that are not finite numbers, quantities taken for classes, a target with one
    value, and columns of a table that identify rows. Warnings are, among others, columns on unlike
    scales, a client whose features are on another scale than those of the others, a single client,
    clients without test samples or with one class, empty classes, numbers to predict that are in
    other units at a client, channels-last images and test samples that are training samples too.
    What a partitioner does on purpose, such as clients with one class, is a note. ``us.train`` and
    ``us.compare`` start with the same check: they refuse errors and show warnings.

    >>> import numpy as np
    >>> import unskew as us
    >>> x, y = np.random.default_rng(0).normal(size=(60, 2)) * (1, 1000), np.arange(60) % 2
    >>> fed = us.Federation.from_arrays(x, y, client=np.arange(60) // 20, holdout=0.2)
    >>> found = us.check(fed)
    >>> print(found.warnings[0].subject, found.warnings[0].text)  # doctest: +ELLIPSIS
    columns are on unlike scales: column 1 spans ...
    """
    if not hasattr(federation, "has_samples"):
        raise NotAFederationError(federation)
    return DataCheck(federation.name, tuple(_findings(federation)))


def _findings(federation: "Federation") -> Iterator[Finding]:
    if not federation.has_samples:
        return
    if not federation.train.samples:
        fix = "add training samples, or hold out fewer"
        yield Finding("error", "train", "no client has a sample to train on", fix)
        return
    report = federation.report
    natural = report is None or report.skew.startswith("natural")
    doubtful: Severity = "warning" if natural else "note"
    yield from _identifying_columns(federation)
    infinite = list(finite_findings(federation))
    yield from infinite
    yield from label_findings(federation, doubtful)
    yield from target_findings(federation, doubtful)
    yield from client_findings(federation, doubtful)
    yield from _channels_last(federation)
    is_images, scalable = len(federation.shape) == 3, is_scalable(federation.train.x)
    if not infinite and (is_images or scalable):
        sample = SampledFeatures.of(federation.train)
        if is_images:
            yield from pixel_findings(sample)
        if scalable:
            yield from scale_findings(federation, sample, doubtful)
    yield from duplicate_findings(federation)


def _identifying_columns(federation: "Federation") -> Iterator[Finding]:
    found = {} if federation.preprocessing is None else federation.preprocessing.identifying
    for name, reason in found.items():
        yield Finding("error", f"column {name!r}", reason, LEAVE_OUT)


def _channels_last(federation: "Federation") -> Iterator[Finding]:
    shape = federation.shape
    if len(shape) == 3 and shape[2] in _CHANNELS and min(shape[:2]) > max(_CHANNELS):
        yield Finding(
            "warning",
            "x",
            f"has samples of shape {shape}, which looks like height x width x channels",
            "images are channels x height x width: use x.transpose(0, 3, 1, 2)",
        )


def check_before_training(
    federation: "Federation", shown: Container[str] = frozenset(), *, stacklevel: int = 3
) -> DataCheck:
    """Check a federation, raise if there are errors, and show warnings.

    Warnings about the subjects in ``shown`` were shown before, for the federation of another seed.
    They refer to the line of code ``stacklevel`` calls up. A target with one value is left to the
    set-up of the run: a network that learns densities does not need the target.
    """
    found = check(federation)
    replace(found, findings=tuple(each for each in found if each != ONE_VALUE)).raise_errors()
    for finding in found.warnings:
        if finding.subject not in shown:
            warnings.warn(DataWarning(f"{federation.name}: {finding}"), stacklevel=stacklevel)
    return found
