"""The begin and end of segments, for a network with fixed probabilities of each chunk."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from workbench.audio.silero_network import CHUNK
from workbench.live import endpointing
from workbench.live.endpointing import Endpointer, EndpointingLimits, SpeechSegment

RATE = 16_000
SECONDS = CHUNK / RATE  # 0.032 s, the duration of a chunk


class FixedProbabilities:
    """Replaces the network: each chunk holds its own probability of speech."""

    forgotten = 0

    def probability(self, chunk: np.ndarray) -> float:
        return float(chunk[0])

    def forget(self) -> None:
        self.forgotten += 1


@pytest.fixture(autouse=True)
def fixed_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpointing, "SileroStream", FixedProbabilities)


def chunks(*parts: tuple[int, float]) -> np.ndarray:
    """Returns `count` chunks of each probability."""
    return np.repeat([probability for _, probability in parts], [count * CHUNK for count, _ in parts]).astype(
        np.float32
    )


def segments(parts: Sequence[tuple[int, float]], limits: EndpointingLimits | None = None) -> list[SpeechSegment]:
    endpointer = Endpointer(limits or EndpointingLimits())
    return [*endpointer.feed(chunks(*parts)), *endpointer.finish()]


def test_a_segment_has_silence_before_and_after_its_speech() -> None:
    [segment] = segments([(40, 0), (40, 1), (60, 0)])
    assert segment.speech_end == pytest.approx(80 * SECONDS)
    assert segment.end - segment.speech_end == pytest.approx(0.256)
    assert 0.4 <= 40 * SECONDS - segment.start < 0.4 + 2 * SECONDS
    assert len(segment.samples) == round((segment.end - segment.start) * RATE)


def test_speech_at_the_very_start_and_end_is_kept_whole() -> None:
    [segment] = segments([(30, 1)])
    assert segment.start == 0.0
    assert segment.end == pytest.approx(30 * SECONDS) and segment.speech_end == pytest.approx(30 * SECONDS)


def test_the_pieces_of_long_speech_follow_each_other() -> None:
    pieces = segments([(500, 1)], EndpointingLimits(longest=5.0))
    assert [piece.number for piece in pieces] == list(range(1, len(pieces) + 1)) and len(pieces) >= 3
    assert pieces[0].start == 0.0
    for earlier, later in pairwise(pieces):
        assert earlier.speech_end == pytest.approx(earlier.end) and later.start == pytest.approx(earlier.end)
    assert pieces[-1].end == pytest.approx(500 * SECONDS) and all(piece.end - piece.start <= 7.0 for piece in pieces)


@pytest.mark.parametrize(
    "parts, count",
    [
        ([(20, 0), (2, 1), (20, 0)], 0),  # 64 ms of sound are no speech
        ([(20, 0), (3, 1), (20, 0)], 1),  # 96 ms are
        ([(20, 0), (2, 1), (1, 0), (2, 1), (20, 0)], 0),  # if they are in a row
        ([(20, 0), (9, 0.49), (20, 0)], 0),  # speech begins at a probability of 0.5
        ([(20, 0), (9, 0.5), (20, 0)], 1),
        ([(20, 0), (9, 1), (15, 0.36), (9, 1), (20, 0)], 1),  # and goes on above 0.35
        ([(20, 0), (9, 1), (15, 0.34), (9, 1), (20, 0)], 2),
    ],
)
def test_number_of_segments_follows_the_speech_probabilities(parts: list[tuple[int, float]], count: int) -> None:
    result = segments(parts)
    assert [segment.number for segment in result] == list(range(1, count + 1))


def test_a_segment_ends_as_soon_as_the_silence_is_long_enough() -> None:
    endpointer = Endpointer(EndpointingLimits(end_silence=16 * SECONDS))
    assert endpointer.feed(chunks((20, 1), (15, 0))) == [] and endpointer.present() is not None
    [segment] = endpointer.feed(chunks((1, 0)))
    assert segment.speech_end == pytest.approx(20 * SECONDS) and endpointer.present() is None


def test_two_segments_share_no_more_than_the_silence_between_them() -> None:
    earlier, later = segments([(20, 1), (13, 0), (20, 1)])
    assert later.start == pytest.approx(earlier.speech_end, abs=2 * SECONDS)
    assert later.speech_end == pytest.approx(53 * SECONDS) and later.start >= earlier.speech_end


def test_the_network_begins_anew_after_each_8_seconds_of_silence() -> None:
    endpointer = Endpointer()
    for seconds, times in ((7.9, 0), (0.2, 1), (7.7, 1), (0.2, 2)):
        endpointer.feed(np.zeros(round(seconds * RATE), np.float32))
        assert endpointer._network.forgotten == times  # type: ignore[attr-defined]
    assert endpointer.kept_seconds < 1.0 and endpointer.seconds == pytest.approx(16.0)


def test_pending_sound_counts_from_the_end_of_the_last_segment() -> None:
    endpointer = Endpointer(EndpointingLimits())
    assert len(endpointer.feed(chunks((40, 0), (40, 1), (60, 0)))) == 1
    assert endpointer.pending_seconds == pytest.approx(60 * SECONDS - 0.4, abs=SECONDS)
    assert not endpointer.finish() and endpointer.pending_seconds == 0


def test_discarded_speech_is_in_no_segment_and_the_time_goes_on() -> None:
    endpointer = Endpointer(EndpointingLimits())
    endpointer.feed(chunks((40, 0), (40, 1)))
    endpointer.feed(np.ones(CHUNK // 2, np.float32))
    assert endpointer.discard() == 1 and endpointer.discard() is None and endpointer.pending_seconds == 0
    endpointer.feed(chunks((40, 1)))
    [segment] = endpointer.finish()
    assert segment.number == 2 and segment.start == pytest.approx(80.5 * SECONDS)
    assert segment.end == endpointer.seconds == pytest.approx(120.5 * SECONDS)
