"""The SpeechLM audio tower equals transformers' feature extractor and tower, for any recording length and window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from torch.nn import functional as F
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeAudioEncoder

from tests.support.sound_files import wavering_noise
from tests.support.speechlm_reference import heard_in_chunks
from tests.support.tiny_speechlm import TOWER, TOWER_PREFIX
from workbench.core.errors import BadInput
from workbench.families.speechlm.parts import Mel, Tower
from workbench.runtimes.pytorch.numerics.products import Arithmetic
from workbench.runtimes.pytorch.speechlm_tower import AudioEncoder
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter

WIDTH = 24
SECONDS = (0.3, 0.31, 1.0, 1.234, 7.95, 8.0, 30.0, 65.0)
UPSTREAM = {**TOWER, "n_window": 50, "n_window_infer": 800}
FORK = {**TOWER, "n_window": 100, "n_window_infer": 400}


def tower_of(settings: dict[str, Any], normalise: bool = True) -> Tower:
    mel = Mel(bins=settings["num_mel_bins"], hop=160, window=400, normalise=normalise)
    return Tower(settings, mel, settings["output_dim"])


def plain_tower(settings: dict[str, Any]) -> Qwen3OmniMoeAudioEncoder:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        config = transformers.AutoConfig.for_model("qwen3_omni_moe_audio_encoder", **settings)
        network = Qwen3OmniMoeAudioEncoder(config).eval()
        with torch.no_grad():
            for value in network.parameters():
                value.normal_(0, 1.5 / value[0].numel() ** 0.5 if value.ndim > 1 else 0.3)
    return network


def tensors_of(network: Qwen3OmniMoeAudioEncoder) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(4)
    tower = {TOWER_PREFIX + name: value for name, value in network.state_dict().items()}
    adaptor = {
        "weight": torch.randn(WIDTH, TOWER["output_dim"], generator=draw),
        "bias": torch.randn(WIDTH, generator=draw),
    }
    return tower | {f"adaptor.continuous_audio.{name}": value for name, value in adaptor.items()}


def encoder_of(settings: dict[str, Any], dtype: torch.dtype = torch.float32, normalise: bool = True) -> AudioEncoder:
    tensors = tensors_of(plain_tower(settings))
    return AudioEncoder(
        tower_of(settings, normalise), tensors, WIDTH, torch.device("cpu"), "it/model.pt", (), Arithmetic(dtype, dtype)
    )


@pytest.fixture(scope="module")
def encoder() -> AudioEncoder:
    return encoder_of(UPSTREAM)


def recording(seconds: float, seed: int = 0) -> np.ndarray:
    return wavering_noise(round(16000 * seconds), seed)


def mel_of(samples: np.ndarray, normalise: bool) -> Tensor:
    """Log-mel features [bins, frames] by the published extractor."""
    extractor = transformers.WhisperFeatureExtractor(feature_size=TOWER["num_mel_bins"])
    options = {"padding": "longest", "truncation": False, "do_normalize": normalise, "return_tensors": "pt"}
    features: Tensor = extractor(samples, sampling_rate=16000, **options)["input_features"][0]
    return features


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("seconds", SECONDS)
def test_audio_embeddings_equal_transformers(seconds: float, normalise: bool) -> None:
    samples, network, encoder = recording(seconds), plain_tower(UPSTREAM), encoder_of(UPSTREAM, normalise=normalise)
    mel = mel_of(samples, normalise)
    assert mel.shape[1] == len(samples) // 160
    with torch.no_grad():
        expected = network(mel, feature_lens=torch.tensor([mel.shape[1]])).last_hidden_state
        tensors = tensors_of(network)
        expected_embeddings = F.linear(
            expected, *(tensors[f"adaptor.continuous_audio.{name}"] for name in ("weight", "bias"))
        )
    actual = encoder(samples).numpy()
    assert actual.shape == (encoder.tower.rows(len(samples)), WIDTH)
    assert cosine(actual, expected_embeddings.numpy()) >= 0.999999
    np.testing.assert_allclose(actual, expected_embeddings.numpy(), atol=2e-4 * float(expected_embeddings.abs().max()))


@pytest.mark.parametrize("settings", [UPSTREAM, FORK, TOWER], ids=["upstream", "fork", "tiny"])
@pytest.mark.parametrize("seconds", [0.3, 1.0, 4.03, 11.7, 41.3])
def test_tower_output_equals_the_reference_with_the_windows_of_the_checkpoint(
    settings: dict[str, Any], seconds: float
) -> None:
    """By definition, chunks pass the convolutions one by one, and windows pass the layers one by one."""
    samples, network, encoder = recording(seconds), plain_tower(settings), encoder_of(settings)
    recorder = Recorder(lambda name: name == "tower.output")
    encoder(samples, recorder)
    with torch.no_grad():
        expected = heard_in_chunks(network, mel_of(samples, True)).numpy()
    assert cosine(recorder.stages["tower.output"], expected) >= 0.999999


def test_number_of_audio_positions_equals_the_published_values() -> None:
    for settings, seconds, rows in ((UPSTREAM, 4, 52), (UPSTREAM, 30, 390), (FORK, 4, 50), (FORK, 30, 375)):
        assert len(encoder_of(settings)(recording(seconds))) == rows


def test_traced_tower_stages_have_expected_shapes_and_continue_from_a_given_layer(encoder: AudioEncoder) -> None:
    recorder = Recorder(StageFilter())
    embeddings = encoder(recording(1.0), recorder).numpy()
    shapes = {name: value.shape for name, value in recorder.stages.items()}
    width = TOWER["d_model"]
    assert shapes == {
        "tower.mel": (100, TOWER["num_mel_bins"]),
        "tower.layers.0": (13, width),
        "tower.layers.1": (13, width),
        "tower.output": (13, TOWER["output_dim"]),
        "adaptor.output": (13, WIDTH),
    }
    np.testing.assert_array_equal(recorder.stages["adaptor.output"], embeddings)
    # A pass that continues from a given layer gives the same output.
    given_stages = {"tower.layers.0": recorder.stages["tower.layers.0"]}
    continued = Recorder(lambda name: name == "adaptor.output", given=given_stages)
    encoder(recording(1.0, seed=8), continued)
    np.testing.assert_allclose(continued.stages["adaptor.output"], embeddings, atol=1e-5)


def test_float64_output_is_close_to_float32_and_not_rounded() -> None:
    samples = recording(2.0)
    recorder = Recorder(StageFilter())
    encoder_of(UPSTREAM, torch.float64)(samples, recorder)
    single = encoder_of(UPSTREAM)(samples).numpy()
    double = recorder.stages["adaptor.output"]
    assert double.dtype == np.float64
    np.testing.assert_allclose(single, double, atol=1e-4 * np.abs(double).max())
    assert np.abs(double - double.astype(np.float32)).max() > 0  # no value was rounded to float32


def test_bfloat16_output_is_close_to_float32() -> None:
    samples = recording(1.0)
    half = encoder_of(UPSTREAM, torch.bfloat16)(samples)
    assert half.dtype == torch.bfloat16
    assert cosine(half.float().numpy(), encoder_of(UPSTREAM)(samples).numpy()) > 0.99


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        (np.zeros(0, dtype=np.float32), "has 0 samples at 16000 Hz; expected mono and at least 201"),
        (recording(0.0125), "has 200 samples"),
        (np.zeros(16000, dtype=np.float32), "is silent"),
        (np.full(16000, 0.25, dtype=np.float32), "is silent"),
        (np.array([0.1, np.nan] * 400, dtype=np.float32), "not finite"),
        (np.zeros((2, 16000), dtype=np.float32), "expected mono"),
    ],
    ids=["empty", "short", "silent", "offset", "nan", "stereo"],
)
def test_invalid_recordings_raise_one_line_error(encoder: AudioEncoder, samples: np.ndarray, says: str) -> None:
    with pytest.raises(BadInput) as error:
        encoder(samples)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_shortest_allowed_recording_gives_one_embedding(encoder: AudioEncoder) -> None:
    assert len(encoder(recording(201 / 16000))) == 1


def test_missing_extra_or_misshapen_tensors_are_refused() -> None:
    tensors = tensors_of(plain_tower(UPSTREAM))
    for changes, says in (
        ({"adaptor.continuous_audio.bias": None}, "it/model.pt lacks tensor adaptor.continuous_audio.bias"),
        ({f"{TOWER_PREFIX}proj1.weight": None}, f"lacks tensor {TOWER_PREFIX}proj1.weight"),
        ({f"{TOWER_PREFIX}more": torch.zeros(1)}, f"has tensor {TOWER_PREFIX}more"),
        ({"adaptor.continuous_audio.bias": torch.zeros(3)}, "has shape (3,)"),
    ):
        changed_tensors = {name: value for name, value in {**tensors, **changes}.items() if value is not None}
        with pytest.raises(BadInput) as error:
            AudioEncoder(tower_of(UPSTREAM), changed_tensors, WIDTH, torch.device("cpu"), "it/model.pt")
        assert says in str(error.value)
