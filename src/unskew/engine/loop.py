"""The sequential runner: one client after the other, in this process, in one thread.

It is the slowest runner and the one to debug with: an error names the client and the hook. Its
results equal those of the process pool bit for bit.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from unskew.engine.client import ClientContext, run_client
from unskew.engine.cohort import ClientTask, CohortResult
from unskew.engine.extras import ExtrasMatrix
from unskew.engine.memory import return_freed_memory
from unskew.engine.threads import threads


class Loop:
    """Trains clients one by one."""

    kind = "per client"

    def __init__(self, context: ClientContext) -> None:
        self._context = context

    def train(self, round_: int, tasks: Sequence[ClientTask]) -> CohortResult:
        """Train the clients of one round."""
        # Clients seed torch's global generator for layers such as Dropout; restore it afterwards.
        stack = torch.empty(len(tasks), self._context.network.layout.size)
        extras, done = ExtrasMatrix(len(tasks)), []
        with threads(1), torch.random.fork_rng(devices=[]):
            for row, task in enumerate(tasks):
                trained, finished = run_client(self._context, round_, task)
                stack[row] = trained.vector
                trained = replace(trained, vector=stack[row], refs={})
                done.append(
                    (trained, replace(finished, extras=extras.copied(row, finished.extras)))
                )
                del finished  # or its extras would be in use while the next client trains
                if done[-1][1].state:
                    return_freed_memory(stack, len(tasks) - len(done))
        return CohortResult(
            stack, [trained for trained, _ in done], [finished for _, finished in done]
        )

    def close(self) -> None:
        """Nothing to release."""
