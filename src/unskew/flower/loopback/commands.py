"""Run several ``flwr`` commands in one process, because importing Flower's CLI takes seconds.

``python -m unskew.flower.loopback.commands '[["supernode", "register", "a.pub"], …]'``
"""

import json
import sys
from collections.abc import Sequence


def run_all(commands: Sequence[Sequence[str]]) -> None:
    """Run commands in order; the first one that fails ends the program with its exit code."""
    from flwr.cli.app import app  # noqa: PLC0415 (what the program ``flwr`` runs)

    for command in commands:
        try:
            app(list(command))
        except SystemExit as end:
            if end.code:
                raise


if __name__ == "__main__":
    run_all(json.loads(sys.argv[1]))
