"""Which chunks of speech share a pass of a network that pads them to the longest. This file knows no recogniser."""

from __future__ import annotations

from collections.abc import Sequence

MAX_CHUNKS = 16  # chunks in a pass
MAX_PADDED = 1.15  # the largest ratio of a pass's seconds, with padding, to its seconds of speech


def padded_batches(
    seconds: Sequence[float], max_chunks: int, max_seconds: float, max_padded: float = MAX_PADDED
) -> list[int]:
    """Returns the indices where batches of neighbouring chunks end, so that the batches have little padding.

    Args:
        seconds: the length of each chunk.
        max_chunks: the most chunks of a batch.
        max_seconds: the most seconds of a batch, with its padding; a longer chunk is a batch of its own.
        max_padded: the largest ratio of a batch's seconds, with padding, to its seconds of speech.
    """
    ends: list[int] = []
    first, longest, total = 0, 0.0, 0.0
    for number, length in enumerate(seconds):
        widest, sums = max(longest, length), total + length
        padded = widest * (number - first + 1)
        if number > first and (number - first == max_chunks or padded > min(max_seconds, max_padded * sums)):
            ends.append(number)
            first, widest, sums = number, length, length
        longest, total = widest, sums
    return [*ends, len(seconds)] if len(seconds) > 0 else []
