"""Streaming audio chunks of a fake convolutional codec: joined, they equal the decoding of the whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.speech_layouts import LAYOUT
from workbench.speech.delay import aligned, delayed
from workbench.speech.streaming import AudioChunks


class FakeCodec:
    """Each sample is a weighted sum over the codes of the frames within reach; frames beyond the ends count as zero."""

    sample_rate, hop = 16000, 4

    def __init__(self, before: int, after: int):
        self.receptive_field = (before, after)
        draw = np.random.default_rng(before * 10 + after)
        self.kernel = draw.normal(size=(before + 1 + after, LAYOUT.streams, self.hop))
        self.decoded: list[int] = []

    def encode(self, samples: np.ndarray) -> np.ndarray:
        raise AssertionError("nothing is encoded")

    def decode(self, codes: np.ndarray) -> np.ndarray:
        self.decoded.append(len(codes))
        before, after = self.receptive_field
        padded = np.pad(np.tanh(codes + 0.3), ((before, after), (0, 0)))
        windows = np.stack([padded[place : place + len(codes)] for place in range(before + 1 + after)])
        samples: np.ndarray = np.einsum("kts,ksh->th", windows, self.kernel).ravel().astype(np.float32)
        return samples


def random_rows(frames: int, seed: int = 0) -> np.ndarray:
    codes = np.random.default_rng(seed).integers(0, LAYOUT.codes, (frames, LAYOUT.streams))
    return delayed(codes, LAYOUT)


@given(st.integers(0, 60), st.integers(0, 4), st.integers(0, 4), st.integers(1, 9), st.integers(0, 6))
def test_joined_chunks_equal_the_whole(frames: int, before: int, after: int, first: int, cut: int) -> None:
    codec = FakeCodec(before, after)
    rows = random_rows(frames)
    rows = rows[: max(len(rows) - cut, 0)]
    chunks = AudioChunks(codec, LAYOUT, first_frames=first, growth=1.4, max_frames=12)
    pieces = [piece for row in rows if (piece := chunks.add(row)) is not None]
    assert all(len(piece) for piece in pieces)
    expected = codec.decode(aligned(rows, LAYOUT)) if len(rows) >= LAYOUT.streams else np.empty(0, np.float32)
    joined = np.concatenate([*pieces, chunks.finish()])
    assert joined.dtype == np.float32 and joined.shape == expected.shape
    assert np.abs(joined - expected).max(initial=0) <= 1e-5


def test_understated_codec_context_gives_different_chunks() -> None:
    """Shows that the comparison above can fail."""
    codec, rows = FakeCodec(2, 2), random_rows(30)
    expected = codec.decode(aligned(rows, LAYOUT))
    decode = codec.decode

    class Short(FakeCodec):
        def decode(self, codes: np.ndarray) -> np.ndarray:
            return decode(codes)

    chunks = AudioChunks(Short(1, 1), LAYOUT)
    pieces = [piece for row in rows if (piece := chunks.add(row)) is not None]
    assert np.abs(np.concatenate([*pieces, chunks.finish()]) - expected).max() > 0.1


def test_audio_chunks_start_as_early_as_possible_and_grow() -> None:
    codec = FakeCodec(3, 2)
    chunks = AudioChunks(codec, LAYOUT, first_frames=4, growth=2.0, max_frames=20)
    chunk_frames = {}
    for number, row in enumerate(random_rows(90), 1):
        piece = chunks.add(row)
        if piece is not None:
            chunk_frames[number] = len(piece) // codec.hop
    # The first needs 4 frames, 2 after them, and the streams - 1 rows of the delay.
    assert next(iter(chunk_frames)) == 4 + 2 + LAYOUT.streams - 1
    assert list(chunk_frames.values()) == [4, 8, 16, 20, 20, 20]
    assert max(codec.decoded) <= 20 + 3 + 2


@pytest.mark.parametrize("rows", range(LAYOUT.streams))
def test_fewer_rows_than_the_delay_give_no_audio(rows: int) -> None:
    codec = FakeCodec(1, 1)
    chunks = AudioChunks(codec, LAYOUT)
    assert all(chunks.add(row) is None for row in random_rows(8)[:rows])
    assert chunks.finish().shape == (0,) and codec.decoded == []
