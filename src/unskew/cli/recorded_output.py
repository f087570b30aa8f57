"""What a comparison printed, which the same command prints again as long as nothing has changed.

Reading the runs of a finished comparison, judging them and writing the page needs PyTorch and
SciPy, which take seconds to import. So the folder of a comparison holds what was printed, with
hashes of everything it depends on: the command, the code, the installed packages, the samples and
every file of the folder. If one of them differs, the runs are read again.
"""

import hashlib
import json
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unskew.cli.output import console, echo_error
from unskew.errors import UnskewWarning
from unskew.utils.printable import printable

RECORD = ".unskew-output.json"

_MAX_BYTES = 2**30
"""The most that is hashed; reading more takes longer than it saves."""

_COLOR = re.compile(r"\x1b\[[\d;]*m")


@dataclass(frozen=True)
class RecordedOutput:
    """The output of ``unskew compare`` with these arguments, by the names of its parameters."""

    arguments: Mapping[str, Any]
    _warnings: list[str] = field(default_factory=list, init=False)
    _texts: list[str] = field(default_factory=list, init=False)

    @property
    def folder(self) -> Path:
        """The folder of the comparison."""
        return Path(self.arguments["out"])

    @property
    def is_reproducible(self) -> bool:
        """Whether the files that are hashed decide what the command prints.

        Files of the user can import others, and a budget of time may allow further seeds.
        """
        given = self.arguments
        custom = any(".py" in str(value) for value in given.values())
        return given["out"] is not None and given["resume"] and not given["budget"] and not custom

    def print_again(self) -> bool:
        """Print the output of the last call, unless something has changed; return whether."""
        recorded = self._read() if self.is_reproducible else None
        if recorded is None or not self._is_current(recorded):
            return False
        for warning in recorded["warnings"]:
            echo_error(f"warning: {warning}")
        sys.stdout.write(recorded["output"])
        return True

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the warnings of unskew inside this context, and what is printed on stdout."""
        show, stdout = warnings.showwarning, sys.stdout

        def record(message: Any, category: type[Warning], *args: Any, **kwargs: Any) -> None:
            if issubclass(category, UnskewWarning):
                self._warnings.append(printable(str(message)))
            show(message, category, *args, **kwargs)

        warnings.showwarning = record
        sys.stdout = _Tee(stdout, self._texts)
        try:
            yield
        finally:
            warnings.showwarning, sys.stdout = show, stdout

    def write(self) -> None:
        """Write what was recorded to the folder of the comparison, in place of an earlier record.

        The record only saves time, so it is not an error if it cannot be written.
        """
        from unskew.runs.atomic import write_json  # noqa: PLC0415 (help does not need them)
        from unskew.runs.leftovers import remove_dead_writes  # noqa: PLC0415

        if not self.is_reproducible:
            return
        with suppress(OSError):
            remove_dead_writes(self.folder, (RECORD,))
            files = self._files()
            if sum(files.values()) <= _MAX_BYTES:
                record = {
                    "request": self._request(files),
                    "content": _content(files),
                    "warnings": self._warnings,
                    "output": "".join(self._texts),
                }
                write_json(self.folder / RECORD, record)

    def _read(self) -> dict[str, Any] | None:
        """Return the record of an earlier call; None if it is not one that is safe to print."""
        path = self.folder / RECORD
        try:
            record = json.loads(path.read_bytes()) if path.is_file() else {}
            texts = [record["output"], *record["warnings"]]
            plain = _COLOR.sub("", "\n".join(texts))
        except (OSError, ValueError, RecursionError, KeyError, TypeError):
            return None
        return record if printable(plain, keep="\n") == plain else None

    def _is_current(self, recorded: Mapping[str, Any]) -> bool:
        try:
            files = self._files()
            if recorded.get("request") != self._request(files):
                return False
            return bool(recorded.get("content") == _content(files))
        except OSError:
            return False

    def _files(self) -> dict[Path, int]:
        """Return all files that the output depends on, with their sizes."""
        code, data = Path(__file__).parents[1], _data(self.arguments["data"])
        found = (path for root in (code, self.folder, *data) for path in _below(root))
        used = (path for path in found if RECORD not in path.name and path.suffix != ".pyc")
        return {path: path.stat().st_size for path in sorted(used)}

    def _request(self, files: Mapping[Path, int]) -> str:
        """Return a hash of all that the output depends on, except for the content of files."""
        terminal = console()
        inputs = [
            {name: str(value) for name, value in self.arguments.items()},
            [Path(self.arguments["data"]).resolve().name, sys.version, *_installed_packages()],
            [terminal.width, terminal.color_system, terminal.encoding],
            [[os.fspath(path), size] for path, size in files.items()],
        ]
        return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()


def _content(files: Iterable[Path]) -> str:
    """Return a hash of the content of all files."""
    content = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            content.update(hashlib.file_digest(file, "sha256").digest())
    return content.hexdigest()


def _data(name: str) -> list[Path]:
    """Return the files of ``--data``: a path, or a source, which may be part of a package."""
    from unskew.data.catalogue import CATALOGUE  # noqa: PLC0415 (imports NumPy)
    from unskew.data.sources import find  # noqa: PLC0415

    found = [Path(name), find(name) if name in CATALOGUE else None]
    return [path for path in found if path is not None and path.exists()]


def _below(root: Path) -> Iterator[Path]:
    """Yield a file, or all files of a folder; one with links to other folders is an error."""
    if root.is_file():
        yield root
    for folder, names, files in os.walk(root):
        for name in names:
            if (Path(folder) / name).is_symlink():
                raise OSError(f"{folder}/{name} is a link")
        yield from (path for path in map(Path(folder).joinpath, files) if path.is_file())


def _installed_packages() -> list[str]:
    """Return the names and versions of all packages that can be imported."""
    folders = map(Path, sys.path)
    return sorted({path.name for each in folders for path in each.glob("*.*-info")})


class _Tee:
    """A text stream that also keeps what is written to it; nothing is written past it."""

    def __init__(self, stream: Any, texts: list[str]) -> None:
        self._stream, self._texts = stream, texts

    def write(self, text: str) -> int:
        """Write a text and keep it."""
        written: int = self._stream.write(text)
        self._texts.append(text)
        return written

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self._stream, name)
