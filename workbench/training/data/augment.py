"""Simulates the effects of rooms, microphones, telephone lines and loudspeakers on a recording, drawn at random.

All functions take and return mono float32 samples at 16 kHz (the masks take filter-bank frames). They draw from the
given generator, so equal seeds give equal audio. This file does not know what was said.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workbench.audio.constants import SAMPLE_RATE

Samples = NDArray[np.float32]
Response = Callable[[NDArray[np.float32]], NDArray[np.float32]]  # gain (linear) at each of the frequencies in Hz

COLOURS = ("white", "pink", "brown", "band", "hum", "fluctuating")


# --- building blocks -------------------------------------------------------------------------------------------------


def power(samples: Samples) -> float:
    """Returns the mean square."""
    return float(np.mean(np.square(samples, dtype=np.float64))) if len(samples) else 0.0


def fast_length(count: int) -> int:
    """Returns the next length of the form 2^a or 3*2^a or 5*2^a, for which Fourier transforms are fast."""
    return min(factor << max(0, math.ceil(math.log2(count / factor))) for factor in (1, 3, 5))


def warp(samples: Samples, ratio: float) -> Samples:
    """Plays the samples `ratio` times faster: shorter, with pitch and formants higher by that factor, like a smaller
    speaker.
    """
    import soxr

    if ratio == 1.0:
        return samples
    return np.asarray(soxr.resample(samples, SAMPLE_RATE * ratio, SAMPLE_RATE, "MQ"), dtype=np.float32)


def change_tempo(samples: Samples, tempo: float, sample_rate: int) -> Samples:
    """Makes speech `tempo` times faster at the same pitch: overlap-add of windows placed where they match best.

    WSOLA of Verhelst and Roelands (ICASSP 1993), 30 ms windows moved by up to 7.5 ms.
    """
    half_window = round(0.015 * sample_rate)
    reach = half_window // 2
    if tempo == 1.0 or len(samples) < 4 * half_window:
        return samples
    window = np.hanning(2 * half_window + 1)[: 2 * half_window].astype(np.float32)
    count = round(len(samples) / tempo)
    source = np.pad(samples, (half_window + reach, 3 * half_window + 2 * reach))
    output = np.zeros(count + 3 * half_window, dtype=np.float32)
    position = half_window + reach
    for start in range(0, count + half_window, half_window):
        output[start : start + 2 * half_window] += window * source[position - half_window : position + half_window]
        continuation = source[position : position + 2 * half_window]  # what follows this window in the recording
        ideal = min(half_window + reach + round((start + half_window) * tempo), len(source) - half_window - reach)
        around = source[ideal - half_window - reach : ideal + half_window + reach]
        if len(continuation) < 2 * half_window:
            break
        position = ideal - reach + int(np.argmax(np.correlate(around, continuation, "valid")))
    return output[half_window : half_window + count]


def filtered(samples: Samples, response: Response) -> Samples:
    """Filters the samples with the gain at each frequency; no delay, same length."""
    size = fast_length(len(samples) + SAMPLE_RATE // 50)
    spectrum = np.fft.rfft(samples, size)
    spectrum *= response(np.linspace(0.0, SAMPLE_RATE / 2, len(spectrum), dtype=np.float32))
    return np.fft.irfft(spectrum, size)[: len(samples)].astype(np.float32)


def passband(low: float, high: float, edge: float = 120.0) -> Response:
    """Returns a filter that passes `low` to `high` Hz, with edges `edge` Hz wide (the lower one narrower)."""

    def response(frequencies: NDArray[np.float32]) -> NDArray[np.float32]:
        rise = np.clip((frequencies - low) / min(edge, max(low, 1.0)) + 1.0, 0.0, 1.0) if low > 0 else 1.0
        fall = np.clip((high - frequencies) / edge, 0.0, 1.0)
        return np.asarray(rise * fall, dtype=np.float32)

    return response


def random_equaliser(rng: np.random.Generator, spread_db: float = 5.0) -> Response:
    """Returns a smooth filter, like the difference of microphones: random gains at seven frequencies, linear between
    them.
    """
    anchors = np.array([0, 150, 400, 1000, 2200, 4500, 8000], dtype=np.float32)
    gains = rng.normal(0.0, spread_db, len(anchors)).clip(-2 * spread_db, 2 * spread_db)

    def response(frequencies: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(10.0 ** (np.interp(frequencies, anchors, gains) / 20.0), dtype=np.float32)

    return response


def add_upper_band(samples: Samples, rng: np.random.Generator) -> Samples:
    """Fills 4-8 kHz of a recording that came from 8 kHz with the attenuated mirror image of the band below.

    This is a crude bandwidth extension: fricatives are strong just below 4 kHz, so they become strong just above it, as
    in real speech.
    """
    at_edge = rng.uniform(2.0, 20.0)
    slope = rng.uniform(25.0, 60.0)  # more attenuation in decibels at 8 kHz than at 4 kHz
    size = fast_length(len(samples) + SAMPLE_RATE // 50)
    spectrum = np.fft.rfft(samples, size)
    middle = len(spectrum) // 2
    image = np.conj(spectrum[:middle][::-1])
    falling = np.linspace(0.0, 1.0, middle, dtype=np.float32)
    spectrum[-middle:] += image * (10.0 ** (-(at_edge + slope * falling) / 20.0)).astype(np.float32)
    return np.fft.irfft(spectrum, size)[: len(samples)].astype(np.float32)


def reverberated(samples: Samples, rng: np.random.Generator) -> Samples:
    """Puts the samples into a mild room: direct sound and an exponential tail of noise that falls 60 dB in 0.1 to 0.6
    s.
    """
    decay = rng.uniform(0.1, 0.6)
    direct_to_tail_db = rng.uniform(0.0, 15.0)
    delay = int(rng.uniform(0.001, 0.008) * SAMPLE_RATE)
    count = int(decay * 0.8 * SAMPLE_RATE)
    tail = rng.standard_normal(count, dtype=np.float32)
    tail *= np.exp(np.arange(count, dtype=np.float32) * np.float32(-3.0 * math.log(10.0) / (decay * SAMPLE_RATE)))
    tail *= np.float32(10.0 ** (-direct_to_tail_db / 20.0) / math.sqrt(float(np.square(tail).sum()) + 1e-12))
    impulse = np.zeros(delay + count, dtype=np.float32)
    impulse[0] = 1.0
    impulse[delay:] += tail
    size = fast_length(len(samples) + len(impulse))
    spectrum = np.fft.rfft(samples, size) * np.fft.rfft(impulse, size)
    return np.fft.irfft(spectrum, size)[: len(samples)].astype(np.float32)


def mu_law(samples: Samples) -> Samples:
    """Encodes the samples with 8-bit mu-law (ITU-T G.711's curve) and decodes them."""
    mu = np.float32(255.0)
    coded = np.sign(samples) * np.log1p(mu * np.minimum(np.abs(samples), 1.0)) / np.log1p(mu)
    coded = np.rint(coded * 127.0) / 127.0
    return np.asarray(np.sign(coded) * np.expm1(np.abs(coded) * np.log1p(mu)) / mu, dtype=np.float32)


def quantised(samples: Samples) -> Samples:
    """Rounds the samples to int16 steps and limits them to their range."""
    return np.asarray(np.clip(np.rint(samples * 32768.0), -32768.0, 32767.0) / 32768.0, dtype=np.float32)


# --- noise ----------------------------------------------------------------------------------------------------------


def noise(count: int, colour: str, rng: np.random.Generator) -> Samples:
    """Returns `count` samples of noise of one of COLOURS with mean square 1."""
    if colour == "hum":
        samples = _hum(count, rng)
    else:
        samples = rng.standard_normal(count, dtype=np.float32)
        if colour in ("pink", "brown"):
            exponent = -0.5 if colour == "pink" else -1.0
            samples = filtered(samples, lambda f: np.maximum(f, 30.0) ** np.float32(exponent))
        elif colour == "band":
            low = rng.uniform(50.0, 5000.0)
            samples = filtered(samples, passband(low, min(low * rng.uniform(1.3, 4.0), 7900.0)))
        elif colour == "fluctuating":
            samples = filtered(samples, random_equaliser(rng, 8.0))
            knots = rng.uniform(-12.0, 12.0, size=2 + int(count / SAMPLE_RATE * rng.uniform(1.0, 8.0)))
            level = np.interp(np.linspace(0, len(knots) - 1, count), np.arange(len(knots)), knots)
            samples = samples * (10.0 ** (level / 20.0)).astype(np.float32)
        elif colour != "white":
            raise ValueError(f"no noise is called {colour!r}")
    return (samples / math.sqrt(power(samples) + 1e-20)).astype(np.float32)


def _hum(count: int, rng: np.random.Generator) -> Samples:
    """Returns mains hum: 50 or 60 Hz and its harmonics, with irregularly falling levels."""
    mains = float(rng.choice([50.0, 60.0])) * rng.uniform(0.998, 1.002)
    phase = np.arange(count, dtype=np.float64) * (2.0 * math.pi * mains / SAMPLE_RATE)
    samples = np.zeros(count)
    for harmonic in range(1, int(rng.integers(3, 13))):
        samples += rng.uniform(0.2, 1.0) / harmonic * np.sin(harmonic * phase + rng.uniform(0, 2 * math.pi))
    return samples.astype(np.float32)


def bursts(count: int, rng: np.random.Generator) -> Samples:
    """Returns a few clicks, knocks and breaths: short coloured noises with a fast onset, peaks near 1, silence
    between.
    """
    samples = np.zeros(count, dtype=np.float32)
    for _ in range(int(rng.integers(1, 4))):
        length = min(int(rng.choice([0.003, 0.02, 0.08, 0.25]) * rng.uniform(0.5, 1.5) * SAMPLE_RATE), count)
        sound = noise(length, str(rng.choice(["white", "pink", "brown", "band"])), rng)
        sound *= np.exp(-np.linspace(0.0, rng.uniform(2.0, 7.0), length, dtype=np.float32))
        start = int(rng.integers(0, count - length + 1))
        samples[start : start + length] += sound * np.float32(rng.uniform(0.05, 0.4))
    return samples


def with_noise(speech: Samples, added: Samples, speech_power: float, snr_db: float) -> Samples:
    """Adds noise to speech, scaled so that `speech_power` over the noise's mean power is `snr_db`."""
    scale = math.sqrt(speech_power / (power(added) + 1e-20)) * 10.0 ** (-snr_db / 20.0)
    return speech + np.float32(scale) * added


# --- the whole path from a mouth to a file ---------------------------------------------------------------------------


@dataclass(frozen=True)
class AugmentOptions:
    """The share of recordings with each effect."""

    equalised: float = 0.6
    reverberant: float = 0.35
    noisy: float = 0.65  # noise at 5 to 40 dB; the rest has only a faint noise floor
    white_near_10_db: float = 0.2  # of the noisy: white noise at 7 to 14 dB
    babble: float = 0.12  # of the noisy: other speakers, several at once, at 10 to 30 dB
    bursts: float = 0.1
    band_limited: float = 0.5
    line_noise: float = 0.25  # white noise added after band limiting, at 15 to 45 dB
    clipped: float = 0.06
    coded: float = 0.1  # mu-law
    offset: float = 0.1  # constant offset of up to 2 per cent of full scale
    quantised: float = 0.6
    peak_dbfs: tuple[float, float] = (-38.0, -0.5)


def distorted(
    samples: Samples,
    active: NDArray[np.bool_],
    rng: np.random.Generator,
    options: AugmentOptions | None = None,
    babble: Callable[[int], Samples] | None = None,
) -> Samples:
    """Returns clean samples as recorded by a random microphone in a random room over a random line.

    `active` marks the samples with speech: signal-to-noise ratios refer to their power. `babble(count)` returns a
    crowd's voices; without it that kind of noise is left out.
    """
    options = options or AugmentOptions()
    if rng.random() < options.equalised:
        samples = filtered(samples, random_equaliser(rng))
    if rng.random() < options.reverberant:
        samples = reverberated(samples, rng)
    speech_power = power(samples[active]) + 1e-12

    if rng.random() < options.bursts:
        peak = float(np.abs(samples).max())
        samples = samples + bursts(len(samples), rng) * np.float32(peak)
    if rng.random() < options.noisy:
        samples = _in_noise(samples, speech_power, rng, options, babble)
    elif rng.random() < 0.8:  # the rest has digital silence between the words
        samples = with_noise(samples, noise(len(samples), _colour(rng), rng), speech_power, rng.uniform(35.0, 80.0))

    if rng.random() < options.band_limited:
        samples = filtered(samples, _random_band(rng))
    if rng.random() < options.line_noise:
        samples = with_noise(samples, noise(len(samples), "white", rng), speech_power, rng.uniform(15.0, 45.0))

    samples = samples * np.float32(10.0 ** (rng.uniform(*options.peak_dbfs) / 20.0) / (np.abs(samples).max() + 1e-9))
    if rng.random() < options.clipped:
        samples = np.clip(samples, -1.0, 1.0) if rng.random() < 0.2 else _overdriven(samples, rng)
    if rng.random() < options.coded:
        samples = mu_law(samples)
    if rng.random() < options.offset:
        samples = samples + np.float32(rng.uniform(-0.02, 0.02))
    if rng.random() < options.quantised:
        samples = quantised(samples)
    return samples.astype(np.float32)


def _colour(rng: np.random.Generator) -> str:
    return str(rng.choice(COLOURS, p=[0.35, 0.2, 0.15, 0.1, 0.08, 0.12]))


def _in_noise(
    samples: Samples,
    speech_power: float,
    rng: np.random.Generator,
    options: AugmentOptions,
    babble: Callable[[int], Samples] | None,
) -> Samples:
    kind = rng.random()
    if kind < options.white_near_10_db:
        return with_noise(samples, noise(len(samples), "white", rng), speech_power, rng.uniform(7.0, 14.0))
    if kind < options.white_near_10_db + options.babble and babble is not None:
        return with_noise(samples, babble(len(samples)), speech_power, rng.uniform(10.0, 30.0))
    return with_noise(samples, noise(len(samples), _colour(rng), rng), speech_power, rng.uniform(5.0, 40.0))


def _random_band(rng: np.random.Generator) -> Response:
    """Returns the band of a telephone, of a recording made at 8 or 11 kHz, or of another low-pass and high-pass."""
    kind = rng.random()
    if kind < 0.3:
        return passband(rng.uniform(200.0, 350.0), rng.uniform(3200.0, 3600.0), edge=200.0)
    if kind < 0.65:
        return passband(0.0, rng.uniform(3700.0, 4000.0))
    if kind < 0.75:
        return passband(0.0, rng.uniform(5000.0, 5500.0))
    return passband(rng.uniform(20.0, 400.0), rng.uniform(2800.0, 7900.0), edge=rng.uniform(100.0, 800.0))


def _overdriven(samples: Samples, rng: np.random.Generator) -> Samples:
    """Clips the samples at 1/4 to 3/4 of the peak."""
    limit = np.float32(np.abs(samples).max() * rng.uniform(0.25, 0.75))
    return np.clip(samples, -limit, limit)


# --- masks on features ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MaskOptions:
    """Blocks of frames and of mel bands to hide from the network, after SpecAugment (Park et al., 2019)."""

    time_masks_per_second: float = 0.7
    max_frames: int = 10  # of 10 ms; a short digit has 25
    band_masks: int = 2
    max_bands: int = 12  # of 80
    stretch: float = 0.0  # largest change of the frequency axis: of 0.1, factors 1/1.1 to 1.1


def masked(
    features: NDArray[np.float32], rng: np.random.Generator, options: MaskOptions | None = None
) -> NDArray[np.float32]:
    """Returns a copy of log-mel frames [frames, mels] with random blocks replaced by the recording's mean of each
    band.
    """
    options = options or MaskOptions()
    if options.stretch:
        features = stretched(features, float(np.exp(rng.uniform(-1.0, 1.0) * np.log1p(options.stretch))))
    features = features.copy()
    frames, bands = features.shape
    mean = features.mean(axis=0)
    for _ in range(rng.poisson(options.time_masks_per_second * frames / 100.0)):
        width = int(rng.integers(1, options.max_frames + 1))
        start = int(rng.integers(0, max(frames - width, 0) + 1))
        features[start : start + width] = mean
    for _ in range(options.band_masks):
        width = int(rng.integers(0, options.max_bands + 1))
        start = int(rng.integers(0, bands - width + 1))
        features[:, start : start + width] = mean[start : start + width]
    return features


def stretched(features: NDArray[np.float32], factor: float) -> NDArray[np.float32]:
    """Returns log-mel frames [frames, mels] whose band `b` is what lay at `b * factor`, between bands linearly.

    This resembles a vocal tract that is longer (factor above 1) or shorter, after Jaitly and Hinton, "Vocal Tract
    Length Perturbation (VTLP) improves speech recognition", 2013. Bands above the last one repeat it.
    """
    bands = features.shape[1]
    place = np.minimum(np.arange(bands, dtype=np.float32) * np.float32(factor), bands - 1)
    lower_band = np.minimum(place.astype(np.int64), bands - 2)
    share = place - lower_band
    return features[:, lower_band] * (1 - share) + features[:, lower_band + 1] * share
