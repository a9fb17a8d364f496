"""The codec on ggml against transformers: samples and codes, any number of frames, other sizes, HuBERT variants."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.gguf_audio import CODES, codec_file, codec_settings, codec_tensors, drawn_codec, write_part
from tests.support.tiny_speechlm import tiny_layout
from workbench.conversion.speechlm_audio import plan_codec
from workbench.core.errors import BadInput
from workbench.formats.gguf_file import GgufFile
from workbench.runtimes.gguf.networks import xcodec_encoder
from workbench.runtimes.gguf.networks.xcodec import Xcodec
from workbench.runtimes.pytorch.networks.xcodec import Xcodec as PyTorchXcodec
from workbench.runtimes.pytorch.networks.xcodec import decoder_receptive_field
from workbench.speech.delay import delayed
from workbench.speech.streaming import AudioChunks
from workbench.trace.recorder import Recorder

STREAMS = 4
SIZES: dict[str, dict[str, Any]] = {
    "published order": codec_settings(),
    "other order, odd widths": codec_settings(
        {"decoder_hidden_size": 80, "hidden_size": 10, "encoder_hidden_size": 3, "upsampling_ratios": [2, 4, 5, 8]},
        {"feat_extract_norm": "layer", "conv_bias": True, "do_stable_layer_norm": True, "num_hidden_layers": 2},
    ),
    "odd strides": codec_settings(
        {"decoder_hidden_size": 28, "upsampling_ratios": [5, 3], "downsampling_ratios": [3, 5]},
        {
            "num_conv_pos_embeddings": 7,
            "feat_proj_layer_norm": False,
            "conv_stride": [3, 5, 1, 1, 1, 1, 1],
            "conv_kernel": [3, 5, 1, 1, 1, 1, 1],
        },
        block_dilations=[1, 3],
        target_bandwidths=[28],
    ),
}


class Pair:
    """A codec of transformers and one on ggml with the same weights."""

    def __init__(self, folder: Path, name: str):
        self.settings = SIZES[name]
        self.network = drawn_codec(self.settings)
        self.file = codec_file(folder / f"{name}.gguf", self.settings, self.network, STREAMS)
        self.codec = Xcodec(self.file, STREAMS, threads=1)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            samples: np.ndarray = self.network.decode(torch.from_numpy(codes.T[None]), return_dict=False)[0, 0].numpy()
        return samples

    def encode(self, samples: np.ndarray) -> np.ndarray:
        self.network.quantizer.get_num_quantizers_for_bandwidth = lambda bandwidth=None: STREAMS
        with torch.inference_mode():
            codes: np.ndarray = self.network.encode(torch.from_numpy(samples)[None, None], return_dict=False)[
                0
            ].T.numpy()
        return codes


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Pair]]:
    folder = tmp_path_factory.mktemp("codecs")
    pairs_by_name = {name: Pair(folder, name) for name in SIZES}
    yield pairs_by_name
    for pair in pairs_by_name.values():
        pair.codec.close()


def random_codes(frames: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, CODES, (frames, STREAMS))


def noise(count: int) -> np.ndarray:
    return (0.3 * np.random.default_rng(count).standard_normal(count)).astype(np.float32)


@settings(max_examples=40)
@given(name=st.sampled_from(sorted(SIZES)), frames=st.integers(1, 70))
def test_decoded_samples_equal_transformers(pairs: dict[str, Pair], name: str, frames: int) -> None:
    codec, codes = pairs[name].codec, random_codes(frames, frames)
    samples, expected = codec.decode(codes), pairs[name].decode(codes)
    assert samples.dtype == np.float32 and samples.shape == (frames * codec.hop,)
    np.testing.assert_allclose(samples, expected, atol=2e-6 * max(np.abs(expected).max(), 1))


@pytest.mark.parametrize("name", sorted(SIZES))
def test_receptive_field_equals_that_of_the_network(pairs: dict[str, Pair], name: str) -> None:
    codec = pairs[name].codec
    assert codec.receptive_field == decoder_receptive_field(pairs[name].network.acoustic_decoder, codec.hop)


@pytest.mark.parametrize("part", [1, 7, 64])
def test_decoding_in_parts_equals_decoding_at_once(
    pairs: dict[str, Pair], monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    codec, codes = pairs["other order, odd widths"].codec, random_codes(90)
    expected = codec.decode(codes)
    monkeypatch.setattr(codec, "_part", part)
    np.testing.assert_allclose(codec.decode(codes), expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("tile", [1, 1000, 30_000])
def test_decoding_with_tiles_in_the_last_block_equals_decoding_at_once(
    pairs: dict[str, Pair], monkeypatch: pytest.MonkeyPatch, tile: int
) -> None:
    codec, codes = pairs["published order"].codec, random_codes(5)
    expected = codec.decode(codes)
    monkeypatch.setattr("workbench.runtimes.gguf.networks.xcodec_decoder.TILE", tile)
    np.testing.assert_allclose(codec.decode(codes), expected, atol=1e-6 * np.abs(expected).max())


def test_streamed_audio_chunks_equal_audio_decoded_at_once(pairs: dict[str, Pair]) -> None:
    codec, codes, layout = pairs["published order"].codec, random_codes(80) % 16, tiny_layout(STREAMS)
    rows = delayed(codes, layout)
    chunks = AudioChunks(codec, layout)
    pieces = [piece for row in rows if (piece := chunks.add(row)) is not None]
    samples = np.concatenate([*pieces, chunks.finish()])
    expected = codec.decode(codes)
    assert len(pieces) > 2
    np.testing.assert_allclose(samples, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("name", sorted(SIZES))
@pytest.mark.parametrize("count", [20, 21, 50])
def test_encoded_codes_equal_transformers(pairs: dict[str, Pair], name: str, count: int) -> None:
    codec = pairs[name].codec
    samples = noise(count * codec.hop + codec.hop // 3)
    codes, expected = codec.encode(samples), pairs[name].encode(samples[: count * codec.hop])
    assert codes.shape == (count, STREAMS) and codes.dtype == np.int64
    frames = min(count, len(expected))
    equal_share = (codes[:frames] == expected[:frames]).mean()
    assert equal_share >= 0.98  # near ties of codebooks may fall to either side


@pytest.mark.parametrize("name", sorted(SIZES))
def test_embeddings_before_the_codebooks_equal_transformers(
    pairs: dict[str, Pair], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Codes alone can be equal although a part of the encoder is wrong."""
    pair, found, expected = pairs[name], list[np.ndarray](), list[np.ndarray]()
    quantizer = pair.network.quantizer
    encode, quantise = quantizer.encode, xcodec_encoder.quantise

    def record(embeddings: np.ndarray, codebooks: Any) -> np.ndarray:
        found.append(embeddings)
        return quantise(embeddings, codebooks)

    def record_expected(embeddings: torch.Tensor, bandwidth: float) -> torch.Tensor:
        expected.append(embeddings[0].T.numpy())
        codes: torch.Tensor = encode(embeddings, bandwidth)
        return codes

    monkeypatch.setattr(xcodec_encoder, "quantise", record)
    monkeypatch.setattr(quantizer, "encode", record_expected)
    samples = noise(20 * pair.codec.hop)
    pair.codec.encode(samples)
    pair.encode(samples)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-4 * np.abs(expected[0]).max())


