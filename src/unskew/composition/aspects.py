"""What a part can add to or replace, and the check that its class declares what its hooks do."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, get_args

Measurement = Literal["train_accuracy", "label_counts"]
"""What clients can be asked to measure: their accuracy on their own training samples after training
(``train_accuracy``), or how many samples of each class they have (``label_counts``)."""


class Aspect(StrEnum):
    """What a part can add to or replace, in the words of an error message."""

    LOSS = "the loss of a sample"
    LOCAL_LOSS = "the local loss"
    PERTURBATION = "where gradients are taken"
    SAMPLE_WEIGHTS = "the weights of samples"
    WEIGHTS = "the clients' weights"
    COMBINATION = "how uploads are combined"
    STATISTICS = "how norm statistics are combined"
    SERVER_STEP = "the server's step"
    GLOBAL_MODEL = "the global model"
    PERSONAL_MODEL = "the personal models"
    HEAD = "how the head is trained"
    FINE_TUNING = "how personal models are fine-tuned"
    CANDIDATES = "which clients may take part"
    NUMBER_OF_MODELS = "the number of global models"


class _Declared(NamedTuple):
    """A hook that is called only for parts that declare its aspect."""

    hook: str
    declaration: Literal["adds", "replaces"] = "replaces"


_HOOKS = {
    Aspect.LOSS: _Declared("losses"),
    Aspect.LOCAL_LOSS: _Declared("loss_term", "adds"),
    Aspect.PERTURBATION: _Declared("perturbation"),
    Aspect.WEIGHTS: _Declared("client_weights", "adds"),
    Aspect.COMBINATION: _Declared("combine"),
    Aspect.SERVER_STEP: _Declared("step"),
    Aspect.GLOBAL_MODEL: _Declared("model"),
    Aspect.PERSONAL_MODEL: _Declared("personal"),
    Aspect.FINE_TUNING: _Declared("fine_tuning"),
    Aspect.CANDIDATES: _Declared("candidates"),
}


def check_declarations(cls: type, groups: Sequence[type]) -> None:
    """Raise an error for a class whose declarations and hooks do not match."""
    reason = next(_mismatches(cls, groups), None)
    if reason is not None:
        raise TypeError(f"{cls.__name__} {reason}")


def _mismatches(cls: type, groups: Sequence[type]) -> Iterator[str]:
    declared: dict[str, frozenset[object]] = {}
    for name in ("adds", "replaces", "needs"):
        value = getattr(cls, name)
        if isinstance(value, property):
            if name in vars(cls):  # it depends on the options, so it is not known yet
                return
            value = frozenset()
        if not isinstance(value, frozenset):
            yield f"declares {name} as {value!r}; make it a frozenset"
        declared[name] = value
    if wrong := declared["needs"] - set(get_args(Measurement)):
        yield f"needs {min(map(str, wrong))!r}; it can be {' or '.join(get_args(Measurement))}"
    for aspect, (hook, declaration) in _HOOKS.items():
        group = next(group for group in groups if hook in vars(group))
        if hook in vars(cls) and aspect not in declared[declaration]:
            yield (
                f"defines {hook}, which is called only if it is declared; add "
                f"{declaration} = frozenset({{Aspect.{aspect.name}}})"
            )
        if aspect in declared[declaration] and getattr(cls, hook, None) is getattr(
            group, hook if issubclass(cls, group) else "", None
        ):
            yield (f"{declaration} {aspect}; derive it from {group.__name__} and define {hook}")
