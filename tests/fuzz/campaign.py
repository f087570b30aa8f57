"""Feed damaged and unusual inputs to unskew, in one process; a case is reproduced by its number.

Every case must end in time, with a result or an error of one line, and write only below its folder.

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
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from inputs import KINDS, prepare

SECONDS = 60
"""How long a case may take, on a busy machine."""


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
    stock = prepare(folder / "stock")
    findings = []
    for number in cases:
        findings += run_case(number, stock, folder / "case", seed)
        if report is not None:
            report(number, findings)
    return findings


def run_case(number: int, stock: Path, folder: Path, seed: int = 0) -> list[Finding]:
    """Run one case in an empty folder that is removed afterwards."""
    kind, make = list(KINDS.items())[number % len(KINDS)]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    outside = _listing(stock)
    before = Path.cwd()
    os.chdir(folder)
    try:
        problem = _problem(make, random.Random(f"{seed}/{number}"), stock)
    finally:
        os.chdir(before)
    problems = [problem] if problem else []
    if _listing(stock) != outside:
        problems.append("files outside the folder of the case were changed")
    return [Finding(number, kind, each) for each in problems]


def _problem(make, rng: random.Random, stock: Path) -> str:
    """Return what is wrong with the end of a case; empty if nothing is."""
    from unskew.errors import UnskewError

    output, errors = _Stream(), _Stream()
    previous = signal.signal(signal.SIGALRM, _hang)
    signal.alarm(SECONDS)
    try:
        with (
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            make(rng, stock)
    except SystemExit as end:
        return _exit_problem(end.code, errors.text())
    except UnskewError as error:
        return f"an error of several lines: {error}" if "\n" in str(error) else ""
    except Hang:
        return f"took more than {SECONDS} s: {traceback.format_exc(limit=-3)}"
    except Exception:
        return traceback.format_exc(limit=-4)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
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


def _listing(folder: Path) -> Counter:
    return Counter(
        (str(path), path.stat().st_size if path.is_file() else 0) for path in folder.rglob("*")
    )


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
