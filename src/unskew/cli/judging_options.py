"""Options that say how methods are judged."""

from typing import Annotated, Literal

import typer

FinalOption = Annotated[
    Literal["mean", "last"],
    typer.Option(
        help="Judge methods by the mean of the last tenth of their evaluations (at least five), or "
        "by the last one."
    ),
]

MetricOption = Annotated[
    str | None,
    typer.Option(
        "--metric",
        help="Judge methods by this metric, such as auc; pooled_auc takes the tests of all clients "
        "together. It also decides --tune and --target.",
        show_default="accuracy; rmse for a regression",
    ),
]

Metrics = Annotated[
    str | None,
    typer.Option(
        help="Also compute these, separated by commas: auc, pr_auc, f1, macro_f1, "
        "balanced_accuracy, sensitivity:specificity=0.9, brier, calibration_error, recall; mae, "
        "rmse, r2; or my.py:function of targets and scores.",
    ),
]

LevelOption = Annotated[
    Literal["global", "local", "personal"] | None,
    typer.Option(
        "--level",
        help="Judge methods by the global model on the common test (global) or on the clients' own "
        "tests (local), or by personal models on the clients' own tests (personal). It also "
        "decides --tune and --target.",
        show_default="personal if a method has personal models; else global, or local without a "
        "common test",
    ),
]

Margin = Annotated[
    float,
    typer.Option(
        help="Differences up to this many points are equivalent (for losses and errors: per cent).",
        min=0,
    ),
]
