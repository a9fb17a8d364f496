import shutil

import numpy as np
import pytest

from workbench.core.errors import Unavailable
from workbench.training import more_voices
from workbench.training.data.digits import load_fsdd
from workbench.training.data.voices import (
    FOREIGN_SPELLINGS,
    VoiceOptions,
    VoiceSetting,
    espeak_variants,
    require_synthesisers,
    speak,
    synthetic_takes,
    trim_silence,
    voice_settings,
)

needs_synthesisers = pytest.mark.skipif(
    shutil.which("espeak-ng") is None or shutil.which("flite") is None, reason="needs espeak-ng and flite"
)
needs_more_voices = pytest.mark.skipif(
    any(shutil.which(program) is None for program in more_voices.PROGRAMS), reason="needs RHVoice and SVOX Pico"
)
FEW = VoiceOptions(english_settings=2, foreign_settings=0, flite_settings=0, strings=1)


def test_missing_programs_are_named_with_the_command_that_installs_them(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match=r"espeak-ng and flite cannot be found; .*apt-get install espeak-ng flite"):
        require_synthesisers()
    with pytest.raises(Unavailable):
        synthetic_takes(tmp_path)


def test_trimming_removes_silence_around_the_sound_only():
    samples = np.zeros(16000, dtype=np.float32)
    samples[4000:9000] = 0.5
    samples[5000] = 0.9
    trimmed = trim_silence(samples, 16000)
    assert np.square(trimmed).sum() == np.square(samples).sum()
    assert 5000 <= len(trimmed) <= 5000 + 4 * 160


def test_trimming_leaves_silent_samples_unchanged():
    assert len(trim_silence(np.zeros(50, dtype=np.float32), 16000)) == 50
    assert len(trim_silence(np.zeros(5000, dtype=np.float32), 16000)) == 5000


@needs_synthesisers
def test_voice_settings_are_distinct_and_repeatable():
    settings = voice_settings()
    assert settings == voice_settings()
    assert len({setting.speaker for setting in settings}) == len(settings) >= 250
    assert {setting.program for setting in settings} == {"espeak-ng", "flite"}
    assert all(len(words) == 10 for words in FOREIGN_SPELLINGS.values())
    assert not {"Demonic", "UniRobot", "fast"} & set(espeak_variants())


@needs_synthesisers
@pytest.mark.parametrize(
    "setting", [VoiceSetting("espeak-ng", "en-us+f3", 50, 160), VoiceSetting("flite", "slt", 190, 100)]
)
def test_speech_of_four_digits_is_longer_than_speech_of_one(setting):
    one, rate = speak(setting, (7,))
    four, _ = speak(setting, (7, 0, 7, 0))
    assert 0.15 < len(one) / rate < 1.0
    assert len(four) > 2 * len(one)
    assert np.abs(one).max() > 0.05


@needs_synthesisers
def test_synthetic_takes_are_cached_and_read_back(tmp_path, monkeypatch):
    first = synthetic_takes(tmp_path, FEW)
    assert [take.digits for take in first[:10]] == [(digit,) for digit in range(10)]
    assert len(first) == 2 * 11 and len(first[10].digits) > 1
    assert all(not take.human and len(take.samples) > take.sample_rate * 0.1 for take in first)
    monkeypatch.setattr("workbench.training.data.voices.speak", lambda *_: pytest.fail("spoken again"))
    second = synthetic_takes(tmp_path, FEW)
    assert all(
        np.array_equal(a.samples, b.samples) and a.speaker == b.speaker for a, b in zip(first, second, strict=True)
    )


def test_missing_programs_of_additional_voices_raise_an_error_with_the_package_names(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert more_voices.main([str(tmp_path / "digits")]) == 1
    assert "need the Debian packages rhvoice and rhvoice-english, libttspico-utils" in capsys.readouterr().err


@needs_more_voices
def test_additional_voices_produce_takes_of_all_digits(monkeypatch, tmp_path):
    monkeypatch.setattr(more_voices, "TAKES", 1)
    monkeypatch.setattr(more_voices, "RHVOICE", ("slt",))
    monkeypatch.setattr(more_voices, "PICO", ("en-GB",))
    assert more_voices.speak_digits(tmp_path) == 20
    takes = load_fsdd(tmp_path)
    assert [(take.speaker, take.digit) for take in takes] == [
        (voice, d) for voice in ("en-GB", "slt") for d in range(10)
    ]
    assert all(0.1 < len(take.samples) / take.sample_rate < 2 for take in takes)
