"""Opens files at addresses of fsspec, such as `s3://bucket/a.wav`, with errors in one sentence."""

from __future__ import annotations

from typing import BinaryIO

from workbench.core.errors import BadInput, Unavailable, message_of

BUSY = (408, 429)  # HTTP statuses of a server that may answer later


def is_address(place: str) -> bool:
    """Returns whether a place is an address of fsspec and no path."""
    return "://" in place


def without_query(address: str) -> str:
    """Returns an address of HTTP without what follows a question mark, such as a signature; others unchanged."""
    return address.partition("?")[0] if address.startswith(("http://", "https://")) else address


def opened_address(address: str) -> BinaryIO:
    """Opens an address for reading.

    Raises `Unavailable` if the package for this kind of address is not installed, or if the place cannot be reached.
    Raises `BadInput` if there is no such file, or if it may not be read.
    """
    import fsspec

    kind = address.partition("://")[0].rpartition("::")[2]
    try:
        file: BinaryIO = fsspec.open(address, "rb").open()
        return file
    except ImportError as error:
        raise Unavailable(f"{address:.200} needs another package: {message_of(error)}") from error
    except PermissionError as error:
        raise BadInput(f"{address:.200} may not be read: {message_of(error)}") from error
    except FileNotFoundError as error:
        cause = error.__cause__  # over HTTP, every failure is a missing file
        status = getattr(cause, "status", None)
        if cause is None or status in (404, 410):
            raise BadInput(f"there is nothing at {address:.200}") from error
        if isinstance(status, int) and 400 <= status < 500 and status not in BUSY:
            raise BadInput(f"{address:.200} may not be read: the server answers {status}") from error
        reason = f"the server answers {status}" if isinstance(status, int) else message_of(cause)
        raise Unavailable(f"{address:.200} cannot be read: {reason}") from error
    except ValueError as error:
        raise BadInput(f"{address:.200} is of a kind that cannot be read ({kind}: {message_of(error)})") from error
    except Exception as error:  # each kind has errors of its own
        raise Unavailable(f"{address:.200} cannot be read: {message_of(error)}") from error
