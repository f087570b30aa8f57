"""The values that the hooks of a method receive and return."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor, nn

from unskew.models.functional import Batch, Buffers, ForwardPass, FunctionalModel
from unskew.models.layout import Layout
from unskew.privacy.budget import Privacy

if TYPE_CHECKING:
    from unskew.composition.method import Method

Tensors = Mapping[str, Tensor]

SAMPLE_WEIGHTS = "sample_weights"
"""The key of a part's client state that holds the client's sample weights, if it has any."""

Level = Literal["global", "global on local tests", "personal"]
"""The evaluation level that a method is designed for, the most personal last."""


@dataclass(frozen=True)
class About:
    """The description of a method in the table of methods; None is what is not declared.

    Of methods in the package, which tests hold to it, what is not declared is the model alone, and
    no need of individual updates.
    """

    title: str
    paper: str
    kind: Literal["server", "objective", "personal", "several models", "densities"] | None
    level: Level = "global"
    needs_individual_updates: bool | None = None
    """Whether the server must see each client's update, which excludes secure aggregation."""
    down: str | None = None
    """What a client receives per round: the model or a part of it, then anything else, separated by
    commas."""
    up: str | None = None
    """What a client sends per round; "(once)" and "(before)" mark what is not sent every round."""
    only_with_norms: bool = False
    """Whether the method has an effect only on networks with BatchNorm."""


@dataclass(frozen=True, eq=False)
class Server:
    """The server's state between rounds: the global vector, and named tensors.

    A part sees only its own tensors.
    """

    vector: Tensor
    state: Tensors = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Beginning:
    """What the server knows before the first round of a stage."""

    vector: Tensor
    layout: Layout
    earlier: Mapping[str, Server] = field(default_factory=dict)
    """The servers at the end of the earlier stages, by stage."""
    num_clients: int = 0
    seed: int = 0
    sent_mask: Tensor | None = None
    """Marks the coordinates that are sent; None means all."""


@dataclass(frozen=True, eq=False)
class Client:
    """What the client's hooks can read: the client's samples, and the network."""

    id: int
    x: Tensor
    y: Tensor
    network: FunctionalModel
    classes: int
    seed: int = 0
    round: int = 0
    """The run's seed and the round, for random numbers that a part draws itself."""
    lr: float = 0.0
    """The learning rate of this round's local steps."""
    sent_mask: Tensor | None = None
    """Marks the coordinates that are sent; None means all."""


@dataclass(frozen=True, eq=False)
class Start:
    """Where local training starts, and the reference tensors that the part's loss term may use."""

    vector: Tensor
    received: Tensor
    """The received model with the client's own coordinates in place. Training may start from
    another point; terms that refer to the global model use this one."""
    refs: Tensors = field(default_factory=dict)
    sample_weights: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Step:
    """One local step: the network with its current weights and buffers, and a batch."""

    network: FunctionalModel
    weights: Tensor
    buffers: Buffers
    batch: Batch
    forward_pass: ForwardPass | None = None
    """The forward pass of the loss, for parts with ``reads_forward_pass``."""
    gradient: Tensor | None = None
    """The gradient of the samples' loss at the weights, for parts with ``reads_gradient``."""
    shift: Tensor | None = None
    """How far from the weights the loss was computed, where a part perturbs them."""


@dataclass(frozen=True, eq=False)
class Perturbation:
    """Where the gradient of a step is taken, and what it is mixed with.

    The gradient of the samples' loss is ``share g(weights + shift) + (1 - share) rest``.
    """

    shift: Tensor
    share: float | Tensor = 1.0
    """One number, or one per coordinate."""
    rest: Tensor | None = None
    """What the gradient is mixed with; None: nothing, whatever the share."""


@dataclass(frozen=True, eq=False)
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
    refs: Tensors = field(default_factory=dict)
    """The part's references that change from step to step, after the last step."""


@dataclass(frozen=True, eq=False)
class Finished:
    """What a client sends besides its model, and the state it keeps for its next round."""

    extras: Tensors = field(default_factory=dict)
    state: Tensors = field(default_factory=dict)


@dataclass(frozen=True)
class Stage:
    """A part of a run with its own method, rounds and network; the last stage is the task itself.

    Clients keep their state from stage to stage.
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


@dataclass(frozen=True)
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
