"""Read JSON that anybody may have written: an error is one line."""

import json
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from unskew.errors import UnskewError
from unskew.utils.printable import printable
from unskew.utils.specs import explain

_SUSPICIOUS = re.compile(
    rb"\\u(d[89a-f]|00[0189]|007f|20[026])|\x7f|\xc2[\x80-\x9f]|\xe2[\x80\x81]", re.IGNORECASE
)
"""Bytes that occur in any JSON text with a character that is not printable."""


def read_json_object(path: Path, *, verbatim: str | None = None) -> dict[str, Any]:
    """Return the object in a JSON file, with its texts made printable.

    Those below the key ``verbatim``, such as categories that cells are compared with, stay as they
    are.
    """
    if path.exists() and not path.is_file():  # a pipe would never end
        raise UnskewError(f"{path}: is not a file")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UnskewError(f"{path}: cannot be read: {error.strerror}") from None
    value = parse_json_object(content, f"{path}: is not JSON")
    if _SUSPICIOUS.search(content):
        kept = {verbatim: value[verbatim]} if verbatim in value else {}
        cleaned: dict[str, Any] = _printable(value)
        return cleaned | kept
    return value


def read_checked(path: Path, model: type[BaseModel], fix: str) -> dict[str, Any]:
    """Return the object in a JSON file; raise unless a model accepts it, with what to do."""
    value = read_json_object(path)
    check_json(value, model, path, fix)
    return value


def check_json(value: object, model: type[BaseModel], path: Path, fix: str) -> None:
    """Raise an error of one line, which names file and field, if a model rejects a value."""
    try:
        model.model_validate(value)
    except ValidationError as error:
        raise damaged(path, explain(error).partition("; ")[0], fix) from None
    except RecursionError:
        raise damaged(path, "it is nested too deeply", fix) from None


def damaged(path: Path, problem: str, fix: str) -> UnskewError:
    """Return the error about a file that somebody has changed."""
    return UnskewError(printable(f"{path}: is damaged or of another version: {problem}; {fix}"))


def parse_json_object(content: bytes, problem: str) -> dict[str, Any]:
    """Return the object in a JSON text; ``problem`` starts the message of an error."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise UnskewError(f"{problem} ({reason}); move the run's folder away") from None
    if not isinstance(value, dict):
        raise UnskewError(f"{problem}: it holds a {type(value).__name__}, not an object")
    return value


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): _printable(item) for key, item in value.items()}
    return [_printable(item) for item in value] if isinstance(value, list) else value


def parse_line(line: bytes, path: Path) -> dict[str, Any]:
    """Parse a line of a log, which is one JSON object."""
    return parse_json_object(line, f"{path}: is damaged, a line of it is not JSON")
