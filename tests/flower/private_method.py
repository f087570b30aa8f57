"""FedAvg whose task is trained with a privacy budget."""

from dataclasses import replace

from unskew.composition.parts import Setup
from unskew.privacy import Privacy

EPSILON, DELTA = 3.0, 1e-3


class PrivateTask(Setup):
    """Local steps of the task keep a budget."""

    def stages(self, stages):
        return (*stages[:-1], replace(stages[-1], privacy=Privacy(epsilon=EPSILON, delta=DELTA)))
