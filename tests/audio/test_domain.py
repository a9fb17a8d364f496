"""The domain check: its verdict on the shipped samples, on silence and noise, and on invalid domain files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from workbench.audio.domain import KINDS, SILENCE, SOUND, SPEECH, doubt_about, features_of, read_domain
from workbench.audio.read import read
from workbench.core.errors import BadInput
from workbench.registry.catalogue import find_card, read_catalogue
from workbench.registry.domains import alternative_model, domain_file, domain_name
from workbench.registry.sources import assets

RNG = np.random.default_rng(3)


def test_digit_samples_are_inside_the_domain_and_other_speech_is_outside() -> None:
    domain = read_domain(assets() / "domains" / "english-digits.safetensors")
    sounds = {path.name: read(path).samples for path in (assets() / "samples").glob("*.wav")}
    unsure = {name for name, samples in sounds.items() if domain.outside(samples, confidence=0.7)}
    assert unsure == {name for name in sounds if name.startswith("librivox")}
    assert not any(domain.outside(samples) or domain.outside(samples, confidence=0.95) for samples in sounds.values())
    assert domain.outside(np.zeros(16000, np.float32)) == SILENCE
    assert domain.outside(np.full(16000, 0.2, np.float32)) == SILENCE, "a constant is nothing to hear"
    assert domain.outside(np.zeros(0, np.float32)) == SILENCE
    assert domain.outside(np.zeros(80, np.float32)) == SILENCE
    assert domain.outside(sounds["three_seven_one.wav"][8000:8080]) is None, "too short to judge, and not silent"
    assert domain.outside(RNG.normal(size=48000).astype(np.float32) / 10) == SOUND


def test_model_card_gives_its_domain_and_a_general_model_is_suggested() -> None:
    catalogue = read_catalogue()
    demo, general = (find_card(name, catalogue) for name in ("demo/sensevoice", "sensevoice-small"))
    assert domain_name(demo) == "English digits" and domain_name(general) == ""
    suggestion = alternative_model(demo, catalogue.cards)
    assert (
        suggestion is not None
        and suggestion.id == "sensevoice-small"
        and alternative_model(general, catalogue.cards) is None
    )
    assert domain_file(general) is None
    with pytest.raises(BadInput, match=r"domain = 'songs'; expected one of english-digits, or the path of"):
        domain_file(replace(demo, domain="songs"))


def test_domain_warning_names_the_detected_sound_and_the_known_domain() -> None:
    assert doubt_about(SPEECH, "digits") == "this sounds like other speech, and the model knows digits only"
    assert "silent" in doubt_about(SILENCE, "digits")


def test_invalid_domain_file_raises_an_error(tmp_path: Path) -> None:
    path = tmp_path / "bad.safetensors"
    for content in (b"", b"no tensors here, but a few words", (8).to_bytes(8, "little") + b'{"a": 1}'):
        path.write_bytes(content)
        with pytest.raises(BadInput, match="does not describe what a model was made for"):
            read_domain(path)


def test_features_do_not_depend_on_the_level() -> None:
    sound = RNG.normal(size=16000).astype(np.float32) / 10
    np.testing.assert_allclose(features_of(sound), features_of(sound * 0.01), atol=1e-3)
    assert features_of(sound).shape[1] * 2 == 80 and len(KINDS) == 3
