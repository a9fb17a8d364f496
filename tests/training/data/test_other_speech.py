import shutil

import numpy as np
import pytest
import soundfile

from tests.training.tones import tone_takes
from workbench.core.errors import BadInput
from workbench.training.data.corpus import CorpusOptions, draw_string
from workbench.training.data.digits import WORDS, Take
from workbench.training.data.other_speech import (
    BACKWARDS,
    ENGLISH,
    OTHER_LANGUAGES,
    backwards,
    draw_texts,
    made_up_words,
    recorded_speech,
    synthetic_speech,
)
from workbench.training.data.take_bank import TakeBank
from workbench.training.data.voices import VoiceOptions, VoiceSetting

FEW = VoiceOptions(english_settings=2, foreign_settings=0, flite_settings=0, strings=0)
VOICE = VoiceSetting("espeak-ng", "en-us+f3", 50, 160)


def hum(seconds=0.5, rate=16_000):
    return Take("hum", (), np.sin(np.arange(int(seconds * rate)) * 0.05).astype(np.float32), rate)


def test_other_speech_texts_contain_no_digit_words():
    rng = np.random.default_rng(0)
    texts = [*ENGLISH, *(made_up_words(rng) for _ in range(500))]
    assert not [text for text in texts if set(text.lower().split()) & set(WORDS)]


def test_drawn_texts_include_made_up_words_english_and_other_languages():
    jobs = draw_texts(np.random.default_rng(0), [VOICE], 200)
    foreign = {setting.voice.partition("+")[0] for setting, _ in jobs} - {"en-us"}
    assert foreign == set(OTHER_LANGUAGES)
    assert all(text in OTHER_LANGUAGES[v.voice.partition("+")[0]] for v, text in jobs if v.voice != VOICE.voice)
    assert {text for _, text in jobs} & set(ENGLISH)


@pytest.mark.skipif(not (shutil.which("espeak-ng") and shutil.which("flite")), reason="needs espeak-ng and flite")
def test_synthetic_speech_has_empty_labels_and_is_cached(tmp_path):
    first = synthetic_speech(tmp_path, FEW, each=2)
    assert len(first) == 4 and all(take.digits == () and len(take.samples) for take in first)
    [stored] = tmp_path.glob("speech-*.npz")
    written = stored.stat().st_mtime_ns
    cached = synthetic_speech(tmp_path, FEW, each=2)
    assert stored.stat().st_mtime_ns == written
    assert all(np.array_equal(a.samples, b.samples) for a, b in zip(first, cached, strict=True))


def test_backwards_takes_are_reversed_human_takes_with_empty_labels():
    takes = tone_takes("anna") + tone_takes("synth", human=False)
    turned = backwards(takes, share=1)
    sources = [take for take in takes if take.human and take.digit in BACKWARDS]
    assert [np.array_equal(a.samples[::-1], b.samples) for a, b in zip(turned, sources, strict=True)] == [True] * 18
    assert all(take.digits == () for take in turned)


def test_recordings_are_cut_into_pieces(tmp_path):
    (tmp_path / "anna").mkdir()
    soundfile.write(tmp_path / "anna" / "a.wav", hum(2.5).samples, 16_000)
    takes = recorded_speech(tmp_path, seconds=1.0)
    assert [len(take.samples) for take in takes] == [16_000, 16_000, 8_000]
    assert {(take.speaker, take.digits) for take in takes} == {("anna, other speech", ())}


def test_recordings_outside_speaker_folders_belong_to_one_speaker(tmp_path):
    (tmp_path / "anna").mkdir()
    for name in ("anna/one.wav", "two.wav", "three.wav"):
        soundfile.write(tmp_path / name, np.full(16_000, 0.1), 16_000)
    names = [take.speaker for take in recorded_speech(tmp_path)]
    assert sorted(set(names)) == sorted({"anna, other speech", f"{tmp_path.name}, other speech"})


def test_a_folder_without_recordings_is_an_error(tmp_path):
    with pytest.raises(BadInput, match=r"has no recordings; expected \.wav, \.flac or \.ogg files"):
        recorded_speech(tmp_path)


def test_take_bank_separates_takes_without_digits():
    bank = TakeBank.of([*tone_takes("anna"), hum()], (0.8, 1.0))
    assert bank.voices == {True: ("anna",), False: ()}
    assert [bank.digits[take] for take in bank.others] == [()]  # once, not once for each tempo
    assert "hum" not in bank.tempos_of or not bank.tempos_of["hum"]


@pytest.mark.parametrize("share", ["music_share", "speech_share"])
def test_examples_of_music_and_other_speech_have_an_empty_label_and_audible_samples(share):
    bank = TakeBank.of([*tone_takes("anna"), hum()])
    options = CorpusOptions(**{"silent_share": 0.0, share: 1.0})
    for seed in range(12):
        string = draw_string(bank, np.random.default_rng(seed), options)
        assert string.digits == () and string.text == ""
        assert np.isfinite(string.samples).all() and np.abs(string.samples).max() > 1e-4


def test_strings_without_digits_have_the_configured_share():
    bank = TakeBank.of([*tone_takes("anna"), hum()])
    options = CorpusOptions(silent_share=0.1, music_share=0.1, speech_share=0.2)
    strings = [draw_string(bank, np.random.default_rng([1, seed]), options) for seed in range(120)]
    assert np.mean([string.digits == () for string in strings]) == pytest.approx(0.4, abs=0.15)
