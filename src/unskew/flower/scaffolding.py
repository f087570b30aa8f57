"""Writing a Flower app: a few short files to read, run and change."""

import re
from importlib.resources import files
from pathlib import Path
from string import Template

from unskew.data.catalogue import CATALOGUE
from unskew.data.config import DataConfig
from unskew.errors import UnskewError
from unskew.flower.requirements import check_runs_on_nodes
from unskew.methods import make_method, names_files
from unskew.models import MODELS
from unskew.utils.specs import build, lookup, validated

_FILES = {
    "pyproject.toml": "pyproject.toml.txt",
    "task.py": "task.py.txt",
    "server_app.py": "server_app.py.txt",
    "client_app.py": "client_app.py.txt",
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
}


def write_app(
    folder: Path,
    *,
    method: str,
    data: str,
    skew: str = "iid",
    model: str | None = None,
    clients: int = 4,
    rounds: int = 5,
) -> list[Path]:
    """Write a complete app into a new folder and return the paths of its files.

    All spec strings are validated first, so that the app can run.
    """
    if lookup(CATALOGUE, data, "data").table is not None:
        raise UnskewError(
            f"data: {data} is a table; write the app for another source, then let task.py return "
            "the table of each node as unskew.flower.NodeTable"
        )
    validated(DataConfig, {"name": data, "skew": skew, "clients": clients})
    if model is not None:
        build(MODELS, model, "model")
    if names_files(method):
        raise UnskewError(
            f"method {method!r}: an app cannot refer to a file outside of it; write the app with "
            "another method, then copy the class into the app and set METHOD to its object"
        )
    chosen = make_method(method)
    check_runs_on_nodes(chosen)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UnskewError(f"{folder}: it already exists; choose a folder that is new or empty")
    values = {
        "name": _project_name(folder),
        "publisher": "unskew",
        "method": chosen.spec,
        "data": data,
        "skew": skew,
        "model": "None  # one that suits the data" if model is None else f'"{model}"',
        "clients": clients,
        "rounds": rounds,
    }
    templates = files("unskew.flower").joinpath("template")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, template_name in _FILES.items():
        template = Template(templates.joinpath(template_name).read_text(encoding="utf-8"))
        (folder / name).write_text(template.substitute(values), encoding="utf-8")
        written.append(folder / name)
    return written


def _project_name(folder: Path) -> str:
    """Return the folder's name in the form Flower allows: lower case, digits and hyphens."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
    return name if name[:1].isalpha() else f"app-{name}".strip("-")
