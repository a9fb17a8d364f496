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
        if batch:
            longest = lengths[batch[0]]
            most = max(MOST_SCORES // max(heads * longest**2, 1), 1)
            if len(batch) == most or longest > LONGER * lengths[number]:
                yield batch
                batch = []
        batch.append(number)
    if batch:
        yield batch
