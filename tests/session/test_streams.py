"""The final result of a session stream."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from workbench.core.errors import Cancelled
from workbench.session.streams import last_result


def test_stream_is_read_to_its_end_and_the_last_result_is_returned() -> None:
    ended = []

    def events() -> Iterator[object]:
        yield "a part"
        yield 1
        yield 2
        yield "after the result"
        ended.append(True)

    assert last_result(events(), int, "the work") == 2 and ended


def test_stream_without_a_result_raises_cancelled() -> None:
    with pytest.raises(Cancelled, match="the work was stopped before it ended"):
        last_result(iter(["a part"]), int, "the work")
