"""Which stretches of sound a tower computes together. This file knows no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

LONGER = 1.25  # a batch's longest stretch is at most so many times its shortest: the rest is padding
MOST_SCORES = 1 << 26  # of the attention of one batch


def batches(lengths: Sequence[int], heads: int) -> Iterator[list[int]]:
    """Numbers of stretches to compute together, the longest first; each of them is in one batch.

    Args:
        lengths: of the stretches, in frames of the attention.
        heads: scores of each pair of frames.
    """
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        longest = lengths[batch[0]] if batch else 0
        full = heads * (len(batch) + 1) * longest**2 > MOST_SCORES
        if batch and (full or longest > LONGER * lengths[number]):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch
