"""A SuperLink and its SuperNodes on loopback, from their certificates to their end."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from unskew.errors import UnskewError
from unskew.flower.loopback.certificates import (
    NodeKey,
    ServerFiles,
    make_node_key,
    make_server_files,
)
from unskew.flower.loopback.environment import (
    HOST,
    environment,
    free_ports,
    listens,
    program,
    wait_until,
)
from unskew.flower.loopback.programs import Program, Programs

_START = 120.0
"""Seconds that the SuperLink gets to listen; it takes a few on an idle machine."""
_COMMAND = 120.0
"""Seconds that commands of Flower's get; one takes two or three on an idle machine."""
_CONNECTION = "loopback"


@dataclass(frozen=True)
class Outcome:
    """How a run ended, as the SuperLink says, and what its server app said."""

    run_id: int
    status: str
    log: str

    @property
    def completed(self) -> bool:
        """Whether the server app came to its end."""
        return self.status == "finished:completed"


class Loopback:
    """A federation on this machine; entering the context starts it, leaving it ends it.

    ``folder`` gets certificates, keys and Flower's own files; ``kept``, if another, what is of use
    later: a log of every program, and what nodes keep between rounds. With ``tls`` everything is
    encrypted and only nodes whose key was registered are let in; without, anybody on this machine
    may take part.
    """

    def __init__(
        self, folder: Path, nodes: int, *, tls: bool = False, kept: Path | None = None
    ) -> None:
        self.folder, self.nodes, self.tls = folder.resolve(), nodes, tls
        self.kept = self.folder if kept is None else kept.resolve()
        self.port, *self._node_ports = free_ports(1 + nodes)
        self.programs = Programs(self.kept / "logs", environment())
        self._files: ServerFiles | None = None
        self._keys: dict[int, NodeKey] = {}
        self._runs = 0

    def __enter__(self) -> Self:
        try:
            self._write_connection()
            self.start_superlink()
            self._make_keys()
            for node in range(self.nodes):
                self.start_node(node)
        except BaseException:
            self.programs.stop_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.programs.stop_all()

    def start_superlink(self) -> Program:
        """Start the SuperLink, again after an end of it too: it finds its nodes in its database."""
        database = ["--database", str(self.folder / "superlink.db")]
        command = [program("flower-superlink"), "--host", HOST, "--port", str(self.port)]
        started = self.programs.start(
            "superlink", [*command, *self._server_options(), *database], **self._home("superlink")
        )
        if not wait_until(lambda: listens(self.port) or not started.is_running, _START):
            raise UnskewError(
                f"the SuperLink does not listen after {_START:.0f} s; {started.tail()}"
            )
        self.programs.check("superlink")
        return started

    def start_node(self, node: int) -> Program:
        """Start a SuperNode that is known by its key, where nodes are authenticated."""
        options = ["--insecure"]
        if self._files is not None:
            options = ["--root-certificates", str(self._files.authority)]
            options += ["--auth-supernode-private-key", str(self._keys[node].private)]
        return self.launch_node(node, options)

    def launch_node(self, node: int, options: list[str]) -> Program:
        """Start a SuperNode with options of one's own for how it connects."""
        port = self._node_ports[node] if node < self.nodes else free_ports(1)[0]
        return self.programs.start(
            node_name(node),
            [
                *(program("flower-supernode"), "--superlink", f"{HOST}:{self.port}"),
                *("--host", HOST, "--port", str(port)),
                *("--node-config", f"partition-id={node} num-partitions={self.nodes}"),
                *options,
            ],
            **self._home(node_name(node)),
            UNSKEW_STATE=str(self.kept / "states" / node_name(node)),
        )

    def register(self, *keys: NodeKey) -> None:
        """Tell the SuperLink that the holders of keys may take part."""
        self.flwr(*(["supernode", "register", str(key.public), _CONNECTION] for key in keys))

    def online(self) -> int:
        """Return how many nodes the SuperLink counts as online."""
        printed = self.flwr(["supernode", "list", _CONNECTION, "--format", "json"])
        return sum(node["status"] == "online" for node in json.loads(printed)["nodes"])

    def submit(self, app: Path, config: Mapping[str, Any]) -> Program:
        """Hand an app to the SuperLink; the program returned streams what its server app says."""
        self._runs += 1
        changes = " ".join(f"{key}={_toml(value)}" for key, value in config.items())
        command = [program("flwr"), "run", str(app), _CONNECTION, "--stream"]
        command += ["--run-config", changes] if changes else []
        return self.programs.start(f"run-{self._runs}", command, **self._home("user"))

    def wait(
        self, run: Program, seconds: float, watch: Callable[[], object] = lambda: None
    ) -> Outcome:
        """Wait for a submitted run; ``watch`` is called about every half second meanwhile."""

        def is_over() -> bool:
            self.programs.check("superlink")
            watch()
            return not run.is_running

        if not wait_until(is_over, seconds, pause=0.4):
            raise UnskewError(f"the run is not over after {seconds:.0f} s; {run.tail()}")
        watch()
        return self._outcome(run)

    def run(
        self,
        app: Path,
        config: Mapping[str, Any],
        seconds: float,
        watch: Callable[[], object] = lambda: None,
    ) -> Outcome:
        """Run an app to its end."""
        return self.wait(self.submit(app, config), seconds, watch)

    def flwr(self, *commands: Sequence[str]) -> str:
        """Run commands of Flower's, all in one process, and return what they print."""
        name = f"flwr {' '.join(commands[0][:2])}"
        try:
            done = subprocess.run(
                [sys.executable, "-m", "unskew.flower.loopback.commands", json.dumps(commands)],
                env={**environment(), **self._home("user")},
                capture_output=True,
                text=True,
                timeout=_COMMAND,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UnskewError(f"{name} has no answer after {_COMMAND:.0f} s") from None
        if done.returncode:
            raise UnskewError(f"{name} failed: {(done.stdout + done.stderr).strip()}")
        return done.stdout

    def _outcome(self, run: Program) -> Outcome:
        said = run.text()
        number = _run_id(said)
        if number is None:
            raise UnskewError(f"flwr run could not hand in the app; {run.tail()}")
        printed = self.flwr(["list", "--run-id", str(number), _CONNECTION, "--format", "json"])
        return Outcome(number, str(json.loads(printed)["runs"][0]["status"]), said)

    def _home(self, name: str) -> dict[str, str]:
        """Give each program its own place for Flower's files, as on machines of their own."""
        home = self.folder / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        return {"FLWR_HOME": str(home)}

    def _write_connection(self) -> None:
        trust = "insecure = true"
        if self.tls:
            self._files = make_server_files(self.folder / "certificates")
            trust = f"root-certificates = {json.dumps(str(self._files.authority))}"
        home = Path(self._home("user")["FLWR_HOME"])
        lines = [
            "[superlink]",
            f'default = "{_CONNECTION}"',
            f"[superlink.{_CONNECTION}]",
            f'address = "{HOST}:{self.port}"',
            trust,
        ]
        (home / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _make_keys(self) -> None:
        if self.tls:
            nodes = range(self.nodes)
            self._keys = {k: make_node_key(self.folder / "keys", node_name(k)) for k in nodes}
            self.register(*self._keys.values())

    def _server_options(self) -> list[str]:
        if self._files is None:
            return ["--insecure"]
        return [
            *("--ssl-ca-certfile", str(self._files.authority)),
            *("--ssl-certfile", str(self._files.certificate)),
            *("--ssl-keyfile", str(self._files.key)),
            "--enable-supernode-auth",
        ]


def node_name(node: int) -> str:
    """Return what a node is called in files and messages."""
    return f"node-{node}"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(str(value)) if isinstance(value, str | Path) else str(value)


def _run_id(said: str) -> int | None:
    for line in said.splitlines():
        words = line.split()
        if "Successfully started run" in line and words[-1].isdigit():
            return int(words[-1])
    return None
