"""Several commands of Flower's in one process: loading its command line takes most of their time.

``python -m unskew.flower.loopback.commands '[["supernode", "register", "a.pub"], …]'``
"""

import json
import sys
from collections.abc import Sequence


def run_all(commands: Sequence[Sequence[str]]) -> None:
    """Run commands one after the other; the first that fails ends the program with its code."""
    from flwr.cli.app import app  # noqa: PLC0415 (what the program ``flwr`` is)

    for command in commands:
        try:
            app(list(command))
        except SystemExit as end:
            if end.code:
                raise


if __name__ == "__main__":
    run_all(json.loads(sys.argv[1]))
