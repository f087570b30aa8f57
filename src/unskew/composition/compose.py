"""Which parts can be one method, and why others cannot."""

from collections.abc import Iterator, Sequence
from itertools import permutations

from unskew.composition.hook_calls import call
from unskew.composition.method import Method
from unskew.composition.multi_model import MODELS, ModelSelector, MultiModelMethod
from unskew.composition.parts import Aspect, Part, Setup
from unskew.composition.values import Stage
from unskew.errors import UnskewError


def compose(parts: Sequence[Part]) -> Method:
    """Return the method of these parts; raise an error that names the parts that clash."""
    kind = MultiModelMethod if any(isinstance(part, ModelSelector) for part in parts) else Method
    method = kind(tuple(parts))
    reason = next(_clashes(parts), None)
    if reason is not None:
        raise UnskewError(f"method {method.spec!r}: {reason}")
    return method


def _clashes(parts: Sequence[Part]) -> Iterator[str]:
    """Yield the reasons why parts cannot be one method."""
    for part in parts:
        if part.name == MODELS or set(part.name) & set("+:,/"):
            yield f"a part cannot be called {part.name!r}; choose another name"
    for part, other in permutations(parts, 2):
        if part.name == other.name:
            yield f"{part.name} is listed twice; each method may be listed once"
        if isinstance(part, ModelSelector) and isinstance(other, ModelSelector):
            yield (
                f"{part.name} and {other.name} both replace {Aspect.NUMBER_OF_MODELS}; remove one "
                "of them"
            )
        if isinstance(part, type(other)):
            yield f"{part.name} includes {other.name}; remove {other.name}"
        if part.prefixed({"": None}) == other.prefixed({"": None}):
            yield f"{part.name} and {other.name} have the same tensor_scope; give each its own"
    for part, other in permutations(parts, 2):
        for aspect in sorted(part.replaces & other.replaces):
            yield f"{part.name} and {other.name} both replace {aspect}; remove one of them"
        for aspect in sorted(part.replaces & other.adds):
            yield (f"{part.name} replaces {aspect}, to which {other.name} adds; remove one of them")
        if part.repeats_training and other.needs_single_training:
            yield (
                f"{part.name} trains twice per round, and {other.name} needs a single training; "
                "remove one of them"
            )
        for name in sorted(_stage_names(part) & _stage_names(other)):
            yield f"{part.name} and {other.name} both have a stage {name!r}; rename one of them"


def _stage_names(part: Part) -> set[str]:
    """Return the names of the stages that a part adds."""
    task = Stage("task", Method())
    stages = call(part, "stages", (task,)) if isinstance(part, Setup) else ()
    return {stage.name for stage in stages} - {task.name}
