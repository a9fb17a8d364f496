"""The rows of the output matrix that an audio position needs, in the order in which runtimes store them.

Special ids come first, then the ids of all codec streams, so one matrix product gives the logits of all streams. Stream
s >= 1 scores W (h + e_s), with one matrix W for all streams and an embedding e_s of each. Every codec row of W belongs
to one stream, so W e_s is a constant per code: a bias. This file knows where the rows are; it computes no product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from workbench.speech.layout import SpeechLayout


@dataclass(frozen=True)
class HeadRows:
    """The places of a layout's ids among the rows for special and codec ids."""

    layout: SpeechLayout

    @property
    def specials(self) -> int:
        """The number of rows for special ids."""
        return self.layout.text_first

    @property
    def count(self) -> int:
        """The number of rows."""
        return self.at(self.layout.codec_end)

    @property
    def later(self) -> slice:
        """The rows of streams 1 and above."""
        return slice(self.at(self.layout.interval(0)[1]), self.count)

    def at(self, number: int) -> int:
        """Returns the row of a special or codec id."""
        return number if number < self.specials else self.specials + number - self.layout.codec_first

    def has(self, first: int, end: int) -> bool:
        """Returns whether the ids from `first` to `end` (exclusive) have rows here: text ids have none."""
        return end <= self.specials or first >= self.layout.codec_first

    def parts(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yields the ids from `first` to `end` (exclusive) as intervals of which each has rows here or none has."""
        bounds = (0, self.specials, self.layout.codec_first, self.layout.codec_end)
        for low, high in pairwise(bounds):
            if max(first, low) < min(end, high):
                yield max(first, low), min(end, high)

    def span(self, first: int, end: int) -> slice:
        """Returns the rows of the ids from `first` to `end` (exclusive), which are all special or all codec ids."""
        return slice(self.at(first), self.at(first) + end - first)

    def biased(self) -> Iterator[tuple[int, slice]]:
        """Yields each stream that has a bias, and its rows."""
        for stream in range(1, self.layout.streams):
            yield stream, self.span(*self.layout.interval(stream))

    def by_stream(self, logits: Any) -> Any:
        """Returns logits of the rows `later` [..., rows] as [..., streams - 1, layer size]."""
        return logits.reshape(*logits.shape[:-1], self.layout.streams - 1, self.layout.layer_size)
