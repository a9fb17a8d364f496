"""Server-sent events: bytes as they arrive, in pieces of any size, to the data of whole events.

After the HTML standard, section 9.2.6. Names, ids and comments of events are of no use here and left out.
The package httpx-sse is not used: it collects a line or an event of any length, and nothing here may.
"""

from __future__ import annotations

from codecs import getincrementaldecoder

DONE = "[DONE]"  # the data of the event that ends a stream of OpenAI's form
LARGEST_EVENT = 16 << 20  # characters


class EventReader:
    """Reads one stream of events."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._rest = ""  # of a line that is not whole
        self._data: list[str] = []  # lines of an event that is not whole

    def feed(self, arrived: bytes) -> list[str]:
        """The data of every event that is whole with these bytes; raises `ValueError` for one that grows too large."""
        text = self._rest + self._decoder.decode(arrived)
        held = len(text) - 1 if text.endswith("\r") else len(text)  # its line feed may be on the way
        lines = text[:held].replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = lines.pop() + text[held:]
        found = []
        for line in lines:
            if line.startswith("data:"):
                self._data.append(line[5:].removeprefix(" "))
            elif line == "data":
                self._data.append("")
            elif not line and self._data:
                found.append("\n".join(self._data))
                self._data = []
        if len(self._rest) + sum(map(len, self._data)) > LARGEST_EVENT:
            raise ValueError(f"an event of more than {LARGEST_EVENT >> 20} million characters")
        return found
