"""Executes notebooks: for their test, and in place with ``make notebook``."""

import sys
import tempfile
from pathlib import Path
from typing import Any


def executed(path: Path, folder: Path) -> Any:
    """Return the notebook with the outputs of all its cells, executed in a folder."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    notebook.metadata.language_info = {"name": "python"}  # without the version of this Python
    return notebook


if __name__ == "__main__":
    import nbformat

    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(executed(Path(sys.argv[1]), Path(folder)), sys.argv[1])
