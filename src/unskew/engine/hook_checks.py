"""Errors in the code of hooks, of which the messages name who failed, and in which round."""

from collections.abc import Iterator
from contextlib import contextmanager

from unskew.composition.hook_calls import HookFailed
from unskew.errors import UnskewError
from unskew.utils.code_places import described


class ServerFailed(UnskewError):
    """A method's code raised on the server; the message names the round and the hook."""


@contextmanager
def server_error_context(round_: int, operation: str) -> Iterator[None]:
    """Turn an exception in a method's code into one that names the round and the operation."""
    try:
        yield
    except UnskewError as error:
        if not isinstance(error, HookFailed):
            raise
        raise ServerFailed(failure_text("the server", round_, operation, error)) from error
    except Exception as error:
        raise ServerFailed(failure_text("the server", round_, operation, error)) from error


def failure_text(who: str, round_: int, operation: str, error: Exception) -> str:
    """Return the message of an error; the user's hooks name themselves."""
    where = f"{who} failed in round {round_ + 1}"
    if isinstance(error, HookFailed):
        return f"{where}: {error}"
    return f"{where}, in {operation}: {described(error)}"
