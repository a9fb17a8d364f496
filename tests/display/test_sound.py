"""Audio players inside HTML: the page contains the samples, up to a size limit."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.support.html_fragments import HOSTILE, checked, text_of
from workbench.core.errors import BadInput
from workbench.display import Sound, Sounds
from workbench.display.sound import MAX_BYTES, player


def heard(fragment: str) -> list[tuple[np.ndarray, int]]:
    """The samples and rates of all players in a fragment."""
    sources = [each.attrib["src"] for each in checked(fragment).iter("audio")]
    return [soundfile.read(io.BytesIO(base64.b64decode(each.partition(",")[2]))) for each in sources]


def test_player_contains_the_clipped_samples_as_wav() -> None:
    samples = np.sin(np.arange(1600) / 5).astype(np.float32) * 2  # too loud: clipped
    [(found, rate)] = heard(Sound(samples, 16000, HOSTILE)._repr_html_())
    assert rate == 16000
    np.testing.assert_allclose(found, samples.clip(-1, 1), atol=1e-4)


def test_long_sound_is_cut_with_a_note_of_the_duration() -> None:
    samples = np.zeros(MAX_BYTES, dtype=np.float32)  # twice as long as the player holds
    cut = player(samples, 16000)
    [(found, _)] = heard(cut)
    assert len(found) == MAX_BYTES // 2
    assert "The player has the first 98 s of 197 s." in text_of(cut)


def test_sounds_list_renders_one_player_per_sound() -> None:
    both = Sounds([Sound(np.zeros(160), 16000, "one"), Sound(np.full(320, 0.5), 8000, "two")])
    assert [(len(samples), rate) for samples, rate in heard(both._repr_html_())] == [(160, 16000), (320, 8000)]
    assert repr(both[1]) == "<Sound 'two': 0.04 s at 8000 Hz>"
    assert heard(Sounds([])._repr_html_()) == []


@pytest.mark.parametrize("samples", [np.zeros((2, 3)), np.zeros(3, dtype=np.int16), np.float32(1)])
def test_samples_of_wrong_shape_or_type_are_refused(samples: np.ndarray) -> None:
    with pytest.raises(BadInput, match="expected float"):
        Sound(samples, 16000)


@pytest.mark.parametrize("rate", [0, 16000.5, 2**31, float("nan"), "16000", None, True])
def test_invalid_sample_rate_is_refused(rate: Any) -> None:
    with pytest.raises(BadInput, match="expected a whole number of Hz from 1 to 2147483647"):
        Sound(np.zeros(3), rate)


def test_values_that_are_not_finite_are_silent() -> None:
    assert np.isfinite(Sound(np.array([np.nan, np.inf, 0.5]), 16000).samples).all()
