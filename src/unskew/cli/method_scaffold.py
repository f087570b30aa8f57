"""The files of a new method: a file and its test, or those of the package, in a clone of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

from unskew.errors import UnskewError
from unskew.runs.atomic import write_bytes

_REGISTRY = Path("src/unskew/methods/_registry.py")
_INDEX = Path("docs/methods/README.md")
_GUIDE = Path("docs/deploy.md")
_NAV = Path("mkdocs.yml")


@dataclass(frozen=True)
class _Kind:
    """What the documentation of a new method of a kind says."""

    family: str
    """The section of the index of methods."""
    summary: str
    neutral: str
    """The option with which the method is FedAvg."""
    equation: str
    sends: str = "- | - | - | - | conceivable | scalars, models"
    """The cells of the deployment guide's table."""
    evaluated: str = "The global model."
    traffic: str = "Only the model."


_KINDS = {
    "client": _Kind(
        family="Local objective",
        summary="a term that keeps it near the received model",
        neutral="mu=0",
        equation="client:  min F_k(v) + mu/2 ||v - w||²",
    ),
    "server": _Kind(
        family="Client weighting",
        summary="a power of its number of samples",
        neutral="power=0",
        equation="server:  w = sum_k p_k w_k,  p_k proportional to n_k^(1 - power)",
    ),
    "personal": _Kind(
        family="Personal",
        summary="the last layers",
        neutral="layers=0",
        equation="client:  (u_k, h_k) = local training from (u, h_k),  h_k the last layers",
        sends="- | - | head | kept | conceivable | scalars, models",
        evaluated="The *personal* level: the shared layers with the client's own last layers.",
        traffic="All but the last layers, both ways.",
    ),
    "setup": _Kind(
        family="Aggregation rule",
        summary="the mean of the clients whose turn it is",
        neutral="groups=1",
        equation="round r:  client k may take part if k = r (mod groups)",
    ),
}


def new_files(root: Path, name: str, kind: str, *, package: bool) -> dict[Path, str]:
    """Return the text of each file to write or change, by its path below ``root``.

    With ``package``, the root is that of a clone of unskew, and the method becomes part of it.
    """
    if package and not _is_clone(root):
        raise UnskewError("package: this folder is not the root of a clone of unskew")
    values = _values(name, _KINDS[kind])
    if not package:
        values |= {"citation": "Authors, title and year, if it is published.", "paper": ""}
        test = "test_alone.py.txt"
        created = {Path(f"{values['name']}.py"): f"{kind}.py.txt",
                   Path(f"test_{values['name']}.py"): test}  # fmt: skip
        changed = {}
    else:
        values |= {"citation": 'TODO: authors, "title", year.', "paper": "TODO: authors, year"}
        created = {
            Path(f"src/unskew/methods/{values['name']}.py"): f"{kind}.py.txt",
            Path(f"tests/methods/test_{values['name']}.py"): "test.py.txt",
            Path(f"docs/methods/{values['name']}.md"): "page.md.txt",
        }
        changed = {
            _REGISTRY: _with_registry_lines(_read(root, _REGISTRY), values),
            _INDEX: _with_index_row(_read(root, _INDEX), values, _KINDS[kind]),
            _GUIDE: _with_guide_row(_read(root, _GUIDE), values, _KINDS[kind]),
            _NAV: _with_nav_line(_read(root, _NAV), values, _KINDS[kind]),
        }
    for path in created:
        if (root / path).exists():
            raise UnskewError(f"{path}: it already exists; choose another name or remove it")
    templates = files("unskew.cli").joinpath("method_templates")
    texts = {
        path: Template(templates.joinpath(template).read_text(encoding="utf-8")).substitute(values)
        for path, template in created.items()
    }
    return texts | changed


def write_files(root: Path, texts: Mapping[Path, str]) -> list[str]:
    """Write the files, and return which were written and which changed."""
    verbs = {path: "changed" if (root / path).exists() else "wrote" for path in texts}
    for path, text in texts.items():
        write_bytes(root / path, text.encode())
    return [f"{verb} {path}" for path, verb in verbs.items()]


