"""The position of each recording of a batch. Each recording advances at its own pace, frame by frame."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.decoding.ctc_beam.logits import Frames

VALUES_AT_ONCE = 1 << 17  # of a block of frames, so that it stays in the processor's cache
MAX_AT_ONCE = 64  # frames of a block


class Progress:
    """The next frame of each recording, as log-probabilities; blocks of frames are computed when they are needed.

    Args:
        recordings: the longest first.
        vocabulary: number of tokens, with the blank.
        blank: its id.
    """

    def __init__(self, recordings: Sequence[Frames], vocabulary: int, blank: int):
        self._recordings, self._vocabulary, self._blank = recordings, vocabulary, blank
        count = len(recordings)
        longest = len(recordings[0]) if count else 0
        self._size = size = min(longest, MAX_AT_ONCE, max(VALUES_AT_ONCE // vocabulary, 1))
        self._blocks = np.zeros((count, size, vocabulary))
        self._blanks = np.zeros(count * size)
        self._tops = np.zeros(count * size)  # the best log-probability of a token in each frame
        self._frames_before = np.zeros(count, dtype=np.int64)  # frames before the block
        self._lengths = np.array([len(each) for each in recordings], dtype=np.int64)
        self._starts = np.arange(count) * size
        self._places = self._starts.copy()  # the index of each next frame among the frames of all blocks
        self._ends = self._places.copy()  # where the blocks end
        self.running = np.ones(count, dtype=bool)  # which recordings have a next frame
        self.unfinished = count  # no recording from this one on has a next frame
        self._steps_left = 0  # steps that are possible before a block ends
        self._load_blocks()

    @property
    def blank_log_probs(self) -> np.ndarray:
        """Log-probability of the blank in each next frame, float64 [unfinished]; any number for a finished one."""
        values: np.ndarray = self._blanks[self._places[: self.unfinished]]
        return values

    @property
    def best_log_probs(self) -> np.ndarray:
        """The best log-probability of a token, not the blank, in each next frame, float64 [unfinished]."""
        values: np.ndarray = self._tops[self._places[: self.unfinished]]
        return values

    def token_log_probs(self, tokens: np.ndarray) -> np.ndarray:
        """Returns the log-probabilities of tokens [unfinished, n] in the next frames, float64 [unfinished, n].

        For the token -1, the value has no meaning.
        """
        return self._blocks.reshape(-1).take(tokens + self._places[: self.unfinished, None] * self._vocabulary)

    def frames(self, recordings: np.ndarray) -> np.ndarray:
        """Returns the next frames of some recordings, float64 [n, vocabulary]; -inf for the blank."""
        values: np.ndarray = self._blocks.reshape(-1, self._vocabulary)[self._places[recordings]]
        return values

    def step(self, advances: np.ndarray) -> None:
        """Moves the recordings in which `advances` [unfinished] is true by one frame."""
        self._places[: self.unfinished] += advances
        self._steps_left -= 1
        if not self._steps_left:
            self._load_blocks()

    def _load_blocks(self) -> None:
        """Computes the next blocks of the recordings that have come to the end of one."""
        for each in np.flatnonzero(self.running & (self._places == self._ends)).tolist():
            self._frames_before[each] += self._places[each] - self._starts[each]
            start = int(self._starts[each])
            count = min(self._size, int(self._lengths[each] - self._frames_before[each]))
            self._places[each], self._ends[each] = start, start + count
            if not count:
                self.running[each] = False
                continue
            block = self._recordings[each].read(int(self._frames_before[each]), self._blocks[each, :count])
            self._blanks[start : start + count] = block[:, self._blank]
            block[:, self._blank] = -np.inf
            self._tops[start : start + count] = block.max(axis=1)
        self.unfinished = int(np.flatnonzero(self.running).max(initial=-1)) + 1
        self._steps_left = int((self._ends - self._places)[self.running].min(initial=self._size))
