"""The one exception users meet: it names the field that is wrong and what to do about it."""

import traceback


class UnskewError(Exception):
    """Bad input. The command line prints the message alone and exits with code 2."""


class UnskewWarning(UserWarning):
    """Something works, but not as a user may think. The command line prints the message alone."""


def with_place(error: Exception) -> None:
    """Note where an error happened, before it is sent to another process, which is not told."""
    error.add_note("".join(traceback.format_exception(error)))


class FolderError(UnskewError):
    """Raised where a run's folder holds another run than the one that is asked for."""
