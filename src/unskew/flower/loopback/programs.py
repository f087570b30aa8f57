"""Programs in the background, each with a log, that are stopped with all their descendants."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from unskew.errors import UnskewError
from unskew.flower.loopback.process_tree import descendants, terminate, with_descendants
from unskew.utils.printable import printable

_TAIL = 15
"""How many lines of a log are shown when something fails."""


class Program:
    """A program in the background, whose output goes to a file."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path):
        self.name, self.log = name, log
        with log.open("ab") as output:
            self._log_start = output.tell()  # an earlier program may have written to this log
            self._process = subprocess.Popen(
                command,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C must reach only this process, which then stops it
            )
        self._processes = descendants(self.pid)

    @property
    def pid(self) -> int:
        """The id of the program's first process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the first process is running."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the first process; negative for a signal, None while it runs."""
        return self._process.poll()

    def refresh(self) -> None:
        """Record the program's processes, to find them after their parent has exited."""
        self._processes = with_descendants(self._processes)

    def signal(self, number: int) -> None:
        """Send a signal to the first process only, as an operator or the kernel would."""
        self.refresh()
        self._process.send_signal(number)

    @property
    def processes(self) -> list[psutil.Process]:
        """The known processes of the program that are alive."""
        self.refresh()
        return self._processes

    def stop(self) -> None:
        """Stop the program and everything it started."""
        terminate(self.processes)
        self.reap()

    def reap(self) -> None:
        """Read the exit code of the first process if it has exited: it would stay a zombie."""
        self._process.poll()

    def text(self) -> str:
        """Return everything the program has printed."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode("utf-8", errors="replace")

    def tail(self, lines: int = _TAIL) -> str:
        """Return the last lines the program printed, indented, after the path of the log."""
        last = self.text().splitlines()[-lines:]
        return "\n".join([f"the end of {self.log}:", *(f"    {line}" for line in last)])


_ERROR = re.compile(r"^(?:\w+\.)*(?P<kind>[A-Z]\w*(?:Error|Exception|Refusal)): (?P<text>.+)$")


def last_error(log: str) -> str | None:
    """Return the last line of a log that ends a traceback; of unskew's errors, the text alone."""
    found = [match for line in log.splitlines() if (match := _ERROR.match(line))]
    if not found:
        return None
    kind, text = found[-1]["kind"], printable(found[-1]["text"])
    return text if kind == UnskewError.__name__ else f"{kind}: {text}"


class Programs:
    """The programs of one federation; leaving the context stops all of them."""

    def __init__(self, logs: Path, env: Mapping[str, str]) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._logs, self._env = logs, dict(env)
        self._programs: dict[str, Program] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop_all()

    def __getitem__(self, name: str) -> Program:
        return self._programs[name]

    def start(self, name: str, command: Sequence[str], **env: str) -> Program:
        """Start a program; it replaces one of the same name that has exited."""
        previous = self._programs.get(name)
        if previous is not None and previous.is_running:
            raise UnskewError(f"{name} is already running, as process {previous.pid}")
        if previous is not None:
            previous.stop()
        log = self._logs / f"{name}.log"
        self._programs[name] = Program(name, command, {**self._env, **env}, log)
        return self._programs[name]

    @property
    def processes(self) -> list[psutil.Process]:
        """The known processes of all programs that are alive."""
        return [process for each in self._programs.values() for process in each.processes]

    def refresh(self) -> None:
        """Record the processes of all programs."""
        for program in self._programs.values():
            program.refresh()

    def check(self, *names: str) -> None:
        """Raise, with the end of its log, if one of the named programs has exited."""
        self.refresh()
        for name in names:
            program = self._programs[name]
            if not program.is_running:
                raise UnskewError(f"{name} exited with code {program.exit_code}; {program.tail()}")

    def stop_all(self) -> None:
        """Stop every program and everything they started; a second Ctrl-C kills them at once."""
        processes = self.processes
        try:
            terminate(processes)
        except KeyboardInterrupt:
            terminate(processes, grace=0)
            raise
        finally:
            for program in self._programs.values():
                program.reap()
