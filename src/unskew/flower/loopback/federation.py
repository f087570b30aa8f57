"""A SuperLink and its SuperNodes on loopback: certificates, start, runs and shutdown."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
    is_listening,
    program,
    wait_until,
)
from unskew.flower.loopback.programs import Program, Programs, last_error
from unskew.runs.file_names import NODE_STATES, SERVER_LOGS

_START = 120.0
"""Seconds to wait for the SuperLink to listen; it takes a few on an idle machine."""
_COMMAND = 120.0
"""Seconds to wait for ``flwr`` commands; one takes two or three on an idle machine."""
CONNECTION = "loopback"
"""The name of the SuperLink in the configuration of ``flwr``."""


@dataclass(frozen=True)
class EndedRun:
    """How a run ended according to the SuperLink, and the log of its server app."""

    run_id: int
    status: str
    log: str
    node_errors: Mapping[str, str] = field(default_factory=dict)
    """The last error in the log of each node that has one."""

    @property
    def completed(self) -> bool:
        """Whether the server app completed."""
        return self.status == "finished:completed"


class Loopback:
    """A federation on this machine; entering the context starts it, leaving it stops it.

    Certificates, keys and Flower's files are written to ``folder``; the logs of all programs and
    the nodes' states to ``out``, by default the same folder. With ``tls``, all traffic is encrypted
    and only nodes with a registered key are accepted; without it, any local process can join.
    """

    def __init__(
        self, folder: Path, nodes: int, *, tls: bool = False, out: Path | None = None
    ) -> None:
        self.folder, self.nodes, self.tls = folder.resolve(), nodes, tls
        self.out = self.folder if out is None else out.resolve()
        self.port, *self._node_ports = free_ports(1 + nodes)
        self.programs = Programs(self.out / SERVER_LOGS, environment())
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
        """Start or restart the SuperLink; its database keeps the registered nodes."""
        database = ["--database", str(self.folder / "superlink.db")]
        command = [program("flower-superlink"), "--host", HOST, "--port", str(self.port)]
        started = self.programs.start(
            "superlink", [*command, *self._server_options(), *database], **self._home("superlink")
        )
        if not wait_until(lambda: is_listening(self.port) or not started.is_running, _START):
            raise UnskewError(
                f"the SuperLink is not listening after {_START:.0f} s; {started.tail()}"
            )
        self.programs.check("superlink")
        return started

    def start_node(self, node: int) -> Program:
        """Start a SuperNode; with TLS, it authenticates with its registered key."""
        options = ["--insecure"]
        if self._files is not None:
            options = ["--root-certificates", str(self._files.authority)]
            options += ["--auth-supernode-private-key", str(self._keys[node].private)]
        return self.launch_node(node, options)

    def launch_node(self, node: int, options: list[str]) -> Program:
        """Start a SuperNode with the given connection options."""
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
            UNSKEW_STATE=str(self.out / NODE_STATES / node_name(node)),
        )

    def register(self, keys: Mapping[int, NodeKey]) -> None:
        """Register node keys with the SuperLink, each with its node's partition-id as the name."""
        command = ["supernode", "register"]
        self.flwr(
            *(
                [*command, str(key.public), CONNECTION, "--name", str(node)]
                for node, key in keys.items()
            )
        )

    def submit(self, app: Path, config: Mapping[str, Any]) -> Program:
        """Submit an app to the SuperLink; the returned program streams the server app's log."""
        self._runs += 1
        changes = " ".join(f"{key}={_toml(value)}" for key, value in config.items())
        command = [program("flwr"), "run", str(app), CONNECTION, "--stream"]
        command += ["--run-config", changes] if changes else []
        return self.programs.start(f"run-{self._runs}", command, **self._home("user"))

    def wait(
        self, run: Program, seconds: float, watch: Callable[[], object] = lambda: None
    ) -> EndedRun:
        """Wait for a submitted run, calling ``watch`` about every half second."""

        def is_over() -> bool:
            self.programs.check("superlink")
            watch()
            return not run.is_running

        if not wait_until(is_over, seconds, pause=0.4):
            raise UnskewError(f"the run has not ended after {seconds:.0f} s; {run.tail()}")
        watch()
        return self._ended(run)

    def run(
        self,
        app: Path,
        config: Mapping[str, Any],
        seconds: float,
        watch: Callable[[], object] = lambda: None,
    ) -> EndedRun:
        """Submit an app and wait until its run has ended."""
        return self.wait(self.submit(app, config), seconds, watch)

    def flwr(self, *commands: Sequence[str]) -> str:
        """Run ``flwr`` commands, all in one process, and return what they print."""
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
            raise UnskewError(f"{name} has not finished after {_COMMAND:.0f} s") from None
        if done.returncode:
            raise UnskewError(f"{name} failed: {(done.stdout + done.stderr).strip()}")
        return done.stdout

    def _ended(self, run: Program) -> EndedRun:
        log = run.text()
        run_id = _find_run_id(log)
        if run_id is None:
            raise UnskewError(f"flwr run could not submit the app; {run.tail()}")
        printed = self.flwr(["list", "--run-id", str(run_id), CONNECTION, "--format", "json"])
        names = [node_name(node) for node in range(self.nodes)]
        errors = {name: last_error(self.programs[name].text()) for name in names}
        found = {name: error for name, error in errors.items() if error is not None}
        return EndedRun(run_id, str(json.loads(printed)["runs"][0]["status"]), log, found)

    def _home(self, name: str) -> dict[str, str]:
        """Give each program its own FLWR_HOME, as if it ran on a separate machine."""
        home = self.folder / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        return {"FLWR_HOME": str(home)}

    def _write_connection(self) -> None:
        security = "insecure = true"
        if self.tls:
            self._files = make_server_files(self.folder / "certificates")
            security = f"root-certificates = {json.dumps(str(self._files.authority))}"
        home = Path(self._home("user")["FLWR_HOME"])
        lines = [
            "[superlink]",
            f'default = "{CONNECTION}"',
            f"[superlink.{CONNECTION}]",
            f'address = "{HOST}:{self.port}"',
            security,
        ]
        (home / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _make_keys(self) -> None:
        if self.tls:
            nodes = range(self.nodes)
            self._keys = {k: make_node_key(self.folder / "keys", node_name(k)) for k in nodes}
            self.register(self._keys)

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
    """Return the name of a node in files and messages."""
    return f"node-{node}"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(str(value)) if isinstance(value, str | Path) else str(value)


def _find_run_id(log: str) -> int | None:
    for line in log.splitlines():
        words = line.split()
        if "Successfully started run" in line and words[-1].isdigit():
            return int(words[-1])
    return None
