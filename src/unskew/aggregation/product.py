"""The product of several client weightings."""

from collections import Counter

import torch
from torch import Tensor

from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics
from unskew.errors import UnskewError


def product(*weightings: ClientWeighting) -> ClientWeighting:
    """Multiply the weights of each client and normalise the products to sum to one.

    The diagnostics of each factor, including its weights, are listed as ``name.diagnostic``;
    repeated names are numbered.
    """
    if not weightings:
        raise UnskewError("product: pass at least one client weighting")
    labels = _labels([weighting.name for weighting in weightings])

    def derive(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        raw = torch.ones(len(uploads), dtype=torch.float64)
        diagnostics: Diagnostics = {}
        for label, weighting in zip(labels, weightings, strict=True):
            explained = weighting.explain(uploads)
            raw = raw * explained["weights"]
            if not bool((raw > 0).any()):
                raise UnskewError(f"product: all weights are zero after {label}")
            raw = raw / raw.max()
            diagnostics |= {f"{label}.{key}": value for key, value in explained.items()}
        return raw, diagnostics

    return ClientWeighting("+".join(labels), derive)


def _labels(names: list[str]) -> list[str]:
    seen: Counter[str] = Counter()
    labels = []
    for name in names:
        seen[name] += 1
        labels.append(name if seen[name] == 1 else f"{name}{seen[name]}")
    return labels
