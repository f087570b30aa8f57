"""What a site's policy says about a message: the categories of its values, and its work."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unskew.composition.method import Method
from unskew.composition.upload_values import Value
from unskew.engine.batches import local_steps
from unskew.engine.client import ClientContext
from unskew.engine.traffic import sent_up
from unskew.flower.policy import Category, Policy
from unskew.flower.run_work import RunWork, Work
from unskew.flower.wire import Refusal
from unskew.models.layout import Layout


def category_of(value: Value) -> Category:
    """Return the category of a value that a method declares."""
    shape, dtype = value.shape, value.dtype
    if shape is None or "shared" in shape:
        return "models"
    if all(isinstance(length, int) for length in shape):
        return "scalars"
    return "statistics" if dtype is None or dtype.is_floating_point else "counts"


def categories_of(method: Method, layout: Layout) -> set[Category]:
    """Return the categories of what clients of a stage send."""
    mask = sent_up(method, layout)
    categories: set[Category] = {"scalars"}
    if method.sends_model and (mask is None or bool(mask.any())):
        categories.add("models")
    return categories | {category_of(value) for value in method.receives.values()}


def categories_of_columns(message: Mapping[str, Any]) -> set[Category]:
    """Return the categories of a message about the columns of a table.

    How many rows hold a category, a word or a label are counts; all else adds up over the rows.
    """
    kinds: set[Category] = set()
    for name, values in message.items():
        if name in ("counts", "labels"):
            kinds.add("counts")
        elif isinstance(values, Mapping):
            kinds |= categories_of_columns(values)
        else:
            kinds.add("statistics")
    return kinds


def check_method(policy: Policy, method: Method, leaving: set[Category]) -> None:
    """Refuse a method, before a run starts."""
    stages = [stage.method for stage in method.stages()]
    names = {part.name for each in (method, *stages) for part in each.parts}
    declared = {category_of(value) for each in stages for value in each.receives.values()}
    _refuse(policy.objection(names, leaving | declared))


def check_stage(
    policy: Policy, work: RunWork, stage: str, context: ClientContext, client: int
) -> None:
    """Refuse to train a stage that the policy refuses, or that takes too many steps."""
    method, size = context.method, context.federation.train.sizes[client]
    names = {stage, *(part.name for part in method.parts)}
    _refuse(policy.objection(names, categories_of(method, context.network.layout)))
    count_work(work, size, [context, *context.extra_trainings])


def check_evaluation(
    policy: Policy, work: RunWork, stage: str, context: ClientContext, client: int
) -> None:
    """Refuse to evaluate, or to train personal models further for it."""
    _refuse(policy.objection({stage}, {"scalars"}))
    tuning = context.method.fine_tuning()
    size = context.federation.train.sizes[client]
    if tuning is not None:
        count_work(work, size, [context.for_extra_training(tuning)])


def count_work(work: RunWork, size: int, trainings: Sequence[ClientContext]) -> None:
    """Count the steps and samples of trainings; refuse them if they are together too many."""
    steps = samples = 0
    for each in trainings:
        couples = each.network.couples_samples
        count = int(local_steps(np.array([size]), each.settings, couples=couples)[0])
        steps += count
        samples += count * min(int(size), each.settings.batch_size)
    if steps:
        field = "epochs" if trainings[0].settings.steps is None else "steps"
        work.add(Work(steps=steps, samples=samples), f"settings.{field}")


def check_columns(policy: Policy, message: Mapping[str, Any]) -> None:
    """Refuse to send a message about the columns of a table."""
    _refuse(policy.objection((), categories_of_columns(message)))


def _refuse(objection: str | None) -> None:
    if objection is not None:
        raise Refusal(objection)
