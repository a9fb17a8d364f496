"""The front end: its configuration from a checkpoint's mapping, and its stages fbank, LFR and CMVN in order."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.audio.cmvn import Cmvn
from workbench.audio.fbank import fbank
from workbench.audio.frontend import Frontend, FrontendConfig
from workbench.audio.lfr import stack_frames
from workbench.core.errors import BadInput

PUBLISHED = {
    "fs": 16000,
    "window": "hamming",
    "n_mels": 80,
    "frame_length": 25,
    "frame_shift": 10,
    "lfr_m": 7,
    "lfr_n": 6,
    "cmvn_file": None,
}


def noise(seconds: float) -> np.ndarray:
    return 0.1 * np.random.default_rng(0).standard_normal(round(seconds * 16_000)).astype(np.float32)


def test_published_frontend_configuration_is_parsed() -> None:
    config = FrontendConfig.from_yaml(PUBLISHED)
    assert (config.lfr_m, config.lfr_n, config.width, config.frame_seconds) == (7, 6, 560, 0.06)
    assert config.cmvn_file is None and config.dither == 0.0
    vad = FrontendConfig.from_yaml({"lfr_m": 5, "dither": 0.5, "cmvn_file": "am.mvn", "snip_edges": False, "extra": 1})
    assert (vad.width, vad.lfr_n, vad.dither, vad.cmvn_file, vad.snip_edges) == (400, 1, 0.5, "am.mvn", False)
    assert FrontendConfig.from_yaml({}) == FrontendConfig()


def test_frontend_returns_fbank_lfr_and_normalised_features() -> None:
    rng = np.random.default_rng(1)
    cmvn = Cmvn(rng.standard_normal(560).astype(np.float32), rng.uniform(0.1, 1, 560).astype(np.float32))
    samples = noise(2.0)
    output = Frontend(FrontendConfig.from_yaml(PUBLISHED), cmvn)(samples)
    np.testing.assert_array_equal(output.fbank, fbank(samples))
    np.testing.assert_array_equal(output.lfr, stack_frames(output.fbank, 7, 6))
    np.testing.assert_array_equal(output.features, (output.lfr + cmvn.shift) * cmvn.scale)
    assert output.features.dtype == np.float32

    plain = Frontend(FrontendConfig.from_yaml(PUBLISHED), None)(samples)
    np.testing.assert_array_equal(plain.features, output.lfr)


def test_lfr_without_stacking_equals_the_fbank() -> None:
    output = Frontend(FrontendConfig(), None)(noise(0.5))
    np.testing.assert_array_equal(output.lfr, output.fbank)


def test_dither_argument_overrides_the_configured_dither() -> None:
    frontend = Frontend(FrontendConfig(dither=1.0), None)
    samples = noise(0.5)
    np.testing.assert_array_equal(frontend(samples, dither=0.0).features, fbank(samples))
    np.testing.assert_array_equal(frontend(samples, seed=3).features, frontend(samples, dither=1.0, seed=3).features)
    assert (frontend(samples, seed=3).features != frontend(samples, seed=4).features).any()


def test_scaling_can_be_switched_off() -> None:
    config = FrontendConfig.from_yaml({"upsacle_samples": False})  # the key as published configurations spell it
    scaled, plain = Frontend(FrontendConfig(), None)(noise(0.5)), Frontend(config, None)(noise(0.5))
    np.testing.assert_allclose(scaled.fbank - plain.fbank, 2 * np.log(32768), atol=1e-3)


def test_cmvn_of_another_width_is_refused() -> None:
    ones = np.ones(400, dtype=np.float32)
    with pytest.raises(BadInput, match="the CMVN has 400 values; 7 stacked frames of 80 mel bands need 560"):
        Frontend(FrontendConfig.from_yaml(PUBLISHED), Cmvn(ones, ones))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fs", 8000),
        ("fs", "16k"),
        ("window", "triangle"),
        ("n_mels", 0),
        ("n_mels", 10**400),
        ("lfr_n", 10**9),
        ("n_mels", 80.5),
        ("lfr_m", True),
        ("lfr_n", -1),
        ("frame_length", 0),
        ("frame_shift", 0.01),
        ("frame_shift", None),
        ("frame_shift", float("nan")),
        ("dither", -1),
        ("snip_edges", "yes"),
        ("upsacle_samples", 1),
        ("cmvn_file", 5),
    ],
)
def test_configuration_value_of_the_wrong_type_raises_an_error_with_the_key(key: str, value: Any) -> None:
    with pytest.raises(BadInput, match=f"frontend_conf.{key} is"):
        FrontendConfig.from_yaml({**PUBLISHED, key: value})


@given(samples=st.integers(1, 4000), lfr=st.sampled_from([(1, 1), (7, 6), (5, 3)]), snip_edges=st.booleans())
def test_frame_count_from_the_configuration_equals_the_computed_frames(
    samples: int, lfr: tuple[int, int], snip_edges: bool
) -> None:
    config = FrontendConfig(lfr_m=lfr[0], lfr_n=lfr[1], snip_edges=snip_edges)
    signal = np.linspace(-0.5, 0.5, samples, dtype=np.float32)
    try:
        frames = len(Frontend(config, None)(signal).features)
    except BadInput:
        frames = 0
    assert config.frames(samples) == frames
