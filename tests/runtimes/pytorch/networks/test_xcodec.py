"""The XCodec audio codec: codes and samples equal to transformers', and the receptive field of its decoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from tests.support.gguf_audio import codec_settings, codec_tensors, drawn_codec
from tests.support.tiny_speechlm import ACOUSTIC, CODES, SEMANTIC, STREAMS, write_codec
from workbench.core.errors import BadInput
from workbench.formats.json_files import read_json_file
from workbench.runtimes.pytorch.checkpoints.weights import read_safetensors
from workbench.runtimes.pytorch.networks.xcodec import Xcodec, decoder_receptive_field
from workbench.trace.recorder import Recorder

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("codec") / "xcodec"
    write_codec(path)
    return path


def open_codec(directory: Path, streams: int = STREAMS, **changes: Tensor | None) -> Xcodec:
    file = directory / "model.safetensors"
    tensors = {**read_safetensors(file), **changes}
    remaining = {name: value for name, value in tensors.items() if value is not None}
    return Xcodec(read_json_file(directory / "config.json"), remaining, streams, CPU, directory.name, [file])


@pytest.fixture(scope="module")
def codec(directory: Path) -> Xcodec:
    return open_codec(directory)


@pytest.fixture(scope="module")
def plain(directory: Path) -> transformers.XcodecModel:
    return transformers.XcodecModel.from_pretrained(directory).eval()


def noise(samples: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, samples).astype(np.float32)


def codes_of(frames: int, seed: int = 0, streams: int = STREAMS) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, CODES, (frames, streams))


@pytest.mark.parametrize("frames", [1, 2, 7, 50, 173])
def test_decoded_samples_equal_transformers(codec: Xcodec, plain: transformers.XcodecModel, frames: int) -> None:
    codes = codes_of(frames)
    actual = codec.decode(codes)
    with torch.no_grad():
        expected = plain.decode(torch.from_numpy(codes.T)[None]).audio_values[0, 0].numpy()
    assert actual.dtype == np.float32 and len(actual) == frames * codec.hop
    np.testing.assert_allclose(actual, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("samples", [320, 400, 640, 1000, 16000, 16319, 31999])
def test_encoded_codes_equal_transformers(codec: Xcodec, plain: transformers.XcodecModel, samples: int) -> None:
    wave = noise(samples)
    actual = codec.encode(wave)
    frames = samples // 320
    with torch.no_grad():
        expected = plain.encode(torch.from_numpy(wave[: 320 * frames])[None, None]).audio_codes[0].T.numpy()
    assert actual.shape == (frames, STREAMS)
    common = min(frames, len(expected))
    assert common >= frames - 1
    np.testing.assert_array_equal(actual[:common], expected[:common])
    assert (actual[common:] == actual[common - 1]).all()
    assert len(np.unique(actual)) > 1


@pytest.mark.parametrize("semantic", [{"model_type": "wavlm"}, {"conv_pos_batch_norm": True}])
def test_codes_of_other_semantic_models_equal_transformers(semantic: dict[str, Any]) -> None:
    settings = codec_settings(semantic=semantic)
    network = drawn_codec(settings)
    codec = Xcodec(settings, codec_tensors(network), 3, CPU, "it")
    wave = noise(8000)
    with torch.no_grad():
        expected = network.encode(torch.from_numpy(wave)[None, None]).audio_codes[0].T.numpy()
    np.testing.assert_array_equal(codec.encode(wave), expected[:, :3])


def test_fewer_streams_are_the_first_codebooks(directory: Path, codec: Xcodec) -> None:
    fewer = open_codec(directory, streams=2)
    assert np.array_equal(fewer.encode(noise(8000)), codec.encode(noise(8000))[:, :2])
    assert fewer.decode(codes_of(4, streams=2)).shape == (4 * 320,)


def test_encoder_weights_are_loaded_only_when_encoding(directory: Path) -> None:
    codec = open_codec(directory)
    loaded = {name.split(".")[0] for name, value in codec.network.named_parameters() if not value.is_meta}
    assert loaded == {"acoustic_decoder", "semantic_model"}
    large = [name for name, value in codec.network.semantic_model.named_parameters() if not value.is_meta]
    assert large == ["masked_spec_embed"]  # a vector that transformers initialises itself
    samples_before = codec.decode(codes_of(5))
    codec.encode(noise(3200))
    np.testing.assert_array_equal(codec.decode(codes_of(5)), samples_before)


@pytest.mark.parametrize("ratios", [(8, 5, 4, 2), (2, 4, 5, 8), (5, 3)], ids=str)
def test_receptive_field_equals_the_measured_impulse_response(ratios: tuple[int, ...]) -> None:
    """With positive weights and zero biases, silence stays zero and the effects of an impulse never cancel."""
    acoustic = {**ACOUSTIC, "upsampling_ratios": ratios, "downsampling_ratios": ratios[::-1]}
    with torch.random.fork_rng():
        settings = transformers.XcodecConfig(acoustic_model_config=acoustic, semantic_model_config=SEMANTIC)
        decoder = transformers.XcodecModel(settings).acoustic_decoder.double()
    hop = int(np.prod(ratios))
    with torch.no_grad():
        for name, value in decoder.named_parameters():
            value.copy_(torch.zeros_like(value) if "bias" in name else value.abs() + 0.01)
        latents = torch.zeros(1, ACOUSTIC["hidden_size"], 61, dtype=torch.float64)
        latents[..., 30] = 1.0
        samples = decoder(latents)[0, 0].reshape(61, hop).numpy()
    affected = np.flatnonzero(samples.any(axis=1))
    before, after = decoder_receptive_field(decoder, hop)
    # A frame before the impulse is affected because the impulse is in its right context.
    assert (30 - affected.min(), affected.max() - 30) == (after, before)


def test_frames_outside_the_receptive_field_do_not_change_samples(codec: Xcodec) -> None:
    before, after = codec.receptive_field
    frames, index = before + after + 21, before + 10
    codes = codes_of(frames)
    other_codes = codes_of(frames, seed=1)
    other_codes[index - before : index + after + 1] = codes[index - before : index + after + 1]
    expected, actual = codec.decode(codes).reshape(frames, -1), codec.decode(other_codes).reshape(frames, -1)
    np.testing.assert_allclose(expected[index], actual[index], atol=1e-6 * np.abs(expected).max())
    assert np.abs(expected[index - before] - actual[index - before]).max() > 1e-4 * np.abs(expected).max()


def test_receptive_field_of_the_published_codec_is_ten_frames_each_side() -> None:
    with torch.device("meta"):
        network = transformers.XcodecModel(transformers.XcodecConfig())
    assert decoder_receptive_field(network.acoustic_decoder, 320) == (10, 10)


def test_codec_stages_are_traced_and_continue_from_given_codes(codec: Xcodec) -> None:
    recorder = Recorder(lambda name: name.startswith("codec."))
    codes = codes_of(6)
    audio = codec.decode(codes, recorder)
    stages = recorder.stages
    assert list(stages) == ["codec.codes", "codec.latents", "codec.audio"]
    np.testing.assert_array_equal(stages["codec.codes"], codes)
    np.testing.assert_array_equal(stages["codec.audio"], audio)
    assert stages["codec.latents"].shape == (6, 8)
    continued = Recorder(lambda name: name == "codec.audio", given={"codec.codes": codes_of(6, seed=5)})
    codec.decode(codes, continued)
    np.testing.assert_array_equal(continued.stages["codec.audio"], codec.decode(codes_of(6, seed=5)))


def test_old_weight_norm_tensor_names_are_read(directory: Path, codec: Xcodec) -> None:
    new = "semantic_model.encoder.pos_conv_embed.conv.parametrizations.weight.original"
    old = "semantic_model.encoder.pos_conv_embed.conv.weight_"
    stored = read_safetensors(directory / "model.safetensors")
    changes: dict[str, Tensor | None] = {f"{new}0": None, f"{new}1": None}
    changes |= {f"{old}g": stored[f"{new}0"], f"{old}v": stored[f"{new}1"]}
    assert np.array_equal(open_codec(directory, **changes).encode(noise(3200)), codec.encode(noise(3200)))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda codec: codec.encode(noise(319)), "319 samples at 16000 Hz; expected at least 320"),
        (lambda codec: codec.encode(noise(0)), "0 samples"),
        (lambda codec: codec.decode(np.full((3, STREAMS), CODES)), f"expected frames of {STREAMS} codes from 0 to 15"),
        (lambda codec: codec.decode(np.full((3, STREAMS), -1)), "values from -1"),
        (lambda codec: codec.decode(codes_of(3, streams=STREAMS + 1)), "the shape (3, 6)"),
    ],
    ids=["short", "empty", "large", "negative", "streams"],
)
def test_invalid_audio_or_codes_raise_one_line_error(codec: Xcodec, make: object, says: str) -> None:
    with pytest.raises(BadInput) as error:
        make(codec)  # type: ignore[operator]
    assert says in str(error.value) and "\n" not in str(error.value)
    assert codec.decode(codes_of(0)).shape == (0,)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"fc2.bias": None}, "xcodec, codec lacks tensor fc2.bias"),
        ({"fc.bias": None}, "lacks tensor fc.bias"),
        ({"head.bias": torch.zeros(1)}, "has tensor head.bias"),
        ({"fc2.bias": torch.zeros(3)}, "tensor fc2.bias has shape (3,)"),
        ({"fc2.bias": torch.full((8,), torch.nan)}, "not finite"),
    ],
    ids=["missing", "missing-encoder", "extra", "shape", "values"],
)
def test_missing_extra_or_misshapen_tensor_raises_one_line_error(
    directory: Path, changes: dict[str, Tensor | None], says: str
) -> None:
    with pytest.raises(BadInput) as error:
        open_codec(directory, **changes)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_codec_with_fewer_codebooks_than_streams_is_refused(directory: Path) -> None:
    with pytest.raises(BadInput, match=f"has {STREAMS} codebooks; the language model has {STREAMS + 1} streams"):
        open_codec(directory, streams=STREAMS + 1)


def test_invalid_codec_settings_are_refused(directory: Path) -> None:
    tensors = read_safetensors(directory / "model.safetensors")
    with pytest.raises(BadInput, match="describes no codec"):
        Xcodec({"semantic_model_config": {"model_type": "no such model"}}, tensors, 2, CPU, "xcodec")
