"""The errors a user can meet, each carrying one sentence that says what was wrong and what was expected.

Raised at the boundary where the fault entered; the page shows the sentence, the command line prints it and
exits with `exit_status`. Anything else that escapes is a fault of the workbench.
"""


class WorkbenchError(Exception):
    """Base of every error whose message is meant for the user."""

    exit_status = 1


class BadInput(WorkbenchError):
    """What the user gave (a recording, a checkpoint, an option) cannot be used as it is."""

    exit_status = 2


class Unavailable(WorkbenchError):
    """A runtime, a package or a remote source is not there; the message says how to get it."""

    exit_status = 3


class SessionDied(WorkbenchError):
    """The process of a session ended during a call. The next call starts a new process."""


class Cancelled(WorkbenchError):
    """The user stopped the call."""