@pytest.mark.parametrize("quantization", ["f16", "q8_0", "q4_0"])
def test_quantised_files_decode_identical_samples(pairs: dict[str, Pair], tmp_path: Path, quantization: str) -> None:
    """No tensor of the decoder is rounded."""
    pair = pairs["published order"]
    codec = Xcodec(codec_file(tmp_path / "it.gguf", pair.settings, pair.network, STREAMS, quantization), STREAMS, 1)
    np.testing.assert_array_equal(codec.decode(random_codes(9)), pair.codec.decode(random_codes(9)))
    codec.close()


def test_decoded_samples_do_not_depend_on_the_number_of_threads(pairs: dict[str, Pair]) -> None:
    pair = pairs["odd strides"]
    codec = Xcodec(pair.file, STREAMS, threads=3)
    np.testing.assert_allclose(codec.decode(random_codes(20)), pair.codec.decode(random_codes(20)), atol=1e-6)
    codec.close()


def test_codec_stages_are_recorded_and_can_be_substituted(pairs: dict[str, Pair]) -> None:
    codec, recorder = pairs["published order"].codec, Recorder(lambda name: True)
    audio = codec.decode(random_codes(6), recorder)
    stages = recorder.stages
    assert list(stages) == ["codec.codes", "codec.latents", "codec.audio"]
    np.testing.assert_array_equal(stages["codec.codes"], random_codes(6))
    np.testing.assert_array_equal(stages["codec.audio"], audio)
    assert stages["codec.latents"].shape == (6, 8)
    rerun = Recorder(lambda name: name == "codec.audio", given={"codec.codes": random_codes(6, seed=5)})
    codec.decode(random_codes(6), rerun)
    np.testing.assert_array_equal(rerun.stages["codec.audio"], codec.decode(random_codes(6, seed=5)))
    rerun = Recorder(lambda name: name == "codec.audio", given={"codec.latents": stages["codec.latents"]})
    codec.decode(random_codes(6, seed=5), rerun)
    np.testing.assert_array_equal(rerun.stages["codec.audio"], audio)


