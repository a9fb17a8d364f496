"""Where segments begin and end, for a network whose probabilities are given chunk by chunk."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from workbench.audio.silero_stream import CHUNK
from workbench.live import endpointing
from workbench.live.endpointing import Endpointer, EndpointingLimits, SpeechSegment

RATE = 16_000
SECONDS = CHUNK / RATE  # of a chunk: 0.032


class Given:
    """Stands for the network: each chunk holds its own probability of speech."""

    forgotten = 0

    def probability(self, chunk: np.ndarray) -> float:
        return float(chunk[0])

    def forget(self) -> None:
        self.forgotten += 1


@pytest.fixture(autouse=True)
def given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpointing, "SileroStream", Given)


def chunks(*parts: tuple[int, float]) -> np.ndarray:
    """So many chunks of each probability."""
    return np.repeat([each for _, each in parts], [count * CHUNK for count, _ in parts]).astype(np.float32)


def segments(parts: Sequence[tuple[int, float]], limits: EndpointingLimits | None = None) -> list[SpeechSegment]:
    finding = Endpointer(limits or EndpointingLimits())
    return [*finding.feed(chunks(*parts)), *finding.finish()]


def test_a_segment_has_silence_before_and_after_its_speech() -> None:
    [found] = segments([(40, 0), (40, 1), (60, 0)])
    assert found.speech_end == pytest.approx(80 * SECONDS)
    assert found.end - found.speech_end == pytest.approx(0.256)
    assert 0.4 <= 40 * SECONDS - found.start < 0.4 + 2 * SECONDS
    assert len(found.samples) == round((found.end - found.start) * RATE)


def test_speech_at_the_very_start_and_end_is_kept_whole() -> None:
    [found] = segments([(30, 1)])
    assert found.start == 0.0
    assert found.end == pytest.approx(30 * SECONDS) and found.speech_end == pytest.approx(30 * SECONDS)


def test_the_pieces_of_long_speech_follow_each_other() -> None:
    found = segments([(500, 1)], EndpointingLimits(longest=5.0))
    assert [each.number for each in found] == list(range(1, len(found) + 1)) and len(found) >= 3
    assert found[0].start == 0.0
    for one, two in pairwise(found):
        assert one.speech_end == pytest.approx(one.end) and two.start == pytest.approx(one.end)
    assert found[-1].end == pytest.approx(500 * SECONDS) and all(each.end - each.start <= 7.0 for each in found)


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
    found = segments(parts)
    assert [each.number for each in found] == list(range(1, count + 1))


def test_a_segment_ends_as_soon_as_the_silence_is_long_enough() -> None:
    finding = Endpointer(EndpointingLimits(end_silence=16 * SECONDS))
    assert finding.feed(chunks((20, 1), (15, 0))) == [] and finding.present() is not None
    [found] = finding.feed(chunks((1, 0)))
    assert found.speech_end == pytest.approx(20 * SECONDS) and finding.present() is None


def test_two_segments_share_no_more_than_the_silence_between_them() -> None:
    one, two = segments([(20, 1), (13, 0), (20, 1)])
    assert two.start == pytest.approx(one.speech_end, abs=2 * SECONDS)
    assert two.speech_end == pytest.approx(53 * SECONDS) and two.start >= one.speech_end


def test_the_network_begins_anew_after_each_8_seconds_of_silence() -> None:
    finding = Endpointer()
    for seconds, times in ((7.9, 0), (0.2, 1), (7.7, 1), (0.2, 2)):
        finding.feed(np.zeros(round(seconds * RATE), np.float32))
        assert finding._network.forgotten == times  # type: ignore[attr-defined]
    assert finding.kept_seconds < 1.0 and finding.seconds == pytest.approx(16.0)
