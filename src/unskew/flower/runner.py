"""The runner whose clients are nodes of a Flower federation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from logging import WARNING

import numpy as np
import torch
from flwr.app import RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from unskew.data.federation import Federation
from unskew.engine.client import Workshop
from unskew.engine.cohort import Result, Task
from unskew.engine.evaluate import ByClient
from unskew.engine.record import Tests, has_personal_models
from unskew.engine.rounds import sent_down, sent_up
from unskew.engine.settings import Settings
from unskew.flower.checks import Upload, read_uploads
from unskew.flower.post import Answers, send
from unskew.flower.roster import Roster
from unskew.flower.wire import ARRAYS, EVALUATE, METRICS, ORDER, TRAIN, Order, Version, to_arrays
from unskew.methods.base import Finished, Tensors, Trained
from unskew.network import Network
from unskew.runs.checkpoint import Position

_TICKET = "version"
"""The server keeps no client's state, only which version of it counts."""


@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes as a run's crew; ``wait`` is how long a round waits for its quorum."""

    grid: Grid
    roster: Roster
    method: str
    settings: Settings
    timeout: float
    wait: float
    bound: float | None

    def arithmetic(
        self, network: Network, federation: Federation, settings: Settings, device: torch.device
    ) -> str:
        """Say in which order sums are taken: each node computes by itself."""
        del network, federation, settings, device
        return "per client"

    def runner(self, shop: Workshop, stage: int, cohort: int) -> "OnNodes":
        """Return what lets nodes train a stage."""
        del cohort
        return OnNodes(self, shop, stage)

    def own_tests(self, shop: Workshop, position: Position) -> Tests | None:
        """Let every node that has test samples measure on them; personal models stay there."""
        server, method = position.server, shop.method
        assert server is not None
        tensors: Tensors = {"global": method.model(server)}
        clients = np.flatnonzero(shop.federation.test.sizes).tolist()
        letters = {}
        for k in clients:
            seen = tensors
            if has_personal_models(method, shop.network):
                view = method.seen_by(server, k)
                slots = {f"slot/{name}": slot for name, slot in view.slots.items()}
                seen = {**tensors, "vector": view.vector, **slots}
            ticket = _version(position.states.get(k, {}))
            letters[k] = self.letter(shop, position.stage, position.round, k, ticket, seen)
        answers = self.send(EVALUATE, letters)
        return _tests(answers)

    def letter(
        self,
        shop: Workshop,
        stage: int,
        round_: int,
        client: int,
        state: Version | None,
        tensors: Tensors,
    ) -> RecordDict:
        """Return the content of a message to a client."""
        noise = None if shop.private is None else shop.private.noise_multiplier
        order = Order(
            run=self.roster.run,
            method=self.method,
            settings=self.settings,
            stage=stage,
            round=round_,
            client=client,
            clients=len(shop.federation),
            classes=shop.federation.classes,
            layout=shop.network.layout.fingerprint,
            noise=noise,
            state=state,
        )
        return RecordDict({ORDER: order.to_record(), ARRAYS: to_arrays(tensors)})

    def send(self, kind: str, letters: Mapping[int, RecordDict]) -> Answers:
        """Send letters to the nodes that are there, and say who is missing, by name."""
        nodes = self.roster.online(list(letters), self.settings.quorum, self.wait)
        there = {k: (nodes[k], letter) for k, letter in letters.items() if k in nodes}
        answers = send(self.grid, kind, there, self.timeout)
        away = {k: "it is not connected" for k in letters if k not in nodes}
        named = Answers(
            answers.contents, self._named(answers.refused), self._named({**answers.missing, **away})
        )
        for why in (*named.refused.values(), *named.missing.values()):
            log(WARNING, "unskew: %s", why)
        return named

    def _named(self, reasons: Mapping[int, str]) -> dict[int, str]:
        return {k: f"{self.roster.names[k]}: {why}" for k, why in sorted(reasons.items())}


class OnNodes:
    """Trains the clients of one stage where their samples are."""

    kind = "per client"

    def __init__(self, nodes: Nodes, shop: Workshop, stage: int) -> None:
        self._nodes, self._shop, self._stage = nodes, shop, stage
        layout = shop.network.layout
        self._up, self._down = sent_up(shop.method, layout), sent_down(shop.method, layout)

    def train(self, round_: int, tasks: Sequence[Task]) -> Result:
        """Send the tasks out, and make one result of the answers that can be used."""
        letters = {
            task.client: self._nodes.letter(
                self._shop, self._stage, round_, task.client, _version(task.state),
                self._sent(task),
            )
            for task in tasks
        }  # fmt: skip
        answers = self._nodes.send(TRAIN, letters)
        sent = {task.client: task.payload["model"] for task in tasks}
        uploads, refused = read_uploads(
            answers.contents, sent, self._up, self._shop, self._nodes.bound
        )
        named = {k: f"{self._nodes.roster.names[k]}: {why}" for k, why in refused.items()}
        for why in named.values():
            log(WARNING, "unskew: rejected %s", why)
        return self._result(round_, tasks, uploads, {**answers.refused, **named}, answers.missing)

    def close(self) -> None:
        """Nothing to release: nodes stay connected."""

    def _sent(self, task: Task) -> Tensors:
        """Return the payload, of the model only what this client does not have itself."""
        version = _version(task.state)
        if version is None or version[0] != self._stage:
            return task.payload
        mask = self._down if "kept" in task.state else self._up
        if mask is None:
            return task.payload
        return {**task.payload, "model": task.payload["model"][mask]}

    def _result(
        self,
        round_: int,
        tasks: Sequence[Task],
        uploads: Mapping[int, Upload],
        refused: Mapping[int, str],
        missing: Mapping[int, str],
    ) -> Result:
        size = self._shop.network.layout.size
        stack = torch.zeros(len(tasks), size)
        trained: list[Trained] = []
        finished: list[Finished] = []
        samples = []
        for row, task in enumerate(tasks):
            upload = uploads.get(task.client)
            if upload is None:
                trained.append(Trained(stack[row], 0, float("nan"), finite=False))
                finished.append(Finished())
                samples.append(0)
                continue
            stack[row, self._up if self._up is not None else slice(None)] = upload.model
            trained.append(replace(upload.trained, vector=stack[row]))
            state = self._ticket(round_, task.state) if upload.keeps else {}
            finished.append(Finished(upload.extras, state))
            samples.append(upload.samples)
        return Result(stack, trained, finished, samples, refused, missing)

    def _ticket(self, round_: int, before: Tensors) -> Tensors:
        ticket = {**before, _TICKET: torch.tensor([self._stage, round_])}
        if self._shop.method.kept(self._shop.network.layout) is not None:
            ticket["kept"] = torch.empty(0)
        return ticket


def _version(state: Tensors) -> Version | None:
    if _TICKET not in state:
        return None
    stage, round_ = state[_TICKET].tolist()
    return stage, round_


def _tests(answers: Answers) -> Tests | None:
    """Make tables of what nodes measured; None if nobody did."""
    clients = sorted(answers.contents)
    if not clients:
        return None
    told = [dict(answers.contents[k].metric_records[METRICS]) for k in clients]
    levels = []
    for level in ("local/", "personal/"):
        names = [name for name in told[0] if name.startswith(level)]
        columns = {
            name.removeprefix(level): np.array([each[name] for each in told], np.float64)
            for name in names
        }
        levels.append(ByClient(np.array(clients), columns))
    return levels[0], levels[1]