def test_long_codes_are_decoded_in_parts_of_limited_size(
    pairs: dict[str, Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest graph sets the memory. The process's memory is no measure: freed memory may stay with it."""
    codec = pairs["other order, odd widths"].codec
    expected, lengths, samples_of = codec.decode(random_codes(400)), [], codec._samples

    def record_length(graph: Any, latents: np.ndarray) -> Any:
        lengths.append(len(latents))
        return samples_of(graph, latents)

    monkeypatch.setattr(codec, "_samples", record_length)
    monkeypatch.setattr(codec, "_part", 60)
    np.testing.assert_allclose(codec.decode(random_codes(400)), expected, atol=1e-5)
    assert len(lengths) == 7 and max(lengths) == 60 + sum(codec.receptive_field)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda codec: codec.encode(noise(319)), "319 samples at 16000 Hz; expected at least 320"),
        (lambda codec: codec.decode(np.full((3, STREAMS), CODES)), f"expected frames of {STREAMS} codes from 0 to 23"),
        (lambda codec: codec.decode(np.full((3, STREAMS), -1)), "values from -1"),
        (lambda codec: codec.decode(random_codes(3)[:, [0, 1, 2, 3, 0]]), "the shape (3, 5)"),
    ],
    ids=["short", "large", "negative", "streams"],
)
def test_bad_input_raises_one_line_error(pairs: dict[str, Pair], call: Any, message: str) -> None:
    codec = pairs["published order"].codec
    with pytest.raises(BadInput) as error:
        call(codec)
    assert message in str(error.value) and "\n" not in str(error.value)
    assert codec.decode(random_codes(0)).shape == (0,)


def test_file_with_fewer_codebooks_than_streams_is_refused(pairs: dict[str, Pair]) -> None:
    with pytest.raises(BadInput, match="has 4 codebooks; the language model has 5 streams"):
        Xcodec(pairs["published order"].file, 5)


def test_unsupported_semantic_model_gives_a_decoder_without_encoder(tmp_path: Path) -> None:
    config = codec_settings(semantic={"hidden_act": "relu"})
    network = drawn_codec(config)
    part = plan_codec(config, codec_tensors(network), STREAMS, "it")
    assert part.notes and "with its codec streams" in part.notes[0]
    codec = Xcodec(write_part(tmp_path / "it.gguf", part), STREAMS, threads=1)
    with torch.inference_mode():
        expected = network.decode(torch.from_numpy(random_codes(4).T[None]), return_dict=False)[0, 0].numpy()
    np.testing.assert_allclose(codec.decode(random_codes(4)), expected, atol=1e-5)
    with pytest.raises(BadInput, match="has no encoder of the codec"):
        codec.encode(noise(3200))
    codec.close()


def test_codec_whose_branches_have_other_strides_decodes_and_refuses_to_encode_on_both_runtimes(tmp_path: Path) -> None:
    config = codec_settings({"downsampling_ratios": [16, 16], "upsampling_ratios": [16, 16]}, target_bandwidths=[1.6])
    network = drawn_codec(config)
    on_ggml = Xcodec(codec_file(tmp_path / "it.gguf", config, network, STREAMS), STREAMS, threads=1)
    on_pytorch = PyTorchXcodec(config, codec_tensors(network), STREAMS, torch.device("cpu"), "it")
    np.testing.assert_allclose(on_ggml.decode(random_codes(9)), on_pytorch.decode(random_codes(9)), atol=1e-5)
    for codec in (on_ggml, on_pytorch):
        with pytest.raises(BadInput, match="its acoustic branch gives 63 rows and its semantic branch 50"):
            codec.encode(noise(16000))
    on_ggml.close()


def file_with_values(pair: Pair, path: Path, **values: Any) -> GgufFile:
    part = plan_codec(pair.settings, codec_tensors(pair.network), STREAMS, "it")
    for key, value in values.items():
        part.values[f"codec.{key.replace('__', '.')}"] = value
    return write_part(path, part)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"decoder_width": 64}, "tensor codec.decoder.conv1.weight"),
        ({"decoder_width": 3}, "expected channels for 4 halvings"),
        ({"upsampling": [8, 5, 4]}, "expected frames of 320 samples"),
        ({"upsampling": [8, 0, 4, 2]}, "expected steps of at least 1"),
        ({"upsampling": 8}, "is not a list of at most"),
        ({"codes": 25}, "tensor codec.codebooks.0.weight"),
        ({"semantic__layers": 2}, "has no tensor codec.semantic.layers.1"),
        ({"semantic__heads": 3}, "do not fit"),
        ({"semantic__widths": [8, 8]}, "expected as many numbers"),
        ({"semantic__norm": "none"}, "expected group or layer"),
    ],
    ids=str,
)
def test_metadata_keys_that_contradict_the_tensors_are_refused(
    pairs: dict[str, Pair], tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput) as error:
        Xcodec(file_with_values(pairs["published order"], tmp_path / "bad.gguf", **values), STREAMS, threads=1)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_codec_runs_without_importing_torch(pairs: dict[str, Pair]) -> None:
    program = (
        "import sys, numpy as np\n"
        "from workbench.formats.gguf_file import read_gguf\n"
        "from workbench.runtimes.gguf.networks.xcodec import Xcodec\n"
        "import workbench.runtimes.gguf.networks.speechlm_tower\n"
        f"codec = Xcodec(read_gguf({str(pairs['published order'].file.path)!r}), {STREAMS}, 1)\n"
        f"codec.encode(codec.decode(np.zeros((3, {STREAMS}), np.int64)))\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout == "[]\n"
