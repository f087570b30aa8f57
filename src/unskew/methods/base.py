"""The contract of a method: FedAvg, and a default for every hook.

A method is a frozen dataclass of its hyper-parameters. It changes the few hooks it needs; the
engine, the pool and Flower call them in the order of a round::

    server: broadcast ─▶ client: prepare ─▶ objective, step by step ─▶ finish ─▶ server: aggregate

Hooks are pure: they return new values and keep nothing on ``self``. A hook that adds to what others
do (a term of the objective, a weigher, a reference) calls ``super()``: that is what lets
``fedprox+ida`` be both.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from unskew.layout import Kind, Layout
from unskew.network import Batch, Buffers, Network
from unskew.rules.product import product
from unskew.rules.rule import Rule, weighted_mean
from unskew.rules.uploads import Uploads
from unskew.rules.weighers import Weigher, by_samples
from unskew.spelling import OPTIONS

if TYPE_CHECKING:
    from unskew.data.federation import Federation

Tensors = Mapping[str, Tensor]


@plain_dataclass(frozen=True)
class About:
    """What the table of methods says of a method."""

    title: str
    paper: str
    kind: Literal["server", "objective", "personal", "several models", "densities"]
    level: Literal["global", "global on local tests", "personal"] = "global"
    needs_individual_updates: bool = False
    """Whether the server must see each client's update, which excludes secure aggregation."""


@plain_dataclass(frozen=True, eq=False)
class Server:
    """What the server keeps between rounds: the global vector, and what else the method needs."""

    vector: Tensor
    slots: Tensors = field(default_factory=dict)


@plain_dataclass(frozen=True, eq=False)
class Client:
    """What client hooks may look at: the client's own samples, and the network."""

    id: int
    x: Tensor
    y: Tensor
    network: Network
    classes: int
    lr: float = 0.0
    """The learning rate of this round's local steps."""


@plain_dataclass(frozen=True, eq=False)
class Start:
    """Where local training starts, and what the objective may refer to on the way."""

    vector: Tensor
    refs: Tensors = field(default_factory=dict)
    sample_weights: Tensor | None = None


@plain_dataclass(frozen=True, eq=False)
class Trained:
    """Where local training ended."""

    vector: Tensor
    steps: int
    loss: float
    accuracy: float | None = None
    finite: bool = True


@plain_dataclass(frozen=True, eq=False)
class Finished:
    """What a client sends besides its model, and what it keeps for its next round."""

    extras: Tensors = field(default_factory=dict)
    state: Tensors = field(default_factory=dict)


@plain_dataclass(frozen=True)
class Stage:
    """A part of a run with its own hooks, rounds and network; the last is the task itself.

    Clients keep their state from stage to stage, and each stage finds the servers of the earlier
    ones in :meth:`Method.begin`.
    """

    name: str
    method: "Method"
    rounds: int | None = None
    network: Callable[[tuple[int, ...], int], nn.Module] | None = None
    """Builds the stage's network from the shape of a sample and the number of classes; None
    takes the run's."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Method:
    """FedAvg, as the base of all methods.

    ``buffers`` is the policy for BatchNorm's running statistics: "average" sends and averages
    them with the model, "local" leaves each client its own.
    """

    buffers: Literal["average", "local"] = "average"

    about: ClassVar[About]
    wants_train_accuracy: ClassVar[bool] = False
    """Whether clients measure their accuracy on their own training samples after training."""
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {}
    """By option, the values its paper searched; what ``compare`` may tune."""

    def stages(self) -> tuple[Stage, ...]:
        """Return the parts of a run, in order: here, the task alone."""
        return (Stage("task", self),)

    # Before the first round.

    def check(self, network: Network, samples: Tensor) -> None:
        """Complain if the method cannot train a network; ``samples`` are a few to try it on."""

    def hand_out(self, federation: "Federation", seed: int) -> tuple["Federation", Tensors]:
        """Return the federation that is trained on, and what the server holds of the difference.

        For methods that give clients samples besides their own. What the server holds joins its
        slots, and a method must send it to be counted.
        """
        del seed
        return federation, {}

    def candidates(self, clients: int, round_: int, seed: int) -> Sequence[int] | None:
        """Return who may take part in a round, in ascending order; None means everybody."""
        del clients, round_, seed
        return None

    # On the server.

    def begin(self, vector: Tensor, layout: Layout, earlier: Mapping[str, Server]) -> Server:
        """Return the server's state before the first round of a stage."""
        del layout, earlier
        return Server(vector)

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Return what is sent to a client; ``model`` is the vector it trains."""
        del client
        return {"model": server.vector}

    def aggregate(self, server: Server, uploads: Uploads) -> tuple[Server, dict[str, Any]]:
        """Combine a round's uploads; the diagnostics say at least which weight each client got."""
        vector, diagnostics = self.rule(server).apply(uploads)
        return self.step(server, vector, uploads.layout), dict(diagnostics)

    def rule(self, server: Server) -> Rule:
        """Return the rule that makes one vector of the uploads: here, a weighted mean."""
        weighers = self.weighers(server) or (by_samples(),)
        return weighted_mean(weighers[0] if len(weighers) == 1 else product(*weighers))

    def weighers(self, server: Server) -> tuple[Weigher, ...]:
        """Return what weights are the product of; without any, clients count by their samples.

        A method adds its own to those of ``super()``, so that methods can be composed.
        """
        del server
        return ()

    def step(self, server: Server, vector: Tensor, layout: Layout) -> Server:
        """Return the server after the round, given the vector the rule made: here, that vector."""
        del layout
        return replace(server, vector=vector)

    # On the client.

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        """Turn what was received and what was kept into the start of local training."""
        return Start(self.with_kept(client.network.layout, payload["model"], state))

    def objective(
        self, network: Network, weights: Tensor, buffers: Buffers, batch: Batch, refs: Tensors
    ) -> Tensor:
        """Return the loss of one batch: a pure function, so that it can run for many clients."""
        del refs
        return (network.losses(weights, buffers, batch) * batch.scale).sum()

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Return what is sent besides the model and what is kept: here, what does not travel."""
        del start
        kept = self.kept(client.network.layout)
        if kept is None:
            return Finished(state=state)
        return Finished(state={**state, "kept": trained.vector[kept]})

    # Which tensors take part, and the model a client uses in the end.

    def trains(self, layout: Layout) -> Tensor | None:
        """Mark the trainable coordinates that local training may change; None means all."""
        del layout
        return None

    def travels(self, layout: Layout) -> Tensor | None:
        """Mark the coordinates that are sent and averaged; None means all."""
        if self.buffers == "average":
            return None
        mask = ~layout.mask(Kind.NORM_STATISTIC, Kind.COUNTER)
        return None if bool(mask.all()) else mask

    def kept(self, layout: Layout) -> Tensor | None:
        """Mark the coordinates that stay on the client; None means none."""
        mask = self.travels(layout)
        return None if mask is None else ~mask

    def with_kept(self, layout: Layout, model: Tensor, state: Tensors) -> Tensor:
        """Return a received model with the client's own coordinates in their place."""
        kept = self.kept(layout)
        if kept is None or "kept" not in state:
            return model
        own = model.clone()
        own[kept] = state["kept"]
        return own

    def personal(self, layout: Layout, server: Server, state: Tensors) -> Tensor:
        """Return the model a client uses itself: the global one, with its own coordinates."""
        return self.with_kept(layout, server.vector, state)
