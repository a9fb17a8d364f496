from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.tones import loudest_digit, tone_takes
from workbench.training.data.augment import AugmentOptions, power
from workbench.training.data.corpus import (
    LENGTHS,
    CorpusOptions,
    clean_string,
    draw_string,
    draw_takes,
)
from workbench.training.data.digit_string import join
from workbench.training.data.digits import Take
from workbench.training.data.take_bank import TakeBank
from workbench.training.data.without_digits import silence

PLAIN = CorpusOptions(warp=0.0, tempos=(1.0,), long_pause_share=0.0)
TAKES = tone_takes("anna", "max") + tone_takes("synth", human=False, sample_rate=22050)


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def bank():
    return TakeBank.of(TAKES, (1.0,))


def test_take_bank_holds_all_takes_at_16_khz_and_human_takes_at_every_tempo():
    bank = TakeBank.of(TAKES, (0.8, 1.0, 1.25))
    assert len(bank.digits) == len(bank.speakers) == 3 * 40 + 21
    assert bank.voices == {True: ("anna", "max"), False: ("synth",)}
    assert bank.tempos_of["anna"] == pytest.approx((0.8, 1.0, 1.25)) and bank.tempos_of["synth"] == (1.0,)
    for number, (digits, tempo) in enumerate(zip(bank.digits, bank.tempo, strict=True)):
        sound = bank.sound(number)
        assert np.abs(sound).max() == pytest.approx(1.0, abs=1e-3)
        if len(digits) == 1:
            assert loudest_digit(sound) == digits[0]
            assert len(sound) == pytest.approx(16000 * 0.225 / tempo, rel=0.15)


@given(seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_digit_spans_contain_the_labelled_digits(bank, seed):
    string = clean_string(bank, rng(seed), PLAIN)
    assert string.digits == tuple(digit for *_, part in string.spans for digit in part)
    digits = []
    for start, end, part in string.spans:
        for place in range(len(part)):
            a, b = (start + (end - start) * (place + share) / len(part) for share in (0.3, 0.7))
            digits.append(loudest_digit(string.samples[int(a) : int(b)]))
    assert tuple(digits) == string.digits
    assert power(string.samples[~string.active]) < 1e-6


@given(seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
def test_a_warped_string_is_silent_outside_its_spans_and_loud_inside(bank, seed):
    string = clean_string(bank, rng(seed), CorpusOptions(warp=0.2))
    inside = np.convolve(string.active, np.ones(161), "same") > 0  # rounding and the resampler's edge: 5 ms
    assert power(string.samples[~inside]) < 1e-4 * power(string.samples[inside])
    for start, end, _ in string.spans:
        assert 0 <= start < end <= len(string.samples)
        assert power(string.samples[start:end]) > 0.05


def test_digit_string_uses_takes_of_a_single_speaker(bank):
    for seed in range(50):
        chosen = draw_takes(bank, "synth", 6, rng(seed), breath_share=1.0)
        assert {bank.speakers[take] for take in chosen} == {"synth"}
        assert sum(len(bank.digits[take]) for take in chosen) == 6
    assert any(len(bank.digits[take]) == 2 for take in chosen)


def test_joined_sounds_keep_their_gaps_and_overlaps():
    sounds = [np.full(800, value, dtype=np.float32) for value in (1.0, 2.0, 4.0)]
    samples, spans = join(sounds, [500, -160], before=300, after=200)
    assert spans == [(300, 1100), (1600, 2400), (2240, 3040)]
    assert len(samples) == 3240
    assert not samples[:300].any() and not samples[1100:1600].any() and not samples[3040:].any()
    assert samples[700] == 1.0 and samples[2000] == 2.0 and samples[2600] == 4.0
    assert 2.0 <= samples[2320] <= 6.0  # where two overlap


def test_drawn_strings_have_the_configured_shares_and_lengths(bank):
    strings = [clean_string(bank, rng(seed), CorpusOptions(human_share=0.7)) for seed in range(600)]
    assert np.mean([string.speaker != "synth" for string in strings]) == pytest.approx(0.7, abs=0.06)
    lengths = [len(string.digits) for string in strings]
    weights = np.array(list(LENGTHS.values())) / sum(LENGTHS.values())
    assert np.mean(lengths) == pytest.approx(weights @ list(LENGTHS), rel=0.08)
    silent = CorpusOptions(silent_share=0.3)
    assert np.mean([not draw_string(bank, rng(seed), silent).digits for seed in range(200)]) == pytest.approx(
        0.3, abs=0.1
    )


def test_strings_are_drawn_from_a_bank_with_only_human_or_only_synthetic_takes():
    for takes in (tone_takes("anna"), tone_takes("synth", human=False)):
        bank = TakeBank.of(takes)
        assert clean_string(bank, rng(), CorpusOptions()).speaker == takes[0].speaker


def test_silence_example_has_an_empty_label():
    for seed in range(20):
        string = silence(rng(seed))
        assert string.digits == () and string.text == "" and not string.active.any()
        assert 0.3 * 16000 - 1 <= len(string.samples) <= 5 * 16000


def test_signal_to_noise_ratio_is_relative_to_the_speech_segments_only(bank):
    only_noise = AugmentOptions(
        equalised=0, reverberant=0, noisy=1, white_near_10_db=1, bursts=0, band_limited=0, line_noise=0,
        clipped=0, coded=0, offset=0, quantised=0, peak_dbfs=(-6.0, -6.0),
    )  # fmt: skip
    options = CorpusOptions(warp=0.0, tempos=(1.0,), silent_share=0.0, human_share=0.0, augment=only_noise)
    for seed in range(20):
        string = draw_string(bank, rng(seed), options)
        background = power(string.samples[~string.active])
        speech = power(string.samples[string.active]) - background
        assert 6.5 < 10 * np.log10(speech / background) < 14.5


def test_held_out_speaker_is_never_drawn_for_training(bank):
    from workbench.training.data.digits import split_by_speaker

    training, _ = split_by_speaker(tone_takes("anna", "max", "zoe"))
    assert all(draw_string(TakeBank.of(training), rng(seed)).speaker != "zoe" for seed in range(60))


def test_word_trimming_keeps_the_voiced_part_and_cuts_weak_consonants():
    hiss = rng(1).normal(0.0, 0.05, 4800).astype(np.float32)
    vowel = np.sin(2 * np.pi * 150.0 * np.arange(1600) / 16000).astype(np.float32)
    word = np.concatenate([hiss[:1600], vowel, hiss])  # 100, 100 and 300 ms
    bank = TakeBank.of([Take("max", (6,), word, 16000, human=True, number=0), *tone_takes("max")])
    options = replace(PLAIN, trimmed_share=0.0, lengths={1: 1.0}, voiced_share={6: 1.0}, consonant_seconds=(0.02, 0.1))
    lengths: dict[int, set[int]] = {}
    for seed in range(300):
        [(start, end, (digit,))] = clean_string(bank, rng(seed), options).spans
        lengths.setdefault(digit, set()).add(end - start)
    cut = {length for length in lengths[6] if length < 3200}
    assert cut and all(1600 <= length <= 1600 + 0.12 * 16000 + 2 * 160 for length in cut)
    assert any(length >= 3200 for length in lengths[6])  # a consonant on one side is whole
    assert all(lengths[digit] == {3200, 4000} for digit in range(10) if digit != 6)
