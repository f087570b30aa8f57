"""Show on the terminal how far a fetch has come."""

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn

from unskew.data.catalogue import CATALOGUE
from unskew.data.fetch import fetch
from unskew.utils.specs import lookup


def fetch_with_progress(name: str, *, force: bool) -> Path:
    """Fetch a source with a spinner, and a bar of images while they are decoded, on stderr."""
    columns = (
        SpinnerColumn(),
        "{task.description}",
        BarColumn(),
        MofNCompleteColumn(),
        "images",
        TimeElapsedColumn(),
    )
    facts = lookup(CATALOGUE, name, "source")
    console = Console(stderr=True)
    quiet = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task(name, total=facts.train + facts.test, visible=False)

        def update(step: str, images: int | None) -> None:
            bar.update(task, description=f"{name}: {step}", completed=images, visible=True)

        return fetch(name, force=force, progress=update)
