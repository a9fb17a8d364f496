"""Voice activity detection: which spans of a recording are passed to the recogniser."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soxr

from tests.pipelines.recognition.test_speech_session import FakeRecogniser
from tests.support.shared_data import shared
from tests.support.tiny_checkpoints import noise
from workbench.audio.levels import amplified
from workbench.audio.read import read
from workbench.audio.silero import SileroOptions, silero_spans
from workbench.audio.spans import Span
from workbench.core.errors import BadInput
from workbench.core.options import ListeningOptions
from workbench.core.settings import SessionSpec, Settings
from workbench.families.voice_activity.fsmn_vad import FsmnVadOptions
from workbench.isolation.loader import open_here
from workbench.pipelines.detection.voice_activity import MERGE_SECONDS, PAD_SECONDS, SILERO, speech_spans
from workbench.pipelines.recognition.speech_session import SpeechSession
from workbench.registry.registry import Registry
from workbench.registry.sources import local_checkpoint
from workbench.runtimes.pytorch import fsmn_vad
from workbench.text.rates import score
from workbench.training.data.augment import noise as coloured_noise
from workbench.training.data.augment import with_noise
from workbench.training.data.digits import load_fsdd

RATE = 16000
LONG_DIGITS = Path(__file__).parents[3] / "assets" / "samples" / "long_digits.wav"


def detector(monkeypatch: pytest.MonkeyPatch, *spans: tuple[float, float]) -> list[int]:
    """Make silero return these spans; returns a list of the lengths of the recordings it receives."""
    lengths: list[int] = []

    def silero_spans(samples: np.ndarray, options: SileroOptions) -> list[Span]:
        assert options == SileroOptions(**SILERO)
        lengths.append(len(samples))
        return [Span(*span) for span in spans]

    monkeypatch.setattr("workbench.audio.silero.silero_spans", silero_spans)
    monkeypatch.setattr("workbench.audio.silero.spans_with_resets", lambda samples, options: [])
    return lengths


@pytest.mark.parametrize("vad", ["auto", "none"])
def test_recording_within_the_limit_is_used_whole_without_vad(monkeypatch: pytest.MonkeyPatch, vad: str) -> None:
    lengths = detector(monkeypatch)
    speech = speech_spans(np.zeros(30 * RATE, np.float32), ListeningOptions(vad=vad))
    assert speech.spans == (Span(0.0, 30.0),) and not speech.notes and not lengths


def test_longer_recordings_are_searched_for_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    merge_gap = 2 * PAD_SECONDS + MERGE_SECONDS
    lengths = detector(monkeypatch, (1.0, 2.0), (2.0 + merge_gap, 9.0), (9.1 + merge_gap, 20.0))
    speech = speech_spans(np.zeros(30 * RATE + 1, np.float32), ListeningOptions())
    assert speech.spans == (Span(1.0 - PAD_SECONDS, 9.0 + PAD_SECONDS), Span(9.1 + merge_gap - PAD_SECONDS, 20.5))
    assert lengths == [30 * RATE + 1] and not speech.notes


def test_explicit_vad_is_applied_to_short_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    detector(monkeypatch, (1.0, 2.0))
    speech = speech_spans(np.zeros(4 * RATE, np.float32), ListeningOptions(vad="silero"))
    assert speech.spans == (Span(1.0 - PAD_SECONDS, 2.0 + PAD_SECONDS),)


def test_short_spans_are_merged_with_their_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    detector(monkeypatch, (1.0, 1.3), (5.0, 5.3), (8.0, 8.3), (20.0, 20.3))
    samples = np.zeros(31 * RATE, np.float32)
    assert speech_spans(samples, ListeningOptions()).spans == (Span(0.5, 8.8), Span(19.5, 20.8))
    short_spans = speech_spans(samples, ListeningOptions(vad="silero", max_segment_seconds=2.0)).spans
    assert [round(span.seconds, 6) for span in short_spans] == [1.3, 1.3, 1.3, 1.3]


def test_padding_excludes_noise_as_loud_as_the_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    detector(monkeypatch, (1.0, 1.3), (5.0, 5.3), (5.7, 6.0), (8.0, 8.3), (20.0, 20.3))
    samples = np.random.default_rng(0).uniform(-0.1, 0.1, 31 * RATE).astype(np.float32)
    samples[round(6.0 * RATE) : 8 * RATE] *= 0.1  # the only pause
    samples[round(20.3 * RATE) :] = 0
    spans = speech_spans(samples, ListeningOptions()).spans
    rounded = [(round(span.start, 4), round(span.end, 4)) for span in spans]
    assert rounded == [(1.0, 1.3), (5.0, 8.3), (20.0, 20.8)]


def test_a_constant_offset_changes_neither_padding_nor_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    detector(monkeypatch, (10.0, 20.0))
    samples = np.zeros(31 * RATE, np.float32)
    samples[10 * RATE : 20 * RATE] = noise(10.0)[0] * 0.1
    for offset in (0.0, -0.05, 0.5):
        found = speech_spans(samples + np.float32(offset), ListeningOptions())
        assert found.spans == (Span(10.0 - PAD_SECONDS, 20.0 + PAD_SECONDS),) and not found.notes, offset


def test_speech_longer_than_max_segment_seconds_is_cut_at_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    detector(monkeypatch, (1.0, 70.0))
    samples = noise(75.0)[0]
    samples[int(17.9 * RATE) : int(18.1 * RATE)] = 0  # the only pause in reach of the first cut
    spans = speech_spans(samples, ListeningOptions(max_segment_seconds=20.0)).spans
    assert all(span.seconds <= 20.0 for span in spans)
    assert (spans[0].start, spans[-1].end) == (pytest.approx(1.0), pytest.approx(70.0))
    assert [left.end for left in spans[:-1]] == [right.start for right in spans[1:]]
    assert spans[0].end == pytest.approx(18.0, abs=0.1)


@pytest.mark.parametrize("vad", ["auto", "silero"])
def test_missing_speech_is_reported_in_a_note(vad: str) -> None:
    speech = speech_spans(np.zeros(40 * RATE, np.float32), ListeningOptions(vad=vad))
    assert speech.spans == () and speech.notes == ("silero-vad found no speech in the recording",)


def test_speech_is_found_in_a_long_recording() -> None:
    speech = read(shared("speech/funasr_sample.wav")).samples
    silence = np.zeros(30 * RATE, np.float32)
    detected = speech_spans(np.concatenate([silence, speech, silence]), ListeningOptions())
    assert detected.spans and not detected.notes
    assert detected.spans[0].start > 30.0 and detected.spans[-1].end < 30.6 + len(speech) / RATE


def join_takes(speaker: str, pauses: tuple[float, float], seconds: float) -> np.ndarray:
    """Takes of single digits of the speaker with digital silence between them, with a root mean square of 0.05."""
    rng = np.random.default_rng(1)
    takes = [take for take in load_fsdd(shared("fsdd")) if take.speaker == speaker]
    parts: list[np.ndarray] = []
    while sum(map(len, parts)) < seconds * RATE:
        take = takes[rng.integers(len(takes))]
        pause = np.zeros(int(rng.uniform(*pauses) * RATE), np.float32)
        parts += [soxr.resample(take.samples, take.sample_rate, RATE), pause]
    samples = np.concatenate(parts)
    return (samples * (0.05 / np.sqrt(np.mean(samples**2)))).astype(np.float32)


def speech_seconds(samples: np.ndarray, vad: str = "silero") -> float:
    return sum(span.seconds for span in speech_spans(samples, ListeningOptions(vad=vad)).spans)


@pytest.mark.parametrize("kind", ["silero", "fsmn-vad"])
def test_quiet_speech_is_detected_like_loud_speech(kind: str) -> None:
    vad = kind if kind == "silero" else str(shared("fsmn-vad"))
    samples = read(LONG_DIGITS).samples
    loud_seconds = speech_seconds(samples, vad)
    for level in (-20.0, -40.0):
        quiet_samples = np.round(samples * 10 ** (level / 20) * 32768) / 32768
        assert speech_seconds(quiet_samples.astype(np.float32), vad) == pytest.approx(loud_seconds, rel=0.05)
    if kind == "silero":
        assert sum(span.seconds for span in silero_spans(quiet_samples.astype(np.float32))) < 0.3 * loud_seconds


def test_fsmn_vad_finds_quiet_speech_in_loud_noise() -> None:
    vad = str(shared("fsmn-vad"))
    speech = join_takes("nicolas", (0.5, 1.5), 60.0)
    pink = coloured_noise(len(speech), "pink", np.random.default_rng(2))
    noisy = with_noise(speech, pink, float(np.mean(speech**2)), 5.0)
    quiet_samples = np.round(noisy * 0.01 * 32768) / 32768
    assert speech_seconds(quiet_samples.astype(np.float32), vad) == pytest.approx(speech_seconds(noisy, vad), rel=0.03)


def test_quiet_digits_are_transcribed_as_well_as_without_vad() -> None:
    registry = Registry()
    card = registry.card("demo/sensevoice")
    directory = local_checkpoint(card)
    assert directory is not None
    session = open_here(SessionSpec(card.id, card.family, "pytorch", directory, Settings(threads=1)))
    samples = json.loads((LONG_DIGITS.parent / "samples.json").read_text())
    [reference] = [sample["text"] for sample in samples if sample["file"] == LONG_DIGITS.name]
    quiet_samples = read(LONG_DIGITS).samples * np.float32(0.01)
    word_errors = {
        vad: score(reference, session.transcribe((quiet_samples, RATE), vad=vad).text).words.errors
        for vad in ("none", "auto")
    }
    session.close()
    assert word_errors["auto"] <= word_errors["none"] + 1


def test_speech_missed_by_the_vad_state_is_found_after_a_reset() -> None:
    samples = join_takes("jackson", (0.05, 0.3), 60.0)
    stuck = silero_spans(amplified(samples))
    assert sum(span.seconds for span in stuck) < 10, "without a reset the network misses most of this recording"
    speech = speech_spans(samples, ListeningOptions())
    assert sum(span.seconds for span in speech.spans) > 0.9 * len(samples) / RATE and not speech.notes


def test_recording_with_all_loud_parts_detected_is_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = read(shared("fsmn-vad/vad_example.wav")).samples
    expected = silero_spans(samples, SileroOptions(**SILERO))

    def spans_with_resets(samples: np.ndarray, options: SileroOptions) -> list[Span]:
        raise AssertionError("no loud part was left out")

    monkeypatch.setattr("workbench.audio.silero.spans_with_resets", spans_with_resets)
    monkeypatch.setattr("workbench.pipelines.detection.voice_activity.PAD_SECONDS", 0.0)
    monkeypatch.setattr("workbench.pipelines.detection.voice_activity.MERGE_SECONDS", -1.0)
    monkeypatch.setattr("workbench.pipelines.detection.voice_activity.SHORT_SECONDS", 0.0)
    speech = speech_spans(samples, ListeningOptions(max_segment_seconds=100.0, vad="silero"))
    assert list(speech.spans) == expected


@pytest.mark.parametrize("level", [-20.0, -40.0, -60.0])
def test_noise_is_not_detected_as_speech(level: float) -> None:
    hiss = np.random.default_rng(0).standard_normal(40 * RATE).astype(np.float32) * np.float32(10 ** (level / 20))
    speech = speech_spans(hiss, ListeningOptions())
    assert speech.spans == ()
    assert speech.notes == (
        "silero-vad found no speech in the recording, though 40 s of it are not silent; "
        "if words are missing, try --vad none",
    )


def test_long_loud_undetected_parts_are_reported_in_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    detector(monkeypatch, (1.0, 5.0))
    samples = np.random.default_rng(0).uniform(-0.1, 0.1, 40 * RATE).astype(np.float32)
    samples[20 * RATE :] = 0
    [note] = speech_spans(samples, ListeningOptions()).notes  # all but 1 to 5 s of the 20
    assert note == (
        "silero-vad left out 16 s that are about as loud as the speech that it found; "
        "if words are missing, try --vad none"
    )
    samples[6 * RATE :] *= 0.1
    assert speech_spans(samples, ListeningOptions()).notes == ()


def test_vad_option_accepts_an_fsmn_vad_directory() -> None:
    samples = read(shared("speech/funasr_sample.wav")).samples
    [span] = speech_spans(samples, ListeningOptions(vad=str(shared("fsmn-vad")))).spans  # a pause of 1 s inside
    assert span.start == pytest.approx(0.77 - PAD_SECONDS, abs=0.02)
    assert span.end == pytest.approx(len(samples) / RATE, abs=0.02)  # half a second from 5.98 s would be beyond it
    silent = speech_spans(np.zeros(5 * RATE, np.float32), ListeningOptions(vad=str(shared("fsmn-vad"))))
    assert silent.spans == () and silent.notes == ("FSMN-VAD found no speech in the recording",)


@pytest.mark.parametrize("kind", ["directory", "gguf"])
def test_fsmn_vad_is_thread_safe(tmp_path: Path, kind: str) -> None:
    path = shared("fsmn-vad")
    if kind == "gguf":
        from workbench.conversion import fsmn_vad, writer

        [path] = writer.write(fsmn_vad.plans(path, "workbench"), "f32", tmp_path / "vad.gguf")
    samples = read(shared("fsmn-vad/vad_example.wav")).samples[: 20 * RATE]
    expected = speech_spans(samples, ListeningOptions(vad=str(path)))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: speech_spans(samples, ListeningOptions(vad=str(path))), range(8)))
    assert expected.spans and results == [expected] * 8


def test_fsmn_vad_from_a_gguf_file_gives_the_same_spans(tmp_path: Path) -> None:
    from workbench.conversion import fsmn_vad, writer

    [path] = writer.write(fsmn_vad.plans(shared("fsmn-vad"), "workbench"), "f32", tmp_path / "vad.gguf")
    samples = read(shared("speech/funasr_sample.wav")).samples
    actual, expected = (
        speech_spans(samples, ListeningOptions(vad=str(vad))).spans for vad in (path, shared("fsmn-vad"))
    )
    assert actual == expected and len(actual) == 1


@pytest.mark.parametrize(("milliseconds", "expected"), [(None, 800), (0, 0), (300, 300)])
def test_end_silence_ms_option_is_passed_to_fsmn_vad(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, milliseconds: int | None, expected: int
) -> None:
    received: list[FsmnVadOptions] = []

    class Detector:
        def spans(self, samples: np.ndarray, options: FsmnVadOptions) -> list[Span]:
            received.append(options)
            return [Span(1.0, 2.0)]

    monkeypatch.setattr(fsmn_vad, "open_detector", lambda path, device: Detector())
    speech_spans(noise(3.0)[0], ListeningOptions(vad=str(tmp_path), end_silence_ms=milliseconds))
    assert received == [FsmnVadOptions(end_silence_ms=expected)]


@pytest.mark.parametrize("vad", ["auto", "silero", "none"])
def test_end_silence_ms_option_is_refused_without_fsmn_vad(vad: str) -> None:
    with pytest.raises(BadInput) as error:
        speech_spans(noise(1.0)[0], ListeningOptions(vad=vad, end_silence_ms=500))
    assert str(error.value) == (
        f"option end_silence_ms is 500 and option vad is {vad!r}; end_silence_ms applies where vad names an FSMN-VAD"
    )


def test_fsmn_vad_runs_on_the_device_of_the_recogniser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    received: list[tuple[str, str]] = []

    class Detector:
        def spans(self, samples: np.ndarray, options: FsmnVadOptions) -> list[Span]:
            return []

    def open_detector(path: str, device: str) -> Detector:
        received.append((path, device))
        return Detector()

    monkeypatch.setattr(fsmn_vad, "open_detector", open_detector)
    recogniser = FakeRecogniser(lambda number, samples: pytest.fail("there is no speech"))
    for session in (
        SpeechSession("m", "pytorch", recogniser),
        SpeechSession("m", "pytorch", recogniser, device="cuda:1"),
    ):
        session.transcribe(noise(3.0), vad=str(tmp_path))
    assert received == [(str(tmp_path), "cpu"), (str(tmp_path), "cuda:1")]


def test_missing_vad_path_raises_one_line_error(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(BadInput) as error:
        speech_spans(noise(1.0)[0], ListeningOptions(vad=str(missing)))
    assert str(error.value) == (
        f"option vad is {str(missing)!r}; expected auto, silero, none, or the id, directory or GGUF file of an FSMN-VAD"
    )


def test_folder_without_a_vad_model_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=tmp_path.name):
        speech_spans(noise(1.0)[0], ListeningOptions(vad=str(tmp_path)))
