"""The contract of a method: FedAvg, and a default for every hook.

A method is a frozen dataclass of its hyper-parameters. It overrides the hooks it needs; the
engine calls them in the order of a round, whether clients run here or on Flower::

    server: broadcast ─▶ client: prepare ─▶ objective, step by step ─▶ finish ─▶ server: aggregate

Hooks are pure: they return new values and store nothing on ``self``. A hook that adds something (a
term of the objective, a weighting, a reference) calls ``super()``, so that methods can be composed,
as in ``fedprox+ida``.
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
from unskew.models.layout import Layout, TensorKind
from unskew.models.masks import none_if_empty, without
from unskew.privacy.budget import Privacy
from unskew.utils.specs import OPTIONS

if TYPE_CHECKING:
    from unskew.data.federation import Federation

Tensors = Mapping[str, Tensor]

SAMPLE_WEIGHTS = "sample_weights"
"""The key of a client's state that holds its sample weights, for methods that have them."""


Level = Literal["global", "global on local tests", "personal"]
"""The evaluation level that a method is designed for, the most personal last."""


@plain_dataclass(frozen=True)
class About:
    """The description of a method in the table of methods."""

    title: str
    paper: str
    kind: Literal["server", "objective", "personal", "several models", "densities"]
    level: Level = "global"
    needs_individual_updates: bool = False
    """Whether the server must see each client's update, which excludes secure aggregation."""
    down: str = "model"
    """What a client receives per round: the model or a part of it, then anything else, separated by
    commas."""
    up: str = "model"
    """What a client sends per round; "(once)" and "(before)" mark what is not sent every round."""
    only_with_norms: bool = False
    """Whether the method has an effect only on networks with BatchNorm."""


@plain_dataclass(frozen=True, eq=False)
class Server:
    """The server's state between rounds: the global vector, and the method's own tensors."""

    vector: Tensor
    slots: Tensors = field(default_factory=dict)


@plain_dataclass(frozen=True, eq=False)
class Client:
    """What client hooks can read: the client's own samples, and the network."""

    id: int
    x: Tensor
    y: Tensor
    network: FunctionalModel
    classes: int
    seed: int = 0
    round: int = 0
    """The run's seed and the round, for random numbers that the method draws itself."""
    lr: float = 0.0
    """The learning rate of this round's local steps."""


@plain_dataclass(frozen=True, eq=False)
class Start:
    """Where local training starts, and the reference tensors that the objective may use."""

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
    """The distance these steps would move a coordinate whose gradient is always 1: the learning
    rate times the number of steps for plain SGD, more with momentum, less with a proximal term.
    None for optimisers whose steps are not proportional to the gradient (Adam)."""


@plain_dataclass(frozen=True, eq=False)
class Finished:
    """What a client sends besides its model, and the state it keeps for its next round."""

    extras: Tensors = field(default_factory=dict)
    state: Tensors = field(default_factory=dict)


@plain_dataclass(frozen=True)
class Stage:
    """A part of a run with its own hooks, rounds and network; the last stage is the task itself.

    Clients keep their state from stage to stage, and :meth:`Method.begin` receives the servers of
    all earlier stages.
    """

    name: str
    method: "Method"
    rounds: int | None = None
    """Largest number of rounds, see :meth:`Method.is_done`; None: the run's."""
    network: Callable[[nn.Module, tuple[int, ...], int], nn.Module] | None = None
    """Builds the stage's network from the run's, the shape of a sample and the number of classes;
    None: the run's network."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the run that the stage overrides."""
    learns_density: bool = False
    """Whether the model that is trained and sent is a density of the clients' data."""
    privacy: Privacy | None = None
    """The privacy budget of DP-SGD in local steps; None: local steps are not private."""


