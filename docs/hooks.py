"""The parts of the documentation site that are generated when it is built.

- The line ``<!-- options: NAME -->`` becomes a table of the options of a method, from what
  ``unskew methods --json`` prints.
- A page on which something is marked TODO is a warning, which ``--strict`` turns into an error.
- The pages in ``OUTSIDE``, which are not in ``docs/``, become pages of the site. Links that leave
  ``docs/`` lead to them; links to source files become plain text.
"""

import json
import logging
import re
import subprocess
import sys
from functools import cache
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = {
    "README.md": "index.md",
    "benchmarks/README.md": "benchmarks.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages outside docs/, relative to the root of the project, and the pages of the site they are.

The README has the home page as its counterpart; the others are copied.
"""

MARKER = re.compile(r"^<!-- options: (\S+) -->$", re.MULTILINE)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_ROLE = re.compile(r":(?:class|func|meth|mod|attr):<code>~?")

_TODO = re.compile(r"\bTODO: .*")

Row = dict[str, Any]

log = logging.getLogger("mkdocs.hooks")
"""Its warnings count for ``mkdocs build --strict``."""


def on_files(files: "Files", *, config: "MkDocsConfig") -> "Files":
    """Add the pages that are not in ``docs/``."""
    from mkdocs.structure.files import File  # noqa: PLC0415 (tests import this without mkdocs)

    for source, page in OUTSIDE.items():
        if page != "index.md":
            text = with_site_links((ROOT / source).read_text(encoding="utf-8"), source, page)
            files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, *, page: "Page", **_: object) -> str:
    """Insert the tables of options, and turn links that leave ``docs/`` into links of the site."""
    path = page.file.src_uri
    for left in to_do(markdown) if path != "add-a-method.md" else ():
        log.warning("%s: %s", path, left)
    if path.startswith(("results", "tutorial")):
        page.meta["hide"] = ["toc"]  # their tables need the width
    if path not in OUTSIDE.values() or path == "index.md":
        markdown = with_site_links(markdown, f"docs/{path}", path)
    return MARKER.sub(lambda found: options_table(rows_of_methods()[found[1]]), markdown)


def to_do(markdown: str) -> list[str]:
    """Return what is marked TODO on a page, as in the template of a new method's page."""
    return _TODO.findall(markdown)


def on_page_content(html: str, **_: object) -> str:
    """Show the roles of docstrings, such as ``:class:``, as plain code."""
    return _ROLE.sub("<code>", html)


@cache
def rows_of_methods() -> dict[str, Row]:
    """Return what the command line knows about every method."""
    command = [sys.executable, "-m", "unskew", "methods", "--json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {row["name"]: row for row in json.loads(output)}


def options_table(row: Row) -> str:
    """Return the options of a method as a Markdown table, and what it sends below it."""
    searched = {
        option: values if isinstance(values, str) else ", ".join(map(_value, values))
        for option, values in row["searched"].items()
    }
    rows = [["option", "default", "meaning", "searched by `--tune`"], ["---"] * 4]
    for option, default in row["options"].items():
        meaning = row["meanings"][option]
        rows.append([f"`{option}`", _text(default), meaning, searched.get(option, "")])
    columns = 4 if searched else 3
    lines = [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row[:columns]) + " |" for row in rows
    ]
    individual = "must" if row["needs individual updates"] else "need not"
    return "\n".join(
        [
            *lines,
            "",
            f"Sent to clients: {row['sent to clients']}. Sent to the server: "
            f"{row['sent to the server']}. The server {individual} see individual updates. "
            f"Meant for: {row['meant for']} accuracy.",
        ]
    )


def _value(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _text(default: object) -> str:
    if default is None or isinstance(default, bool):
        return {None: "none", True: "true", False: "false"}[default]
    return f"`{default}`"


def with_site_links(markdown: str, source: str, page: str) -> str:
    """Replace the links of a file that lead out of ``docs/``, or come from outside.

    ``source`` is the file's path in the project, ``page`` that of its page in the site.
    """

    def replaced(match: re.Match[str]) -> str:
        image, text, link = match.groups()
        path, hash_, anchor = link.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return match[0]
        target = normpath(str(PurePosixPath(source).parent / path))
        found = OUTSIDE.get(target)
        if target.startswith("docs/"):
            if source.startswith("docs/"):
                return match[0]
            found = target.removeprefix("docs/")
        if found is None:
            return str(text)
        return f"{image}[{text}]({relpath(found, str(PurePosixPath(page).parent))}{hash_}{anchor})"

    return _LINK.sub(replaced, markdown)
