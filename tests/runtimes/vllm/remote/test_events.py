"""Parsing of server-sent events, wherever the byte stream is split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.runtimes.vllm.remote import events
from workbench.runtimes.vllm.remote.events import EventReader

LINES = st.sampled_from(
    ["data: a", "data:b", "data: ü漢🙂", "data", "data:", ": ping", "event: x", "id: 1", "", "datum: c"]
)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def read(pieces: list[bytes]) -> list[str]:
    reader = EventReader()
    return [data for piece in pieces for data in reader.feed(piece)]


def expected_events(lines: list[str]) -> list[str]:
    """By the standard: a blank line ends an event, which consists of the data lines since the previous event."""
    complete, data = [], []
    for line in lines:
        if line == "":
            if data:
                complete.append("\n".join(data))
            data = []
        name, _, value = line.partition(":")
        if name == "data" and line:
            data.append(value[1:] if value.startswith(" ") else value)
    return complete


@given(st.lists(st.tuples(LINES, ENDS)), st.data())
def test_events_do_not_depend_on_where_the_bytes_are_split(lines: list[tuple[str, str]], data: st.DataObject) -> None:
    text = "".join(line + end for line, end in lines)
    content = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=8)))
    pieces = [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)])]
    actual = read(pieces)
    # A carriage return and a following line feed are one line end.
    expected = expected_events(text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1])
    if text.endswith("\r"):  # a line feed may still follow
        assert actual in (expected, expected[:-1])
    else:
        assert actual == expected


def test_incomplete_event_at_the_end_is_ignored() -> None:
    assert read([b"data: a\n\nda", b"ta: b\n"]) == ["a"]


def test_invalid_utf8_bytes_become_replacement_characters() -> None:
    assert read([b"data: \xff\xfe\n\n"]) == ["��"]


@pytest.mark.parametrize("piece", [b"data: " + b"a" * 60, b"data: aaaaaaaaaa\n"])
def test_event_above_the_size_limit_is_refused(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_EVENT_CHARACTERS", 50)
    with pytest.raises(ValueError, match="an event of more than"):
        read([piece] * 20)
