"""The parts that methods consist of, and the four groups of hooks that a part can implement.

A part is a frozen dataclass of its options. It derives from the groups it needs:

- :class:`ClientSide`: what a client does before, during and after its local training;
- :class:`ServerSide`: what the server sends, and how it turns uploads into the next model;
- :class:`Personalization`: what stays on the client, and the model that a client uses;
- :class:`Setup`: the network, the data, the clients that may take part, preparatory stages.

Each part has its own references, server tensors, client state, payload and extras; hooks receive
and return only those of their part. Hooks are pure: they return new values and store nothing on
``self``. Without any part, a method is FedAvg.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics
from unskew.composition.aspects import Aspect, Measurement, check_declarations
from unskew.composition.part_checks import check_names, check_options
from unskew.composition.search_space import SearchSpace
from unskew.composition.upload_values import Value
from unskew.composition.values import (
    About,
    Beginning,
    Client,
    ExtraTraining,
    Finished,
    Perturbation,
    Server,
    Stage,
    Start,
    Step,
    Tensors,
    Trained,
)
from unskew.models.functional import FunctionalModel
from unskew.models.layout import Layout
from unskew.utils.specs import OPTIONS

if TYPE_CHECKING:
    from unskew.composition.method import Method
    from unskew.data.federation import Federation

__all__ = [
    "Aspect",
    "ClientSide",
    "Measurement",
    "Part",
    "Personalization",
    "ServerSide",
    "Setup",
    "WeightedMean",
    "add_methods",
]

T = TypeVar("T")

WeightedMean = Callable[[Uploads], tuple[Tensor, Diagnostics]]
"""The weighted mean of uploads by the weights of all parts, with its diagnostics."""


def add_methods(*methods: "str | Part | Method") -> "Method":
    """Return several methods as one, as a plus in a spec string does."""
    # Both are imported by name, because they are built on this module.
    make_method = import_module("unskew.methods").make_method
    compose = import_module("unskew.composition.compose").compose
    method: Method = compose([part for each in methods for part in make_method(each).parts])
    return method


class _PartClass(type):
    """The type of the classes of parts, which creates a part and notes its given options."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        """Create a part; its class must be a dataclass if it has options."""
        check_options(cls)
        part = super().__call__(*args, **options)
        known = fields(cls)  # type: ignore[arg-type]  # all parts are dataclasses
        positional = [field.name for field in known if not field.kw_only]
        given = {*positional[: len(args)], *options} & {field.name for field in known}
        vars(part)["given_options"] = frozenset(given)
        return part


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Part(metaclass=_PartClass):
    """The base of all parts."""

    buffers: Literal["average", "local"] = "average"
    """BatchNorm's running statistics: "average" sends and averages them with the model, "local"
    keeps them on each client; the server averages them for the global model and new clients."""

    name: ClassVar[str] = "part"
    """The name in spec strings; by default the class's name in lower case."""
    tensor_scope: ClassVar[str | None] = None
    """Separates the part's tensors from those of other parts; None: its name. Parts of several
    stages that share a client's state have the same scope."""
    _prefix: ClassVar[str] = "part/"
    about: ClassVar[About] = About(title="Custom method", paper="", kind=None)
    grid: ClassVar[SearchSpace] = {}
    """What a search tries per option, as in the paper where it says so: the values as a tuple, or
    a :class:`~unskew.composition.search_space.LogRange`."""
    needs_single_training: ClassVar[bool] = False
    """Whether the client's state depends on where its training started and ended, so that
    :meth:`ClientSide.finish` may be called only once per round."""
    repeats_training: ClassVar[bool] = False
    """Whether the part trains the whole method a second time per round."""
    needs_classes: ClassVar[bool] = False
    """Whether the part works with classes, so that it cannot train a regression."""
    sends_model: ClassVar[bool] = True
    """Whether the model is sent; False where it is trained on the server."""
    works_on_any_device: ClassVar[bool] = False
    """Whether the hooks can be given models on an accelerator, where the server then keeps them; a
    class that derives from this one has to say so again."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "works_on_any_device" not in vars(cls):
            cls.works_on_any_device = False
        if "name" not in vars(cls):
            cls.name = cls.__name__.lower()
        cls._prefix = f"{cls.tensor_scope or cls.name}/"
        if cls.__module__ != __name__:
            groups = (ClientSide, ServerSide, Personalization, Setup)
            check_names(cls, {each.__name__: each for each in groups}, ("adds", "replaces"))
            check_declarations(cls, groups)

    @cached_property
    def given_options(self) -> frozenset[str]:
        """The options that were given when the part was created, also those at their default.

        A search leaves them as they are. Parts with the same values are equal all the same.
        """
        return frozenset()

    @property
    def adds(self) -> frozenset[Aspect]:
        """What the part adds a factor or a term to."""
        return frozenset()

    @property
    def replaces(self) -> frozenset[Aspect]:
        """What the part sets on its own; no other part may add to it or replace it."""
        return frozenset()

    @property
    def needs(self) -> frozenset[Measurement]:
        """What clients measure and send for the part."""
        return frozenset()

    @property
    def receives(self) -> Mapping[str, Value]:
        """What the server accepts of each extra that clients send for the part."""
        return {}

    @property
    def affects_clients(self) -> bool:
        """Whether clients must run code for the part; False for parts of the server alone."""
        others = (ClientSide, Personalization, Setup)
        return isinstance(self, others) or bool(self.needs)

    def scoped(self, tensors: Mapping[str, T]) -> dict[str, T]:
        """Return the part's tensors among those of all parts."""
        prefix, length = self._prefix, len(self._prefix)
        return {name[length:]: each for name, each in tensors.items() if name.startswith(prefix)}

    def prefixed(self, tensors: Mapping[str, T]) -> dict[str, T]:
        """Return the part's tensors under the names they have among those of all parts."""
        return {self._prefix + name: each for name, each in tensors.items()}

    def __add__(self, other: "str | Part | Method") -> "Method":
        """Return both as one method: ``FedProx(mu=0.1) + "ida"``."""
        return add_methods(self, other)

    def __radd__(self, other: str) -> "Method":
        return add_methods(other, self)


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class ClientSide(Part):
    """What a client does before, during and after its local training."""

    reads_forward_pass: ClassVar[bool] = False
    """Whether :meth:`loss_term` or :meth:`next_refs` uses ``step.forward_pass``."""
    reads_gradient: ClassVar[bool] = False
    """Whether :meth:`perturbation` uses ``step.gradient``: a step then takes two gradients."""
    noise_per_sample: ClassVar[int] = 0
    """How many random numbers (``batch.noise``) each sample gets, for parts that replace the loss;
    otherwise the network's goal decides."""
    changing_refs: ClassVar[tuple[str, ...]] = ()
    """The names of the references that :meth:`next_refs` changes from step to step."""

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Return where training starts, with the part's references in ``refs``."""
        del client, payload, state
        return start

    def losses(self, step: Step, refs: Tensors) -> Tensor:
        """Return each sample's loss in place of the network's; see :attr:`Aspect.LOSS`.

        The first forward pass must use the step's weights: the terms of other parts read it.
        """
        raise NotImplementedError

    def loss_term(self, step: Step, refs: Tensors) -> Tensor | None:
        """Return a term to add to the mean loss of a batch; see :attr:`Aspect.LOCAL_LOSS`.

        It is a tensor that depends on the step's weights; None adds nothing. It must be a pure
        function, so that it can be vectorised.
        """
        raise NotImplementedError

    def perturbation(self, step: Step, refs: Tensors) -> Perturbation:
        """Return where the gradient of a step is taken; see :attr:`Aspect.PERTURBATION`.

        The loss of the samples is perturbed; terms of the loss keep their gradient at the weights.
        It must be a pure function, so that it can be vectorised.
        """
        raise NotImplementedError

    def next_refs(self, step: Step, refs: Tensors) -> Tensors:
        """Return the values of :attr:`changing_refs` for the next step, given this one.

        After the last step they are in ``trained.refs``. It must be a pure function.
        """
        raise NotImplementedError

    def proximal_strength(self) -> float:
        """Return the total strength mu of the terms mu/2 ||w - start||^2 in the loss term.

        These terms shorten the path of the local steps, which :attr:`Trained.effective_step`
        accounts for.
        """
        return 0.0

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Return the extras to send and the state to keep."""
        del client, start, trained
        return Finished(state=state)

    def extra_trainings(self, method: "Method") -> tuple[ExtraTraining, ...]:
        """Return the local trainings that come before the main one, given the whole method.

        A training that ends with infinite or undefined numbers leaves the client's state unchanged.
        """
        del method
        return ()


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class ServerSide(Part):
    """What the server sends, and how it turns a round's uploads into the next model."""

    def begin(self, beginning: Beginning) -> Tensors:
        """Return the part's tensors before the first round of a stage."""
        del beginning
        return {}

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Return the tensors sent to a client besides the model."""
        del server, client
        return {}

    def receive(self, server: Server, uploads: Uploads) -> Tensors | None:
        """Return the part's tensors once uploads have arrived and before they are combined.

        None leaves the model as it is in this round.
        """
        del uploads
        return server.state

    def client_weights(self, server: Server) -> ClientWeighting:
        """Return a factor of the clients' weights; see :attr:`Aspect.WEIGHTS`.

        If no part has one, the weights are the sample counts.
        """
        raise NotImplementedError

    def combine(
        self, server: Server, uploads: Uploads, mean: WeightedMean
    ) -> tuple[Tensor, Diagnostics]:
        """Combine uploads in place of their weighted mean; see :attr:`Aspect.COMBINATION`."""
        raise NotImplementedError

    def step(self, server: Server, vector: Tensor, uploads: Uploads) -> Server:
        """Return the server after the round, given the combined vector.

        Without this hook that vector is the new model; see :attr:`Aspect.SERVER_STEP`.
        """
        raise NotImplementedError

    def conclude(
        self, before: Server, after: Server, uploads: Uploads, diagnostics: Diagnostics
    ) -> tuple[Server, Diagnostics]:
        """Return the server at the end of the round, and diagnostics to add.

        ``before`` is the server as :meth:`receive` left it, ``after`` has the new model.
        """
        del before, uploads, diagnostics
        return after, {}

    def model(self, server: Server) -> Tensor:
        """Return the global model to evaluate and save; see :attr:`Aspect.GLOBAL_MODEL`.

        Without this hook it is the one that is sent.
        """
        raise NotImplementedError


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Personalization(Part):
    """What stays on the client, and the model that a client uses."""

    works_without_own: ClassVar[bool] = False
    """Whether the global model is complete without what stays on clients: the initial values of
    that change nothing, as those of a personal head of zeros."""

    def stays(self, layout: Layout) -> Tensor | None:
        """Mark the coordinates that are not sent; None means none."""
        del layout
        return None

    def constant(self, layout: Layout) -> Tensor | None:
        """Mark the coordinates that are the same on all clients, so that none has to keep them."""
        del layout
        return None

    def shares_on_upload(self, layout: Layout) -> Tensor | None:
        """Mark the coordinates that stay on the client but are also uploaded; None means none.

        The server averages them for the global model and for clients that take part for the first
        time. A client that has its own values never receives the average.
        """
        del layout
        return None

    def freezes(self, layout: Layout) -> Tensor | None:
        """Mark the coordinates that local training may not change; None means none."""
        del layout
        return None

    def personal(self, model: Tensor, state: Tensors) -> Tensor:
        """Return the client's personal model; see :attr:`Aspect.PERSONAL_MODEL`.

        ``model`` is the global model with the client's own coordinates.
        """
        raise NotImplementedError

    def fine_tuning(self) -> ExtraTraining:
        """Return how a personal model is trained before evaluation; see :attr:`Aspect.FINE_TUNING`.

        It starts from the personal model, and its result is discarded.
        """
        raise NotImplementedError


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Setup(Part):
    """The network, the data, the clients that may take part, and preparatory stages."""

    adapts_last: ClassVar[bool] = False
    """Whether :meth:`adapt` receives the network as all other parts have adapted it."""

    def adapt(self, module: nn.Module, example: Tensor) -> nn.Module:
        """Return the network to train, given the run's.

        ``example`` is a batch of two samples that can be passed through the module. New layers may
        draw their initial weights from torch's global generator, which is seeded for this call.
        """
        del example
        return module

    def transform_federation(self, federation: "Federation") -> "Federation":
        """Return the federation to train on, given the run's."""
        return federation

    def shared_samples(self, federation: "Federation", seed: int) -> tuple["Federation", Tensors]:
        """Return the federation to train on, and samples that the server holds.

        For parts that give clients samples besides their own. The samples are added to the part's
        tensors on the server, and the part must send them so that their traffic is counted.
        """
        del seed
        return federation, {}

    def candidates(self, clients: int, round_: int, seed: int) -> Sequence[int]:
        """Return the clients that may take part, ascending; see :attr:`Aspect.CANDIDATES`."""
        raise NotImplementedError

    def stages(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        """Return the stages of a run, given those without this part; the last is the task."""
        return stages

    def is_done(self, server: Server) -> bool:
        """Return whether a stage ends before all its rounds are run."""
        del server
        return False

    def check(self, method: "Method", network: FunctionalModel, samples: Tensor) -> None:
        """Raise an error if the part cannot train a network; ``samples`` are a few test inputs."""
