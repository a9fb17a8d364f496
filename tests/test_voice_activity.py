"""Which stretches of a recording a recogniser gets to hear."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.shared_data import shared
from tests.tiny_checkpoints import noise
from workbench.audio.read import read
from workbench.audio.spans import Span
from workbench.errors import BadInput
from workbench.families.fsmn_vad import FsmnVadOptions
from workbench.options import ListeningOptions
from workbench.runtimes.pytorch import fsmn_vad
from workbench.voice_activity import MERGE_SECONDS, speech_spans

RATE = 16000


def detector(monkeypatch: pytest.MonkeyPatch, *spans: tuple[float, float]) -> list[int]:
    """Makes silero find these spans; returns the lengths it is asked about."""
    asked: list[int] = []

    def silero_spans(samples: np.ndarray) -> list[Span]:
        asked.append(len(samples))
        return [Span(*span) for span in spans]

    monkeypatch.setattr("workbench.audio.silero.silero_spans", silero_spans)
    return asked


@pytest.mark.parametrize("vad", ["auto", "none"])
def test_what_fits_is_taken_whole_without_a_detector(monkeypatch: pytest.MonkeyPatch, vad: str) -> None:
    asked = detector(monkeypatch)
    found = speech_spans(np.zeros(30 * RATE, np.float32), ListeningOptions(vad=vad))
    assert found.spans == (Span(0.0, 30.0),) and not found.notes and not asked


def test_longer_recordings_are_searched_for_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = detector(monkeypatch, (1.0, 2.0), (2.0 + MERGE_SECONDS, 9.0), (12.0, 13.0))
    found = speech_spans(np.zeros(30 * RATE + 1, np.float32), ListeningOptions())
    assert found.spans == (Span(1.0, 9.0), Span(12.0, 13.0)) and asked == [30 * RATE + 1]


def test_a_detector_that_was_asked_for_also_searches_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    detector(monkeypatch, (1.0, 2.0))
    assert speech_spans(np.zeros(3 * RATE, np.float32), ListeningOptions(vad="silero")).spans == (Span(1.0, 2.0),)


def test_speech_longer_than_the_cap_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    detector(monkeypatch, (0.5, 70.0))
    samples = noise(75.0)[0]
    samples[int(17.9 * RATE) : int(18.1 * RATE)] = 0  # the only pause in reach of the first cut
    spans = speech_spans(samples, ListeningOptions(max_segment_seconds=20.0)).spans
    assert all(span.seconds <= 20.0 for span in spans)
    assert spans[0].start == 0.5 and spans[-1].end == 70.0
    assert [one.end for one in spans[:-1]] == [two.start for two in spans[1:]]
    assert spans[0].end == pytest.approx(18.0, abs=0.1)


@pytest.mark.parametrize("vad", ["auto", "silero"])
def test_no_speech_is_said(vad: str) -> None:
    found = speech_spans(np.zeros(40 * RATE, np.float32), ListeningOptions(vad=vad))
    assert found.spans == () and found.notes == ("silero-vad found no speech in the recording",)


def test_speech_is_found_in_a_long_recording() -> None:
    speech = read(shared("speech/funasr_sample.wav")).samples
    silence = np.zeros(30 * RATE, np.float32)
    found = speech_spans(np.concatenate([silence, speech, silence]), ListeningOptions())
    assert found.spans and all(30.0 < span.start < span.end < 30.0 + len(speech) / RATE for span in found.spans)


def test_fsmn_vad_is_a_choice() -> None:
    samples = read(shared("speech/funasr_sample.wav")).samples
    first, last = speech_spans(samples, ListeningOptions(vad=str(shared("fsmn-vad")))).spans  # a pause of 1 s between
    assert (first.start, last.end) == (pytest.approx(0.77, abs=0.02), pytest.approx(5.98, abs=0.02))
    silent = speech_spans(np.zeros(5 * RATE, np.float32), ListeningOptions(vad=str(shared("fsmn-vad"))))
    assert silent.spans == () and silent.notes == ("FSMN-VAD found no speech in the recording",)


@pytest.mark.parametrize("kind", ["directory", "gguf"])
def test_many_threads_may_ask_for_fsmn_vad(tmp_path: Path, kind: str) -> None:
    place = shared("fsmn-vad")
    if kind == "gguf":
        from workbench.conversion import fsmn_vad, writer

        [place] = writer.write(fsmn_vad.plans(place, "workbench"), "f32", tmp_path / "vad.gguf")
    samples = read(shared("fsmn-vad/vad_example.wav")).samples[: 20 * RATE]
    alone = speech_spans(samples, ListeningOptions(vad=str(place)))
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda _: speech_spans(samples, ListeningOptions(vad=str(place))), range(8)))
    assert alone.spans and together == [alone] * 8


def test_fsmn_vad_may_be_in_a_gguf_file(tmp_path: Path) -> None:
    from workbench.conversion import fsmn_vad, writer

    [path] = writer.write(fsmn_vad.plans(shared("fsmn-vad"), "workbench"), "f32", tmp_path / "vad.gguf")
    samples = read(shared("speech/funasr_sample.wav")).samples
    one, other = (speech_spans(samples, ListeningOptions(vad=str(place))).spans for place in (path, shared("fsmn-vad")))
    assert one == other and len(one) == 2


@pytest.mark.parametrize(("given", "expected"), [(None, 800), (0, 0), (300, 300)])
def test_the_silence_that_ends_a_stretch_reaches_fsmn_vad(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: int | None, expected: int
) -> None:
    asked: list[FsmnVadOptions] = []

    class Detector:
        def spans(self, samples: np.ndarray, options: FsmnVadOptions) -> list[Span]:
            asked.append(options)
            return [Span(1.0, 2.0)]

    monkeypatch.setattr(fsmn_vad, "open_fsmn_vad", lambda place: Detector())
    speech_spans(noise(3.0)[0], ListeningOptions(vad=str(tmp_path), end_silence_ms=given))
    assert asked == [FsmnVadOptions(end_silence_ms=expected)]


@pytest.mark.parametrize("vad", ["auto", "silero", "none"])
def test_the_silence_that_ends_a_stretch_is_refused_where_no_fsmn_vad_serves(vad: str) -> None:
    with pytest.raises(BadInput) as error:
        speech_spans(noise(1.0)[0], ListeningOptions(vad=vad, end_silence_ms=500))
    assert str(error.value) == (
        f"option end_silence_ms is 500 and option vad is {vad!r}; end_silence_ms applies where vad names an FSMN-VAD"
    )


def test_a_detector_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(BadInput) as error:
        speech_spans(noise(1.0)[0], ListeningOptions(vad=str(missing)))
    assert str(error.value) == (
        f"option vad is {str(missing)!r}; expected auto, silero, none, or the id, directory or GGUF file of an FSMN-VAD"
    )


def test_a_folder_that_holds_no_detector_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=tmp_path.name):
        speech_spans(noise(1.0)[0], ListeningOptions(vad=str(tmp_path)))
