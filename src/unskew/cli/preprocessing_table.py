"""The table of what the columns of a raw table became."""

from datetime import UTC, datetime, timedelta

from unskew.data.preprocessing.fitted import Preprocessing
from unskew.data.preprocessing.transform import ColumnStep
from unskew.utils.tables import Table

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def preprocessing_table(preprocessing: Preprocessing) -> Table:
    """Return one row per column: its kind, its statistics and its features."""
    rows = [
        [step.name, step.kind, _statistics(step), str(_features(step)), "yes" if step.gap else "no"]
        for step in preprocessing.transform.columns
    ]
    heads = ["column", "kind", "center and scale", "features", "gaps"]
    return Table(heads, rows, title=f"prepared: {preprocessing.spec}")


def _features(step: ColumnStep) -> int:
    return step.length or len(step.feature_names())


def _statistics(step: ColumnStep) -> str:
    if step.kind == "number":
        return f"{step.center:.4g} ± {step.scale:.4g}"
    if step.kind == "date":
        return f"{(_EPOCH + timedelta(days=step.center)).date()} ± {step.scale:.4g} days"
    if step.words is not None:
        return f"{len(step.words)} words"
    return f"{len(step.levels)} categories" if step.levels is not None else "-"
