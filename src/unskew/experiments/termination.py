"""SIGTERM in a script: runs write their checkpoints before the process ends."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def checkpoints_on_sigterm() -> Iterator[None]:
    """Treat the first SIGTERM as Ctrl-C inside the context, and end the process on leaving it.

    So runs write their checkpoints and workers are stopped; then the process ends by the signal,
    as it would have at once. Only the default action is replaced, and only in the main thread: a
    program that handles SIGTERM itself decides what happens.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    process, received = os.getpid(), False

    def interrupt(number: int, frame: object) -> None:
        nonlocal received
        del frame
        if os.getpid() != process:  # a worker that has not started yet
            os._exit(128 + number)
        if not received:
            received = True
            raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is interrupt:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if received:
            os.kill(process, signal.SIGTERM)
