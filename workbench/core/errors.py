"""The errors that a user can meet. Each message is one sentence that says what was wrong and what was expected.

Code raises them at the boundary where the fault entered. The page shows the sentence. The command line prints it and
exits with `exit_status`. Any other exception that escapes is a fault of the workbench.
`message_of` quotes another library's error in such a sentence.
"""


class WorkbenchError(Exception):
    """Base of every error whose message is meant for the user."""

    exit_status = 1


class BadInput(WorkbenchError):
    """The error for user input (a recording, a checkpoint, an option) that cannot be used."""

    exit_status = 2


class NotFinite(BadInput):
    """The error for values of a network that are not finite, so that its output means nothing."""


class Unavailable(WorkbenchError):
    """The error for a missing runtime, package or remote source. The message says how to get it."""

    exit_status = 3


class DiskFull(Unavailable):
    """The error for a full disk of this machine. The message may name the place, which only its owner may see."""


class SessionDied(WorkbenchError):
    """The error for a session whose process ended during a call. The next call starts a new process."""


class OutOfMemory(WorkbenchError):
    """The error for a call that needs more memory than there is."""


class Cancelled(WorkbenchError):
    """The error for a call that the user stopped."""


class Busy(WorkbenchError):
    """The error for a request that a server does not take now: too many wait, or a visitor's share is used up.

    `retry_seconds` is the time after which another try makes sense.
    """

    def __init__(self, message: str, retry_seconds: float = 10.0):
        super().__init__(message)
        self.retry_seconds = retry_seconds


class Refused(WorkbenchError):
    """The error for a function that the owner of a server has not opened to visitors."""

    exit_status = 2


class NoRoom(WorkbenchError):
    """The error for a file that cannot be kept: the disk, or a visitor's share of it, is full."""


def message_of(error: BaseException, longest: int | None = 200) -> str:
    """Returns the message of another library's error on one line; the name of its type if it has no message.

    Args:
        longest: number of characters after which the message is cut; None for all of it.
    """
    return " ".join(str(error).split())[:longest] or type(error).__name__


def named_message_of(error: BaseException) -> str:
    """Returns an error's type and its whole message on one line, as in `KeyError: 'width'`."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
