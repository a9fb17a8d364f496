"""Audio files in memory, read again by soundfile."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile

from workbench.openai_api.errors import Refusal
from workbench.openai_api.sound_formats import PCM, check_format, encode_sound, formats

RATE = 16000
TONE = (0.5 * np.sin(2 * np.pi * 440 * np.arange(RATE * 5 // 2) / RATE)).astype(np.float32)


def test_wav_pcm_and_flac_are_always_available() -> None:
    assert {"wav", PCM, "flac"} <= set(formats())


@pytest.mark.parametrize("name", formats())
def test_encoded_audio_decodes_to_the_same_signal(name: str) -> None:
    content = encode_sound(TONE, RATE, name)
    if name == PCM:
        assert np.abs(np.frombuffer(content, "<i2") / 32768 - TONE).max() < 1e-4
        assert encode_sound(TONE, RATE, "wav")[44:] == content
        return
    samples, rate = soundfile.read(io.BytesIO(content))
    assert abs(len(samples) / rate - 2.5) < 0.2
    if name in ("wav", "flac"):
        assert rate == RATE and np.abs(samples - TONE).max() < 1e-4
    else:  # a tone of the same height and about the same level
        spectrum = np.abs(np.fft.rfft(samples[: rate * 2]))
        assert abs(np.argmax(spectrum) / 2 - 440) < 2
        assert 0.3 < np.abs(samples[rate : rate + 1000]).max() < 0.7


def test_samples_beyond_the_range_are_clipped() -> None:
    assert np.frombuffer(encode_sound(np.array([2.0, -3.0], np.float32), RATE, PCM), "<i2").tolist() == [32767, -32768]


def test_empty_audio_encodes_to_empty_bytes() -> None:
    assert [encode_sound(TONE[:0], RATE, name) for name in formats()] == [b""] * len(formats())


@pytest.mark.parametrize("name", ["aac", "", None, 3, "WAV"])
def test_unknown_audio_format_is_refused_with_a_list_of_formats(name: object) -> None:
    with pytest.raises(Refusal, match=r"^audio\.format is .*, and this server writes wav, pcm16"):
        check_format(name, "audio.format")


@pytest.mark.parametrize(("name", "rate"), [("opus", 22050), ("mp3", 20000)])
def test_sample_rate_that_a_format_does_not_have_is_refused_by_the_field_of_the_request(name: str, rate: int) -> None:
    if name in formats():
        with pytest.raises(
            Refusal, match=f"^response_format is {name}, which has no {rate} Hz, the model's sample rate"
        ):
            encode_sound(TONE, rate, name, "response_format")