def next_steps(name: str, *, package: bool) -> str:
    """Return what to do after the files are written."""
    module = name.lower()
    if not package:
        return (
            f"try it:  python test_{module}.py\n"
            f"         unskew compare --methods fedavg,{module}.py:{name[0].upper()}{name[1:]}"
        )
    return (
        f"try it:  make test ARGS=\"-k '{module} or docs'\"\n"
        f"         (or python -m pytest -k '{module} or docs', with the extra dev)\n"
        f"         unskew compare --methods fedavg,{module}\n"
        "then:    replace the example formula, its test, and what is marked TODO; make docs\n"
        "         fails as long as a TODO is on its page\n"
        "         python tests/pairs.py (a minute): updates the table of docs/composition.md\n"
        f"         unskew flower sends {module}: its row of docs/deploy.md, if it sends more\n"
        "         add a line to CHANGELOG.md; docs/add-a-method.md is the checklist"
    )


def _is_clone(root: Path) -> bool:
    """Return whether a folder is the root of a clone of unskew."""
    project = root / "pyproject.toml"
    return (root / _REGISTRY).is_file() and (
        project.is_file() and 'name = "unskew"' in project.read_text(encoding="utf-8")
    )


def _values(name: str, kind: _Kind) -> dict[str, str]:
    """Return the values of the templates, given a name such as ``GradNorm`` or ``gradnorm``."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]{1,24}", name):
        raise UnskewError(
            f"name must be 2 to 25 letters and digits, such as GradNorm (got {name!r})"
        )
    from unskew.methods import METHODS  # noqa: PLC0415 (imports torch)

    if name.lower() in METHODS:
        raise UnskewError(f"name: there is a method {name.lower()!r} already; choose another name")
    return {
        "name": name.lower(),
        "class_name": name[0].upper() + name[1:],
        "summary": kind.summary,
        "neutral": kind.neutral,
        "neutral_word": kind.neutral.replace("=", "_"),
        "neutral_equation": kind.neutral.replace("=", " = "),
        "equation": kind.equation,
        "evaluated": kind.evaluated,
        "traffic": kind.traffic,
    }


def _read(root: Path, path: Path) -> str:
    return (root / path).read_text(encoding="utf-8")


def _with_registry_lines(text: str, values: Mapping[str, str]) -> str:
    """Add the import, in its place of the alphabet, and the entry at the end of the table."""
    name, class_name = values["name"], values["class_name"]
    line = f"from unskew.methods.{name} import {class_name}"
    lines = text.splitlines()
    imports = [n for n, each in enumerate(lines) if each.startswith("from unskew.methods.")]
    later = (n for n in imports if lines[n].split()[1] > f"unskew.methods.{name}")
    lines.insert(next(later, imports[-1] + 1), line)
    end = lines.index("}", lines.index("METHODS: dict[str, type[Part]] = {"))
    lines.insert(end, f'    "{name}": {class_name},')
    return "\n".join(lines) + "\n"


def _with_index_row(text: str, values: Mapping[str, str], kind: _Kind) -> str:
    """Add a row to the table of the method's family."""
    row = f"| [`{values['name']}`]({values['name']}.md) | {kind.summary} |"
    return _added_after(text, f"## {kind.family}", "| ", row)


def _with_nav_line(text: str, values: Mapping[str, str], kind: _Kind) -> str:
    """Add the page to its family in the navigation of the site."""
    line = f"          - {values['class_name']}: methods/{values['name']}.md"
    return _added_after(text, f"      - {kind.family}:", "          - ", line)


def _added_after(text: str, heading: str, start: str, line: str) -> str:
    """Insert a line after the first block of lines with a certain start below a heading."""
    lines = text.splitlines()
    index = lines.index(heading) + 1
    while not lines[index].startswith(start):
        index += 1
    while index < len(lines) and lines[index].startswith(("|---", start)):
        index += 1
    lines.insert(index, line)
    return "\n".join(lines) + "\n"


def _with_guide_row(text: str, values: Mapping[str, str], kind: _Kind) -> str:
    """Add a row to the alphabetical table of what methods send."""
    begin, end = "<!-- sends: begin -->\n", "<!-- sends: end -->\n"
    before, _, rest = text.partition(begin)
    table, _, after = rest.partition(end)
    head, rows = table.splitlines(keepends=True)[:2], table.splitlines(keepends=True)[2:]
    rows.append(f"| `{values['name']}` | {kind.sends} |\n")
    rows.sort(key=lambda row: row.split("`")[1])
    return before + begin + "".join(head + rows) + end + after