@plain_dataclass(frozen=True)
class ExtraTraining:
    """A further local training on the client, besides the one whose result is sent.

    It prepares, trains and finishes as a round does, and only the client state it returns is kept.
    With ``epochs`` None it takes the run's epochs, with ``trains`` None it trains the coordinates
    that the method trains.
    """

    name: str
    method: "Method"
    epochs: int | None = None
    trains: Callable[[Layout], Tensor] | None = None


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Method:
    """The base of all methods; its defaults are FedAvg."""

    buffers: Literal["average", "local"] = "average"
    """BatchNorm's running statistics: "average" sends and averages them with the model, "local"
    keeps them on each client; the server averages them for the global model and new clients."""

    about: ClassVar[About] = About(title="Custom method", paper="", kind="objective")
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {}
    """The values to search per option: those of the paper, where it names them."""
    needs_train_accuracy: ClassVar[bool] = False
    """Whether clients measure their accuracy on their own training samples after training."""
    needs_single_training: ClassVar[bool] = False
    """Whether the client's state depends on where its training started and ended, so that
    :meth:`finish` may be called only once per round."""
    may_be_undefined: ClassVar[frozenset[str]] = frozenset()
    """The extras in which NaN has a meaning; NaN in any other extra is rejected."""
    sends_model: ClassVar[bool] = True
    """Whether the model is sent; False where it is trained on the server."""

    def __add__(self, other: "str | Method") -> "Method":
        """Return both as one method: ``FedProx(mu=0.1) + "ida"``."""
        from unskew.methods import compose_methods  # noqa: PLC0415 (imports every method)

        return compose_methods(self, other)

    def __radd__(self, other: str) -> "Method":
        from unskew.methods import compose_methods  # noqa: PLC0415 (imports every method)

        return compose_methods(other, self)

    def stages(self) -> tuple[Stage, ...]:
        """Return the stages of a run, in order; by default only the task."""
        return (Stage("task", self),)

    # Before training.

    def adapt(self, module: nn.Module, example: Tensor) -> nn.Module:
        """Return the network to train, given the run's; by default the run's.

        ``example`` is a batch of two samples that can be passed through the module. New layers may
        draw their initial weights from torch's global generator, which is seeded for this call.
        """
        del example
        return module

    def transform_federation(self, federation: "Federation") -> "Federation":
        """Return the federation to train on, given the run's."""
        return federation

    def check(self, network: FunctionalModel, samples: Tensor) -> None:
        """Raise an error if the method cannot train a network; ``samples`` are a few test inputs.

        The default accepts every network.
        """

    def shared_samples(self, federation: "Federation", seed: int) -> tuple["Federation", Tensors]:
        """Return the federation to train on, and the samples that the server holds.

        For methods that give clients samples besides their own. The server's samples are added to
        its slots, and the method must send them so that their traffic is counted.
        """
        del seed
        return federation, {}

    def initial_state(self, clients: int, seed: int) -> Tensors:
        """Return the tensors that are added to the server's slots before the first round."""
        del clients, seed
        return {}

    def candidates(self, clients: int, round_: int, seed: int) -> Sequence[int] | None:
        """Return the clients that may take part in a round, ascending; None means all clients."""
        del clients, round_, seed
        return None

    # On the server.

    def begin(self, vector: Tensor, layout: Layout, earlier: Mapping[str, Server]) -> Server:
        """Return the server's state before the first round of a stage."""
        del layout, earlier
        return Server(vector)

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Return the tensors sent to a client; ``model`` is the vector it trains."""
        del client
        return {"model": server.vector}

    def aggregate(self, server: Server, uploads: Uploads) -> tuple[Server, dict[str, Any]]:
        """Combine a round's uploads; the diagnostics hold at least the weight of each client."""
        vector, diagnostics = self.rule(server).apply(uploads)
        return self.step(server, vector, uploads.layout), dict(diagnostics)

    def rule(self, server: Server) -> Rule:
        """Return the rule that combines the uploads into one vector; by default a weighted mean."""
        weightings = self.weightings(server) or (by_samples(),)
        return weighted_mean(weightings[0] if len(weightings) == 1 else product(*weightings))

    def weightings(self, server: Server) -> tuple[ClientWeighting, ...]:
        """Return the factors of the clients' weights; without any, sample counts are the weights.

        A method adds its own to those of ``super()``, so that methods can be composed.
        """
        del server
        return ()

    def step(self, server: Server, vector: Tensor, layout: Layout) -> Server:
        """Return the server after the round; by default the rule's vector is the new model."""
        del layout
        return replace(server, vector=vector)

    def is_done(self, server: Server) -> bool:
        """Return whether a stage ends before all its rounds are run."""
        del server
        return False

    def model(self, server: Server) -> Tensor:
        """Return the global model to evaluate and save; by default the one that is sent."""
        return server.vector

    def outputs(self, server: Server) -> Sequence[Tensor]:
        """Return the models that a run ends with; by default only the global one."""
        return [self.model(server)]

    def seen_by(self, server: Server, client: int) -> Server:
        """Return what a remote client needs of the server for its :meth:`personal` model."""
        del client
        return Server(self.model(server))

    # On the client.

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        """Build the start of local training from the payload and the client's state."""
        return Start(self.received(client, payload, state))

    def received(self, client: Client, payload: Tensors, state: Tensors) -> Tensor:
        """Return the received model, with the client's own coordinates restored.

        Training may start from another point (FedALA); terms that refer to the global model use
        this one.
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
        """Return the loss of one batch; a pure function, so that it can be vectorised."""
        return (self.losses(network, weights, buffers, batch, refs) * batch.scale).sum()

    def losses(
        self,
        network: FunctionalModel,
        weights: Tensor,
        buffers: Buffers,
        batch: Batch,
        refs: Tensors,
    ) -> Tensor:
        """Return each sample's loss, by default the network's. Further terms go in the objective.

        The first forward pass must use these weights: terms of the objective capture it.
        """
        del refs
        return network.losses(weights, buffers, batch)

    def proximal_strength(self) -> float:
        """Return the total strength mu of the terms mu/2 ||w - start||^2 in the objective.

        These terms shorten the path of the local steps, which :attr:`Trained.effective_step`
        accounts for. A method adds its own strength to that of ``super()``.
        """
        return 0.0

    def noise_per_sample(self, network: FunctionalModel) -> int:
        """Return how many random numbers (``batch.noise``) each sample of a step gets."""
        return network.goal.noise_per_sample

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Return the extras to send and the state to keep; by default what does not travel."""
        del start
        kept = self.kept(client.network.layout)
        if kept is None:
            return Finished(state=state)
        return Finished(state={**state, "kept": trained.vector[kept]})

    def extra_trainings(self) -> tuple[ExtraTraining, ...]:
        """Return the local trainings that come before the main one, in order; by default none.

        A method adds its own to those of ``super()``. A training that ends with infinite or
        undefined numbers leaves the client's state unchanged.
        """
        return ()

    # Which coordinates are trained and sent, and the personal model.

    def trains(self, layout: Layout) -> Tensor | None:
        """Mark the trainable coordinates that local training may change; None means all."""
        del layout
        return None

    def travels(self, layout: Layout) -> Tensor | None:
        """Mark the coordinates that are sent and averaged; None means all."""
        if self.buffers == "average":
            return None
        return without(None, layout.mask(TensorKind.NORM_STATISTIC, TensorKind.COUNTER))

    def shares_on_upload(self, layout: Layout) -> Tensor | None:
        """Mark the coordinates that stay on the client but are also uploaded; None means none.

        The server averages them for the global model and for clients that take part for the first
        time. A client that has its own values never receives the average.
        """
        if self.buffers == "average":
            return None
        return none_if_empty(layout.mask(TensorKind.NORM_STATISTIC, TensorKind.COUNTER))

    def kept(self, layout: Layout) -> Tensor | None:
        """Mark the coordinates that stay on the client; None means none."""
        mask = self.travels(layout)
        return None if mask is None else ~mask

    def with_kept(self, layout: Layout, model: Tensor, state: Tensors) -> Tensor:
        """Return a received model with the client's own coordinates restored."""
        kept = self.kept(layout)
        if kept is None or "kept" not in state:
            return model
        own = model.clone()
        own[kept] = state["kept"]
        return own

    def personal(self, layout: Layout, server: Server, state: Tensors) -> Tensor:
        """Return the client's personal model: the global one, with its own coordinates."""
        return self.with_kept(layout, self.model(server), state)

    def fine_tuning(self) -> ExtraTraining | None:
        """Return how a personal model is fine-tuned before it is evaluated; None: not at all.

        It starts from what :meth:`personal` returns, and its result is discarded.
        """
        return None
