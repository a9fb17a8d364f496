"""Chooses which chunks of audio a tower computes together. This file knows no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

# A batch's longest chunk is at most this many times as long as its shortest, as the difference is padding.
LONGER = 1.25
MAX_SCORES = 1 << 26  # attention scores in one batch


def batches(lengths: Sequence[int], heads: int) -> Iterator[list[int]]:
    """Yields batches of chunk indices, the longest chunks first; each chunk is in one batch.

    Args:
        lengths: of the chunks, in frames of the attention.
        heads: number of attention scores per pair of frames.
    """
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        longest = lengths[batch[0]] if batch else 0
        full = heads * (len(batch) + 1) * longest**2 > MAX_SCORES
        if batch and (full or longest > LONGER * lengths[number]):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch
