"""Server-sent events: turns bytes, in pieces of any size, into the data of complete events.

It follows the HTML standard, section 9.2.6. Names, ids and comments of events are not needed and are dropped.
The package httpx-sse is not used: it collects lines and events of any length, and here both have a limit.
"""

from __future__ import annotations

from codecs import getincrementaldecoder

DONE = "[DONE]"  # the data of the last event of a stream in OpenAI's format
MAX_EVENT_CHARACTERS = 16 << 20


class EventReader:
    """Reads one stream of events."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._rest = ""  # an incomplete line
        self._data: list[str] = []  # lines of an incomplete event

    def feed(self, chunk: bytes) -> list[str]:
        """Returns the data of every event that these bytes complete; raises `ValueError` for an event that grows too
        large.
        """
        text = self._rest + self._decoder.decode(chunk)
        complete = len(text) - 1 if text.endswith("\r") else len(text)  # its line feed may arrive next
        lines = text[:complete].replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = lines.pop() + text[complete:]
        events = []
        for line in lines:
            if line.startswith("data:"):
                self._data.append(line[5:].removeprefix(" "))
            elif line == "data":
                self._data.append("")
            elif not line and self._data:
                events.append("\n".join(self._data))
                self._data = []
        if len(self._rest) + sum(map(len, self._data)) > MAX_EVENT_CHARACTERS:
            raise ValueError(f"an event of more than {MAX_EVENT_CHARACTERS >> 20} million characters")
        return events
