"""Explanations of features whose filter bank is not dumped, computed back through CMVN and stacking."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from workbench.audio.cmvn import Cmvn
from workbench.audio.fbank import FbankOptions, fbank
from workbench.audio.frontend import Frontend, FrontendConfig
from workbench.audio.read import read
from workbench.audio.whisper_mel import WhisperMel
from workbench.compare import compare, judge
from workbench.compare.explain import with_hints
from workbench.compare.guesses.guess import Hint
from workbench.compare.guesses.resamplers import by_lines
from workbench.registry.sources import assets
from workbench.trace.trace import Trace


@cache
def speech() -> np.ndarray:
    return read(assets() / "samples" / "librivox_austen_0880.wav").samples[8000:40000]


def hint_on(energies: np.ndarray, lfr: tuple[int, int], stage: str = "frontend.features") -> Hint | None:
    """Returns the hint on a port that dumps one stage only, computed from these energies."""
    m, n = lfr
    draw = np.random.default_rng(0)
    cmvn = Cmvn(draw.normal(-12, 3, 80 * m).astype(np.float32), draw.uniform(0.1, 0.3, 80 * m).astype(np.float32))
    front = Frontend(FrontendConfig(lfr_m=m, lfr_n=n), cmvn)
    right = front(speech())
    reference = Trace(
        {"frontend.fbank": right.fbank, "frontend.lfr": right.lfr, "frontend.features": right.features}, {}
    )
    stacked = front.stack(energies.astype(np.float32))
    candidate = Trace({stage: front.normalise(stacked) if stage == "frontend.features" else stacked}, {})
    comparison = with_hints(compare(reference, candidate), None, reference, candidate, speech)
    return judge(comparison).explanation


@pytest.mark.parametrize("lfr", [(7, 6), (1, 1), (5, 1)])
def test_filter_bank_behind_features_is_named(lfr: tuple[int, int]) -> None:
    hint = hint_on(fbank(speech(), FbankOptions(window="povey")), lfr)
    assert hint is not None and hint.stage == "frontend.features"
    assert hint.sentence.startswith(
        "computed back to the filter bank that the candidate does not have, the filter bank has a povey window, where "
        "the reference has a hamming window"
    )


@pytest.mark.parametrize(
    "energies, expected",
    [
        (lambda x: fbank(by_lines(x, 16000, 8000).astype(np.float32)), "is the filter bank of the sound at 8000 Hz"),
        (lambda x: fbank(x, FbankOptions(snip_edges=False)), "has frames from sample -120 on with the mirrored sound"),
        (lambda x: WhisperMel(80, 160, 400, False)(x), "of the loudest and Whisper's (log10 + 4) / 4, where"),
    ],
)
@pytest.mark.parametrize("stage", ["frontend.lfr", "frontend.features"])
def test_other_numbers_of_frames_are_explained_too(energies, expected: str, stage: str) -> None:  # type: ignore[no-untyped-def]
    hint = hint_on(energies(speech()), (7, 6), stage)
    assert hint is not None and expected in hint.sentence and hint.stage == stage


def test_dither_behind_features_is_named() -> None:
    hint = hint_on(fbank(speech(), FbankOptions(dither=1.0)), (7, 6))
    assert hint is not None and "white noise of a deviation of" in hint.sentence


def test_other_changes_of_features_get_no_such_hint() -> None:
    draw = np.random.default_rng(1)
    energies = fbank(speech())
    assert hint_on(energies, (7, 6)) is None
    for changed in (energies * (1 + 1e-3 * draw.standard_normal(energies.shape)), np.tile(energies, (2, 1))):
        hint = hint_on(changed, (7, 6))
        assert hint is None or "filter bank" not in hint.sentence
