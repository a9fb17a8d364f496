"""A capability that the project does not have, and a session's process whose model has it, beside those of the fake."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable
from unittest.mock import patch

from tests.support import fake_worker
from workbench.core.settings import SessionSpec
from workbench.isolation import worker
from workbench.session import calls
from workbench.session.calls import CALLS, CAPABILITIES, Call, Capability


@runtime_checkable
class Talks(Protocol):
    """Talks."""

    def talk_stream(self, words: Sequence[str], **options: Any) -> Generator[str, None, None]:
        """Yields an answer word by word."""
        ...

    def talk(self, words: Sequence[str], **options: Any) -> str:
        """Returns the whole answer."""
        return " ".join(self.talk_stream(words, **options))


TALKS = Capability(Talks, ("talk_stream",), "talking", "talks", "{model} {does}; to talk, open a model that talks")


class TalkingSession(fake_worker.FakeSession):
    """Says every word again, with a mark behind it."""

    def talk_stream(self, words: Sequence[str], mark: str = "!", do: str = "") -> Generator[str, None, None]:
        for word in words:
            yield word + mark
            self.misbehave(do)


@contextmanager
def talking() -> Iterator[None]:
    """Within the block, the table of calls has the capability."""
    with (
        patch.object(calls, "CAPABILITIES", (*CAPABILITIES, TALKS)),
        patch.dict(CALLS, {"talk_stream": Call("talk_stream", TALKS)}),  # type: ignore[arg-type]
    ):
        yield


def open_talking(spec: SessionSpec) -> fake_worker.FakeSession:
    """Instead of `workbench.isolation.loader.open_alone`."""
    return TalkingSession() if spec.name == "talking" else fake_worker.FakeSession()


if __name__ == "__main__":
    worker.open_alone = open_talking  # type: ignore[assignment]
    worker.CANCEL_SECONDS = 1.0
    with talking():
        worker.main()
