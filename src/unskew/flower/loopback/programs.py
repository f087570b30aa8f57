"""Programs in the background: each writes a log, is watched, and is ended with all it started."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from unskew.errors import UnskewError
from unskew.flower.loopback.process_tree import descendants, end, living, offspring

_TAIL = 15
"""Lines of a log that are shown when something fails."""


class Program:
    """A program in the background, whose output goes to a file."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path):
        self.name, self.log = name, log
        with log.open("ab") as output:
            self._said_before = output.tell()  # by a program of an earlier try in the same folder
            self._process = subprocess.Popen(
                command,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches us alone, who then end it in order
            )
        self._family = descendants(self.pid)

    @property
    def pid(self) -> int:
        """The id of the program's first process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the first process is still there."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """What the first process ended with; negative for a signal, None while it runs."""
        return self._process.poll()

    def look(self) -> None:
        """Remember the program's processes, to find them after their parent has ended."""
        self._family = offspring(self._family)

    def signal(self, number: int) -> None:
        """Send a signal to the first process alone, as an operator or the kernel would."""
        self.look()
        self._process.send_signal(number)

    @property
    def family(self) -> list[psutil.Process]:
        """The processes of the program that are alive, as far as they were seen."""
        self.look()
        return self._family

    def stop(self) -> None:
        """End the program and everything it started."""
        end(self.family)
        self.reap()

    def reap(self) -> None:
        """Read the exit code of the first process if it has ended, so that it is no zombie."""
        self._process.poll()

    def leftovers(self) -> list[int]:
        """Return the ids of the program's processes that are still alive."""
        return sorted(process.pid for process in living(self._family))

    def text(self) -> str:
        """Return everything the program said so far."""
        with self.log.open("rb") as log:
            log.seek(self._said_before)
            return log.read().decode("utf-8", errors="replace")

    def tail(self, lines: int = _TAIL) -> str:
        """Return the last lines the program said, indented and under its name."""
        last = self.text().splitlines()[-lines:]
        return "\n".join([f"the end of {self.log}:", *(f"    {line}" for line in last)])


class Programs:
    """The programs of one federation; leaving the context ends all of them, the last first."""

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
        """Start a program; one of the same name that has ended makes room for it."""
        earlier = self._programs.get(name)
        if earlier is not None and earlier.is_running:
            raise UnskewError(f"{name} is already running, as process {earlier.pid}")
        if earlier is not None:
            earlier.stop()
        log = self._logs / f"{name}.log"
        self._programs[name] = Program(name, command, {**self._env, **env}, log)
        return self._programs[name]

    def look(self) -> None:
        """Take note of all processes there are now."""
        for program in self._programs.values():
            program.look()

    def check(self, *names: str) -> None:
        """Complain, with the end of its log, about a program that has ended by itself."""
        self.look()
        for name in names:
            program = self._programs[name]
            if not program.is_running:
                raise UnskewError(f"{name} ended with code {program.exit_code}; {program.tail()}")

    def stop_all(self) -> None:
        """End every program and everything they started; a second Ctrl-C kills them at once."""
        family = [process for program in self._programs.values() for process in program.family]
        try:
            end(family)
        except KeyboardInterrupt:
            end(family, grace=0)
            raise
        finally:
            for program in self._programs.values():
                program.reap()

    def leftovers(self) -> list[int]:
        """Return the ids of processes that are still alive."""
        return [pid for program in self._programs.values() for pid in program.leftovers()]
