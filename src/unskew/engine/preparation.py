"""What the preparatory stages of a method will cost, in a sentence."""

from unskew.composition.values import Stage
from unskew.engine.setup import TrainingSetup
from unskew.engine.stage import client_context, rounds_of
from unskew.runs.cost import ModelSize
from unskew.utils.wording import joined, plural


def planned_rounds(stages: tuple[Stage, ...], rounds: int) -> int:
    """Return the largest number of rounds of all stages, if the task has ``rounds``."""
    return sum(stage.rounds or rounds for stage in stages)


def describe_preparation(setup: TrainingSetup) -> str | None:
    """Return the stages before the task, with their rounds, networks and traffic; None if none.

    Stages may stop early, so all numbers are upper bounds. Traffic counts the models alone.
    """
    stages = setup.method.stages()[:-1]
    if not stages:
        return None
    parts = [_describe(setup, stage) for stage in stages]
    return (
        f"{setup.method.spec}: {plural(len(parts), 'preparatory stage')} before the task's "
        f"{plural(setup.settings.rounds, 'round')}: {joined(parts)}"
    )


def _describe(setup: TrainingSetup, stage: Stage) -> str:
    context = client_context(
        stage, setup.module, setup.federation, setup.settings, setup.device, last=False
    )
    layout, rounds = context.network.layout, rounds_of(stage, context.settings)
    cohort = context.settings.cohort_size(len(setup.federation))
    sent = ModelSize(layout, stage.method.sent_mask(layout)).bytes * 2 * cohort * rounds
    traffic = f"up to {sent / 1e6:.1f} MB" if sent else "which stay on the clients"
    return (
        f"{stage.name} (up to {plural(rounds, 'round')} of {plural(cohort, 'client')}, "
        f"{layout.size:,} parameters, {traffic})"
    )
