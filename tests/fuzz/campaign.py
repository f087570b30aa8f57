"""Feed damaged and unusual inputs to unskew, in one process; a case is reproduced by its number.

Every case must end in time, with a result or an error of one line, and create only what it asks
for: nothing else in the working folder, and nothing in the home folder or that of temporary files.

    python tests/fuzz/campaign.py --cases 10000
    python tests/fuzz/campaign.py --only 4711
"""

import argparse
import contextlib
import io
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from inputs import KINDS, prepare

SECONDS = 60
"""How much processor time a case may take."""
WAITING_SECONDS = 600
"""How long a case may take in all: it may wait for a busy machine, but not for a pipe."""


@dataclass(frozen=True)
class Finding:
    """A case that did not end as it must."""

    number: int
    kind: str
    problem: str

    def __str__(self) -> str:
        return f"case {self.number} ({self.kind}): {self.problem}"


class Hang(BaseException):
    """A case took too long; not an Exception, so that no handler of the program swallows it."""


def run_campaign(cases, folder: Path, seed: int = 0, report=None) -> list[Finding]:
    """Run the cases of these numbers and return what went wrong."""
    findings = []
    with _own_folders(folder):
        prepare(folder / "stock")
        for number in cases:
            findings += run_case(number, folder, seed)
            if report is not None:
                report(number, findings)
    return findings


def run_case(number: int, folder: Path, seed: int = 0) -> list[Finding]:
    """Run one case in an empty folder, ``case`` in that of the campaign."""
    kind, (make, names) = list(KINDS.items())[number % len(KINDS)]
    case, targets = folder / "case", set(names)
    shutil.rmtree(case, ignore_errors=True)
    outside = _listing(folder)
    case.mkdir()
    os.chdir(case)
    try:
        rng = random.Random(f"{seed}/{number}")
        problem = _problem(lambda: make(rng, folder / "stock", targets))
    finally:
        os.chdir(folder)
    problems = [problem] if problem else []
    stray = {each.name for each in case.iterdir()} - targets
    problems += [f"{name!r} was created" for name in sorted(stray)]
    shutil.rmtree(case)
    changed = {path for path, _, _ in outside ^ _listing(folder)}
    problems += [f"{path} was created, changed or removed" for path in sorted(changed)]
    return [Finding(number, kind, each) for each in problems]


@contextlib.contextmanager
def _own_folders(folder: Path):
    """Set the working folder, the home folder and that of temporary files to fresh ones."""
    import matplotlib.font_manager  # noqa: F401 (its cache is written to the real home folder)

    home, temporary = folder / "home", folder / "tmp"
    home.mkdir()
    temporary.mkdir()
    kept, working, tempdir = dict(os.environ), Path.cwd(), tempfile.tempdir
    os.environ.update(HOME=str(home), TMPDIR=str(temporary))
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "UNSKEW_DATA"):
        os.environ.pop(name, None)
    tempfile.tempdir = None  # so that TMPDIR is read again
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(working)
        tempfile.tempdir = tempdir
        os.environ.clear()
        os.environ.update(kept)


def _problem(run) -> str:
    """Return what is wrong with the end of a case; empty if nothing is."""
    from unskew.errors import UnskewError

    output, errors = _Stream(), _Stream()
    previous = {each: signal.signal(each, _hang) for each in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(WAITING_SECONDS)
    try:
        with (
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            run()
    except SystemExit as end:
        return _exit_problem(end.code, errors.text())
    except UnskewError as error:
        return f"an error of several lines: {error}" if "\n" in str(error) else ""
    except Hang:
        return f"took too long: {traceback.format_exc(limit=-3)}"
    except Exception:
        return traceback.format_exc(limit=-4)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for each, handler in previous.items():
            signal.signal(each, handler)
    return "a terminal escape sequence was printed" if "\x1b" in output.text() else ""


def _exit_problem(code: object, errors: str) -> str:
    if code in (0, 1, None):
        return ""
    lines = [line for line in errors.splitlines() if line.startswith(("error: ", "Usage: "))]
    if code != 2 or len(lines) != 1 or "Traceback" in errors or "\x1b" in errors:
        return f"exit code {code} with {errors[-2000:]!r}"
    return ""


class _Stream(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def text(self) -> str:
        return self.buffer.getvalue().decode("utf-8", "replace")


def _hang(number: int, frame: object) -> None:
    raise Hang


def _listing(folder: Path) -> set[tuple[str, int, int]]:
    """Return the path of every file and folder; of files also size and time of the last change."""
    listing = set()
    for path in folder.rglob("*"):
        status = path.lstat()
        version = (0, 0) if path.is_dir() else (status.st_size, status.st_mtime_ns)
        listing.add((str(path.relative_to(folder)), *version))
    return listing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="run the case of this number")
    arguments = parser.parse_args()
    os.environ.update(TERM="dumb", COLUMNS="120")
    os.fsync = lambda descriptor: None
    cases = range(arguments.cases) if arguments.only is None else [arguments.only]
    started, shown = time.monotonic(), 0

    def report(number: int, findings: list[Finding]) -> None:
        nonlocal shown
        for finding in findings[shown:]:
            print(finding, flush=True)
        shown = len(findings)
        if number % 500 == 499:
            print(f"{number + 1} cases, {time.monotonic() - started:.0f} s, {shown} findings",
                  flush=True)  # fmt: skip

    with tempfile.TemporaryDirectory(prefix="unskew-fuzz-") as folder:
        findings = run_campaign(cases, Path(folder), arguments.seed, report)
    print(f"{len(cases)} cases, {time.monotonic() - started:.0f} s, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
