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

from unskew.aggregation.product import product
from unskew.aggregation.rule import Rule, weighted_mean
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, by_samples
from unskew.models.functional import Batch, Buffers, FunctionalModel
from unskew.models.layout import Kind, Layout
from unskew.models.masks import none_if_empty, without
from unskew.privacy.budget import Privacy
from unskew.utils.specs import OPTIONS

if TYPE_CHECKING:
    from unskew.data.federation import Federation

Tensors = Mapping[str, Tensor]

SAMPLE_WEIGHTS = "sample_weights"
"""The entry of a client's state with the weights of its samples, for methods that keep them."""


Level = Literal["global", "global on local tests", "personal"]
"""What a method is meant for, the most personal last."""


@plain_dataclass(frozen=True)
class About:
    """What the table of methods says of a method."""

    title: str
    paper: str
    kind: Literal["server", "objective", "personal", "several models", "densities"]
    level: Level = "global"
    needs_individual_updates: bool = False
    """Whether the server must see each client's update, which excludes secure aggregation."""
    down: str = "model"
    """What a client is sent in a round: the model or a part of it, and what else, with commas."""
    up: str = "model"
    """What a client sends; "(once)" and "(before)" mark what is not sent in every round."""
    only_with_norms: bool = False
    """Whether it does something only for networks with BatchNorm."""


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
    network: FunctionalModel
    classes: int
    seed: int = 0
    round: int = 0
    """The run's seed and the round, for random numbers of the method's own."""
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
    effective_step: float | None = None
    """How far these steps would have carried a coordinate whose gradient is always 1: the learning
    rate times the number of steps for plain SGD, more with momentum, less with a pull. None for
    optimisers whose steps do not grow with the gradient (Adam)."""


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
    """At most so many, see :meth:`Method.is_done`; None takes the run's."""
    network: Callable[[nn.Module, tuple[int, ...], int], nn.Module] | None = None
    """Builds the stage's network from the run's, the shape of a sample and the number of classes;
    None takes the run's."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Where the stage trains otherwise than the run's settings say."""
    learns_density: bool = False
    """Whether what is learned and sent is a density of the clients' data."""
    privacy: Privacy | None = None
    """The budget that local steps keep by DP-SGD; None: they are not private."""


