"""Show the progress of a fetch on the terminal."""

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn

from unskew.data.catalogue import CATALOGUE
from unskew.data.fetch import fetch
from unskew.utils.specs import lookup


def fetch_with_progress(name: str, *, force: bool) -> Path:
    """Fetch a source; show a spinner, and a progress bar while images are decoded, on stderr."""
    columns = (
        SpinnerColumn(),
        "{task.description}",
        BarColumn(),
        MofNCompleteColumn(),
        "images",
        TimeElapsedColumn(),
    )
    info = lookup(CATALOGUE, name, "source")
    console = Console(stderr=True)
    if not console.is_terminal:  # a disabled bar still prints an empty line before rich 14.3
        return fetch(name, force=force)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name, total=info.train + info.test, visible=False)

        def update(step: str, images: int | None) -> None:
            bar.update(task, description=f"{name}: {step}", completed=images, visible=True)

        return fetch(name, force=force, progress=update)
