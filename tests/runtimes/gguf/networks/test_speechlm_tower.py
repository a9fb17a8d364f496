"""The audio tower on ggml against PyTorch: every stage, for any length, window and weight type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.gguf_audio import write_part
from tests.support.gguf_encoders import cosine
from tests.support.sound_files import wavering_noise
from tests.support.tiny_speechlm import TOWER, TOWER_PREFIX
from workbench.conversion.speechlm_audio import plan_tower
from workbench.core.errors import BadInput
from workbench.families.speechlm.parts import Mel, Tower
from workbench.runtimes.gguf.networks.speechlm_tower import SpeechLmTower
from workbench.runtimes.pytorch.speechlm_tower import AudioEncoder, tower_network
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter

HIDDEN = 24  # width of the language model
SETTINGS: dict[str, dict[str, Any]] = {
    "short windows": TOWER,
    "upstream windows": {**TOWER, "n_window": 50, "n_window_infer": 800, "num_mel_bins": 27},
    "one long chunk": {
        **TOWER,
        "n_window": 1600,
        "n_window_infer": 3200,
        "max_source_positions": 400,
        "activation_function": "relu",
    },
}
WIDE = {**TOWER, "d_model": 64, "encoder_ffn_dim": 96, "output_dim": 32, "downsample_hidden_size": 8}


def tower_of(config: dict[str, Any]) -> Tower:
    mel = Mel(bins=config["num_mel_bins"], hop=160, window=400, normalise=True)
    return Tower(config, mel, config["output_dim"])


def tensors_of(config: dict[str, Any]) -> dict[str, torch.Tensor]:
    generator, tensors = torch.Generator().manual_seed(3), {}
    for name, value in tower_network(tower_of(config), HIDDEN, "it").state_dict().items():
        noise = torch.randn(value.shape, generator=generator)
        tensors[name] = noise * 1.5 / value[0].numel() ** 0.5 if value.ndim > 1 else 0.3 * noise
    return tensors


class Pair:
    """A tower on ggml and an encoder on PyTorch with the same weights."""

    def __init__(self, path: Path, config: dict[str, Any], quantization: str = "f32"):
        tower, self.tensors = tower_of(config), tensors_of(config)
        self.part = plan_tower(tower, self.tensors, HIDDEN, "it")
        self.ggml_tower = SpeechLmTower(write_part(path, self.part, quantization), tower, threads=1)
        self.pytorch_encoder = AudioEncoder(tower, self.tensors, HIDDEN, torch.device("cpu"), "it")

    def stages(self, samples: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        recorder, reference = Recorder(StageFilter()), Recorder(StageFilter())
        output = self.ggml_tower.embed_audio(samples, recorder)
        self.pytorch_encoder(samples, reference)
        np.testing.assert_array_equal(output, recorder.stages["adaptor.output"])
        return recorder.stages, reference.stages


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Pair]]:
    folder = tmp_path_factory.mktemp("towers")
    pairs_by_name = {name: Pair(folder / f"{name}.gguf", config) for name, config in SETTINGS.items()}
    yield pairs_by_name
    for pair in pairs_by_name.values():
        pair.ggml_tower.close()


def assert_same(pair: Pair, samples: np.ndarray) -> None:
    stages, expected = pair.stages(samples)
    assert list(stages) == list(expected)
    assert len(stages["adaptor.output"]) == pair.ggml_tower.tower.rows(len(samples))
    for stage, values in expected.items():
        np.testing.assert_allclose(stages[stage], values, atol=2e-4 * np.abs(values).max(), err_msg=stage)


@settings(max_examples=25)
@given(name=st.sampled_from(sorted(SETTINGS)), count=st.integers(201, 60_000))
def test_every_tower_stage_equals_pytorch_for_any_length(pairs: dict[str, Pair], name: str, count: int) -> None:
    assert_same(pairs[name], wavering_noise(count))


@pytest.mark.parametrize("name", sorted(SETTINGS))
@pytest.mark.parametrize("seconds", [0.3, 8.0, 30.0])
def test_recordings_of_up_to_30_seconds_equal_pytorch(pairs: dict[str, Pair], name: str, seconds: float) -> None:
    assert_same(pairs[name], wavering_noise(round(16_000 * seconds)))


@pytest.mark.parametrize(("quantization", "min_cosine"), [("f16", 0.9995), ("q8_0", 0.999), ("q4_0", 0.95)])
def test_quantised_weights_give_stages_close_to_pytorch(tmp_path: Path, quantization: str, min_cosine: float) -> None:
    pair = Pair(tmp_path / "it.gguf", WIDE, quantization)
    stages, expected = pair.stages(wavering_noise(40_000))
    similarities = {stage: cosine(stages[stage], values) for stage, values in expected.items()}
    assert min(similarities.values()) >= min_cosine, similarities
    assert max(similarities["adaptor.output"], similarities["tower.output"]) < 1  # the type is used
    pair.ggml_tower.close()


def test_substituted_layer_output_is_used_by_later_stages(pairs: dict[str, Pair]) -> None:
    pair = pairs["short windows"]
    stages, _ = pair.stages(wavering_noise(16_000))
    substitutes = {"tower.layers.0": stages["tower.layers.0"]}
    recorder = Recorder(lambda name: name == "adaptor.output", given=substitutes)
    pair.ggml_tower.embed_audio(wavering_noise(16_001), recorder)
    np.testing.assert_allclose(recorder.stages["adaptor.output"], stages["adaptor.output"], atol=1e-5)


def test_bad_recordings_raise_one_line_errors(pairs: dict[str, Pair]) -> None:
    for samples, message in (
        (np.zeros(0, dtype=np.float32), "has 0 samples at 16000 Hz; expected mono and at least 201"),
        (np.zeros(16000, dtype=np.float32), "is silent"),
        (np.array([0.1, np.nan] * 400, dtype=np.float32), "not finite"),
    ):
        with pytest.raises(BadInput, match=message):
            pairs["short windows"].ggml_tower.embed_audio(samples)


def test_unsupported_activation_is_refused_at_conversion() -> None:
    config = {**TOWER, "activation_function": "tanh"}
    with pytest.raises(BadInput, match="has the activation 'tanh'; a GGUF file takes gelu, relu, silu"):
        plan_tower(tower_of(config), tensors_of(config), HIDDEN, "it")


def test_missing_tensor_is_refused_at_conversion(pairs: dict[str, Pair]) -> None:
    pair = pairs["short windows"]
    for name in ("adaptor.continuous_audio.bias", f"{TOWER_PREFIX}conv2d2.weight"):
        remaining = {key: value for key, value in pair.tensors.items() if key != name}
        with pytest.raises(BadInput, match=f"lacks tensor {name}"):
            plan_tower(pair.ggml_tower.tower, remaining, HIDDEN, "it")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("tower.layers", 3, "has no tensor tower.layers.2"),
        ("tower.heads", 3, "expected a multiple of twice the heads"),
        ("tower.channels", 7, "tensor tower.conv.0.weight"),
        ("tower.bins", 33, "takes 33 mel bands"),
        ("tower.activation", "tanh", "expected gelu or relu or silu"),
        ("tower.units", 0, "expected a whole number from 1"),
    ],
)
def test_metadata_keys_that_contradict_the_tensors_are_refused(
    pairs: dict[str, Pair], tmp_path: Path, key: str, value: Any, message: str
) -> None:
    pair = pairs["short windows"]
    part = plan_tower(pair.ggml_tower.tower, pair.tensors, HIDDEN, "it")
    part.values[key] = value
    with pytest.raises(BadInput) as error:
        SpeechLmTower(write_part(tmp_path / "bad.gguf", part), pair.ggml_tower.tower, threads=1)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_names_are_short_enough_for_llama_cpp(pairs: dict[str, Pair]) -> None:
    assert max(len(tensor.name) for tensor in pairs["short windows"].part.tensors) < 64
