"""The package's exceptions and warnings, whose messages name what is wrong and how to fix it."""

import traceback


class UnskewError(Exception):
    """Bad input. The command line prints the message alone and exits with code 2."""


class NotAFederationError(UnskewError):
    """Something else, such as a DataFrame, was passed as a federation."""

    def __init__(self, given: object, or_else: str = "") -> None:
        super().__init__(
            f"federation must be a Federation{or_else} (got {type(given).__name__}); make one with "
            "us.load or, from a table, Federation.from_table"
        )


class UnskewWarning(UserWarning):
    """Something works, but not as expected. The command line prints the message alone."""


class DataWarning(UnskewWarning):
    """Something about the data is doubtful; see :func:`unskew.check`."""


def add_traceback_note(error: Exception) -> None:
    """Add the traceback as a note, since it is lost when an error is sent to another process."""
    error.add_note("".join(traceback.format_exception(error)))


class FolderError(UnskewError):
    """The folder of a run contains another run than the requested one."""


class FolderLockedError(FolderError):
    """Another process is writing a run into the folder."""