@plain_dataclass(frozen=True)
class ExtraTraining:
    """A training of its own on the client, besides the one whose result is sent.

    It prepares, trains and finishes as a round does, and of its result only the state it keeps
    goes on. ``epochs`` None takes the run's, ``trains`` None what the method trains.
    """

    name: str
    method: "Method"
    epochs: int | None = None
    trains: Callable[[Layout], Tensor] | None = None


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Method:
    """FedAvg, as the base of all methods."""

    buffers: Literal["average", "local"] = "average"
    """BatchNorm's running statistics: "average" sends and averages them with the model, "local"
    leaves each client its own; the server averages them for the global model and for newcomers."""

    about: ClassVar[About] = About(title="A method of one's own", paper="", kind="objective")
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {}
    """By option, the values to search: its paper's, where it names them."""
    wants_train_accuracy: ClassVar[bool] = False
    """Whether clients measure their accuracy on their own training samples after training."""
    ends_once: ClassVar[bool] = False
    """Whether what a client keeps follows from where its training began and ended, so that
    :meth:`finish` may be called once a round only."""
    may_be_undefined: ClassVar[frozenset[str]] = frozenset()
    """The extras that may hold NaN, where that means something; others with NaN are refused."""
    sends_model: ClassVar[bool] = True
    """Whether the model is sent at all; not so where it is trained at the server."""

    def __add__(self, other: "str | Method") -> "Method":
        """Return both as one method: ``FedProx(mu=0.1) + "ida"``."""
        from unskew.methods.common.registry import joined  # noqa: PLC0415 (it lists the methods)

        return joined(self, other)

    def __radd__(self, other: str) -> "Method":
        from unskew.methods.common.registry import joined  # noqa: PLC0415 (it lists the methods)

        return joined(other, self)

    def stages(self) -> tuple[Stage, ...]:
        """Return the parts of a run, in order: here, the task alone."""
        return (Stage("task", self),)

    # Before training.

    def adapt(self, module: nn.Module, example: Tensor) -> nn.Module:
        """Return the network that is trained, given the run's: here, that one.

        ``example`` is a batch of two samples, to try a module on. Random starts of new layers may
        come from torch's own generator, which is seeded for this.
        """
        del example
        return module

    def transform_federation(self, federation: "Federation") -> "Federation":
        """Return the federation to train on, given the one there is."""
        return federation

    def check(self, network: FunctionalModel, samples: Tensor) -> None:
        """Complain if the method cannot train a network; ``samples`` are a few to try it on."""

    def shared_samples(self, federation: "Federation", seed: int) -> tuple["Federation", Tensors]:
        """Return the federation that is trained on, and what the server holds of the difference.

        For methods that give clients samples besides their own. What the server holds joins its
        slots, and a method must send it to be counted.
        """
        del seed
        return federation, {}

    def initial_state(self, clients: int, seed: int) -> Tensors:
        """Return what the server holds of its clients from the start; it joins its slots."""
        del clients, seed
        return {}

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
        weightings = self.weightings(server) or (by_samples(),)
        return weighted_mean(weightings[0] if len(weightings) == 1 else product(*weightings))

    def weightings(self, server: Server) -> tuple[ClientWeighting, ...]:
        """Return what weights are the product of; without any, clients count by their samples.

        A method adds its own to those of ``super()``, so that methods can be composed.
        """
        del server
        return ()

    def step(self, server: Server, vector: Tensor, layout: Layout) -> Server:
        """Return the server after the round, given the vector the rule made: here, that vector."""
        del layout
        return replace(server, vector=vector)

    def is_done(self, server: Server) -> bool:
        """Tell whether a stage ends before all its rounds are played."""
        del server
        return False

    def model(self, server: Server) -> Tensor:
        """Return the global model to evaluate and to hand out: here, the one that is sent."""
        return server.vector

    def outputs(self, server: Server) -> Sequence[Tensor]:
        """Return the models that a run ends with: here, the global one alone."""
        return [self.model(server)]

    def seen_by(self, server: Server, client: int) -> Server:
        """Return what a client elsewhere must know of the server for its :meth:`personal` model."""
        del client
        return Server(self.model(server))

    # On the client.

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        """Turn what was received and what was kept into the start of local training."""
        return Start(self.received(client, payload, state))

    def received(self, client: Client, payload: Tensors, state: Tensors) -> Tensor:
        """Return the model as it arrived, with the client's own coordinates in their place.

        Training may start elsewhere (FedALA); terms that refer to the global model go by this one.
        """
        return self.with_kept(client.network.layout, payload["model"], state)

    def objective(
        self,
        network: FunctionalModel,
        weights: Tensor,
        buffers: Buffers,
        batch: Batch,
        refs: Tensors,
    ) -> Tensor:
        """Return the loss of one batch: a pure function, so that it can run for many clients."""
        return (self.losses(network, weights, buffers, batch, refs) * batch.scale).sum()

    def losses(
        self,
        network: FunctionalModel,
        weights: Tensor,
        buffers: Buffers,
        batch: Batch,
        refs: Tensors,
    ) -> Tensor:
        """Return each sample's loss: the network's own. Terms are added in the objective instead.

        One pass through the network with these weights comes first, for terms to watch.
        """
        del refs
        return network.losses(weights, buffers, batch)

    def proximal_strength(self) -> float:
        """Return the strength mu of all terms mu/2 ||w - start||^2 in the objective.

        They shorten the way that local steps lead, which :attr:`Trained.reach` accounts for. A
        method adds its own to that of ``super()``.
        """
        return 0.0

    def noise_per_sample(self, network: FunctionalModel) -> int:
        """Return how many random numbers (``batch.chance``) each sample of a step gets."""
        return network.goal.noise_per_sample

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Return what is sent besides the model and what is kept: here, what does not travel."""
        del start
        kept = self.kept(client.network.layout)
        if kept is None:
            return Finished(state=state)
        return Finished(state={**state, "kept": trained.vector[kept]})

    def extra_trainings(self) -> tuple[ExtraTraining, ...]:
        """Return the trainings that come before the round's own, in order: here, none.

        A method adds its own to those of ``super()``. One that ends with infinite or undefined
        numbers leaves the client's state as it was.
        """
        return ()

    # Which tensors take part, and the model a client uses in the end.

    def trains(self, layout: Layout) -> Tensor | None:
        """Mark the trainable coordinates that local training may change; None means all."""
        del layout
        return None

    def travels(self, layout: Layout) -> Tensor | None:
        """Mark the coordinates that are sent and averaged; None means all."""
        if self.buffers == "average":
            return None
        return without(None, layout.mask(Kind.NORM_STATISTIC, Kind.COUNTER))

    def shares_on_upload(self, layout: Layout) -> Tensor | None:
        """Mark what stays on the client and is sent to the server all the same; None means nothing.

        The server averages it for those who have none of their own: clients that take part for the
        first time, and the global level. A client that has its own never gets it back.
        """
        if self.buffers == "average":
            return None
        return none_if_empty(layout.mask(Kind.NORM_STATISTIC, Kind.COUNTER))

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
        return self.with_kept(layout, self.model(server), state)

    def fine_tuning(self) -> ExtraTraining | None:
        """Return how a personal model is trained further before it is measured; None: not at all.

        It starts from what :meth:`personal` returns, and nothing of it is kept.
        """
        return None
