"""Paraformer on ggml against PyTorch on the same weights: every stage, type and head, and FunASR's files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from tests.reference.checkpoints import ODD_PARAFORMER, EncoderSize, ParaformerSize, write_paraformer
from tests.support.gguf_encoders import cosine
from tests.support.gguf_files import funasr_paraformer
from tests.support.tiny_checkpoints import noise, tiny_paraformer
from workbench.audio.read import read
from workbench.conversion import paraformer, writer
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.families.sanm.paraformer import read_paraformer
from workbench.formats.gguf_file import read_gguf
from workbench.registry.sources import assets
from workbench.runtimes.gguf.files.unpacking import unpacked
from workbench.runtimes.gguf.paraformer import ParaformerGraph, open_session
from workbench.runtimes.pytorch import paraformer as pytorch
from workbench.session.protocols import Session
from workbench.trace.trace import Trace

SETTINGS = Settings(threads=1)
MIN_COSINE = {"f32": 0.999999, "f16": 0.99999, "q8_0": 0.999}  # of the encoder's output
SAMPLES = sorted((assets() / "samples").glob("*.wav"))
UNEVEN = ParaformerSize(EncoderSize(36, 3, 52, 2, kernel=4), 2, 44, 2, 2, 6, 77)  # no size suits a fast kernel


def file_of(directory: Path, path: Path, quantization: str = "f32", layout: str = "workbench") -> Path:
    [file] = writer.write(paraformer.plans(directory, layout), quantization, path)
    return file


def assert_same_stages(trace: Trace, reference: Trace) -> None:
    assert list(trace) == list(reference), "the same stages in the same order"
    for name in reference:
        values, expected_values = trace[name], reference[name]
        assert values.shape == expected_values.shape, name
        if values.dtype == np.float32 and values.size:
            assert cosine(values, expected_values) >= MIN_COSINE["f32"], name
        elif values.dtype != np.float32:
            np.testing.assert_array_equal(values, expected_values, err_msg=name)


@pytest.fixture(scope="module")
def demo() -> Iterator[Session]:
    with closing(pytorch.open_session(assets() / "demo-paraformer", "it", SETTINGS)) as session:
        yield session


@pytest.fixture(scope="module", params=tuple(MIN_COSINE))
def converted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Session]]:
    path = file_of(assets() / "demo-paraformer", tmp_path_factory.mktemp("demo") / "it.gguf", request.param)
    with closing(open_session(path, "it", SETTINGS)) as session:
        yield request.param, session


@pytest.fixture(scope="module")
def expected(demo: Session) -> dict[Path, Trace]:
    return {path: demo.trace(path) for path in SAMPLES}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_demo_model_transcribes_like_pytorch(
    converted: tuple[str, Session], expected: dict[Path, Trace], path: Path
) -> None:
    quantization, session = converted
    trace, reference = session.trace(path), expected[path]
    assert trace.meta["dtype"] == quantization
    if quantization == "f32":
        assert_same_stages(trace, reference)
    assert cosine(trace["encoder.output"], reference["encoder.output"]) >= MIN_COSINE[quantization]
    np.testing.assert_array_equal(trace["tokens"], reference["tokens"])
    assert str(trace["text"]) == str(reference["text"])


def test_options_have_the_same_effect_as_on_pytorch(converted: tuple[str, Session], demo: Session) -> None:
    quantization, session = converted
    if quantization != "f32":
        pytest.skip("the test of the demo model compares the smaller types")
    for options in ({"cmvn": "off"}, {"cif_residual": True}):
        trace, reference = (each.trace(SAMPLES[2], **options) for each in (session, demo))
        assert_same_stages(trace, reference)
    times = [
        [(t.start, t.end) for s in each.transcribe(SAMPLES[0]).segments for t in s.tokens] for each in (session, demo)
    ]
    assert len(times[0]) > 2
    np.testing.assert_allclose(times[0], times[1], atol=1e-6)


def test_cif_residual_option_changes_the_cif_weights(demo: Session, expected: dict[Path, Trace]) -> None:
    """The tests of each runtime compare its formula with a slow definition."""
    stage = "predictor.alphas"
    recordings_with_digits = [path for path in SAMPLES if "librivox" not in path.name]
    for path in recordings_with_digits[:3]:  # without digits CIF has no weight that could change
        alphas = demo.trace(path, stage, cif_residual=True)[stage]
        assert np.abs(alphas - expected[path][stage]).max() > 1e-3


@pytest.mark.parametrize("size", [ODD_PARAFORMER, UNEVEN], ids=["odd", "uneven"])
@pytest.mark.parametrize(
    "head",
    [
        {"predictor": "CifPredictorV2"},
        {"predictor": "CifPredictorV3"},
        {"predictor": "CifPredictorV3", "upsample_type": "cnn", "use_cif1_cnn": True},
    ],
    ids=["plain", "bicif", "convolution only"],
)
def test_every_size_and_predictor_head_equals_pytorch(
    tmp_path: Path, size: ParaformerSize, head: dict[str, Any]
) -> None:
    """The models have decoder layers without attention, shifted memories and odd widths."""
    directory = write_paraformer(tmp_path / "it", size, **head)
    recording = noise(3.0)
    with (
        closing(open_session(file_of(directory, tmp_path / "it.gguf"), "it", SETTINGS)) as session,
        closing(pytorch.open_session(directory, "it", SETTINGS)) as reference,
    ):
        for residual in (False, True):
            assert_same_stages(*(each.trace(recording, cif_residual=residual) for each in (session, reference)))
        tokens = [
            [(t.id, t.start, t.end) for s in each.transcribe(recording).segments for t in s.tokens]
            for each in (session, reference)
        ]
    assert tokens[0]
    np.testing.assert_allclose(tokens[0], tokens[1], atol=1e-6)


def test_upsampled_cif_head_equals_pytorch(tmp_path: Path) -> None:
    directory = write_paraformer(tmp_path / "it", ODD_PARAFORMER, predictor="CifPredictorV3")
    model = read_paraformer(directory)
    graph = ParaformerGraph(read_gguf(file_of(directory, tmp_path / "it.gguf")), model, 2)
    runner = pytorch.ParaformerRunner(model, torch.device("cpu"))
    features = np.random.default_rng(1).standard_normal((37, 560)).astype(np.float32)
    alphas, expected_alphas = (each.fine_alphas(each.decode(features, None).encoded, 9) for each in (graph, runner))
    assert alphas.shape == (111,) and alphas.sum() == pytest.approx(9, abs=1e-4)
    np.testing.assert_allclose(alphas, expected_alphas, atol=1e-5)


def test_seaco_checkpoint_without_a_whole_branch_is_converted_without_its_hotword_tensors(tmp_path: Path) -> None:
    directory = write_paraformer(tmp_path / "it", UNEVEN, predictor="CifPredictorV3")
    config = yaml.safe_load((directory / "config.yaml").read_text(encoding="utf-8"))
    (directory / "config.yaml").write_text(yaml.safe_dump({**config, "model": "SeacoParaformer"}), encoding="utf-8")
    tensors = torch.load(directory / "model.pt", weights_only=True)
    extra = {"bias_embed.weight": torch.ones(77, 36), "hotword_output_layer.bias": torch.ones(77)}
    torch.save({**tensors, **extra}, directory / "model.pt")
    path = file_of(directory, tmp_path / "it.gguf")
    assert not set(extra) & set(read_gguf(path).tensors)
    with (
        closing(open_session(path, "it", SETTINGS)) as session,
        closing(pytorch.open_session(directory, "it", SETTINGS)) as reference,
    ):
        assert_same_stages(*(each.trace(noise(1.0)) for each in (session, reference)))


def set_bias(directory: Path, value: float) -> Path:
    """Changes the checkpoint so that the weight of each frame is about sigmoid(value)."""
    tensors = torch.load(directory / "model.pt", weights_only=True)
    tensors["predictor.cif_output.weight"][:] = 0
    tensors["predictor.cif_output.bias"][:] = value
    torch.save(tensors, directory / "model.pt")
    return directory


@pytest.mark.parametrize(
    ("bias", "samples", "tokens"),
    [
        (-50, 16000, 0),
        (-50, 1, 0),
        (50, 1, 1),
        (50, 399, 1),
        (50, 1200, 1),
        (0, 1200, 0),
        (50, 3000, 3),
        (50, 16000, 17),
    ],
)
def test_zero_one_and_many_frames_and_tokens_equal_pytorch(
    tmp_path: Path, bias: float, samples: int, tokens: int
) -> None:
    """The tail of 0.45 fires no token by itself; a frame is 0.06 s long."""
    directory = set_bias(tiny_paraformer(tmp_path / "tiny"), bias)
    recording = (noise(1.0)[0][:samples], 16000)
    with (
        closing(open_session(file_of(directory, tmp_path / "it.gguf"), "it", SETTINGS)) as session,
        closing(pytorch.open_session(directory, "it", SETTINGS)) as reference,
    ):
        trace = session.trace(recording)
        assert_same_stages(trace, reference.trace(recording))
        assert len(trace["tokens"]) == len(trace["predictor.embeddings"]) == tokens
        assert ("logits" in trace) == (tokens > 0)
        assert session.transcribe(recording).text == reference.transcribe(recording).text


@pytest.mark.parametrize("wtype", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("predictor", ["CifPredictorV2", "CifPredictorV3"])
def test_files_from_the_funasr_export_script_equal_pytorch(tmp_path: Path, wtype: str, predictor: str) -> None:
    size = ParaformerSize(EncoderSize(64, 4, 96, 3), 4, 96, 2, 2, 11, 50)
    directory = write_paraformer(tmp_path / "it", size, predictor=predictor)
    path = funasr_paraformer(directory, tmp_path / "published.gguf", wtype)
    converted_path = file_of(directory, tmp_path / "converted.gguf", wtype, "funasr")
    recording = noise(3.0)
    with (
        closing(open_session(path, "it", SETTINGS)) as session,
        closing(open_session(converted_path, "it", SETTINGS)) as converted_session,
        closing(pytorch.open_session(directory, "it", SETTINGS)) as reference_session,
    ):
        reference = reference_session.trace(recording, cmvn="off")
        trace = session.trace(recording, cmvn="off")  # the script's file has another CMVN
        assert cosine(trace["encoder.output"], reference["encoder.output"]) >= MIN_COSINE[wtype]
        if wtype == "f32":
            assert_same_stages(trace, reference)
            assert_same_stages(converted_session.trace(recording), reference_session.trace(recording))
        assert [note for note in session.transcribe(recording).notes if "vocabulary" in note] == []


def test_each_missing_or_misshapen_tensor_is_refused_at_opening(tmp_path: Path) -> None:
    """A file with a missing or misshapen tensor must not open: ggml would end the process when it computes."""
    directory = write_paraformer(tmp_path / "it", UNEVEN, predictor="CifPredictorV3")
    file = read_gguf(file_of(directory, tmp_path / "it.gguf"))
    with unpacked(file) as folder:
        model = read_paraformer(folder, weights=file.path)
    tensors = file.tensors
    ParaformerGraph(file, model, 1).close()
    for name, info in tensors.items():
        if name.startswith("cmvn."):  # the file's own am.mvn is used instead
            continue
        file.tensors = MappingProxyType({key: each for key, each in tensors.items() if key != name})
        with pytest.raises(BadInput, match=f"it.gguf has no tensor {name}"):
            ParaformerGraph(file, model, 1)
        file.tensors = MappingProxyType({**tensors, name: replace(info, shape=(*info.shape[:-1], info.shape[-1] + 1))})
        with pytest.raises(BadInput, match=f"tensor {name} in it.gguf has the shape"):
            ParaformerGraph(file, model, 1)


@pytest.mark.parametrize("change", [lambda plan: plan.tensors.pop(-1), lambda plan: plan.tensors.pop(40)])
def test_file_without_a_tensor_raises_one_line_error(tmp_path: Path, change: Callable[[Any], Any]) -> None:
    plan, *_ = paraformer.plans(tiny_paraformer(tmp_path / "tiny"), "workbench")
    object.__setattr__(plan, "tensors", list(plan.tensors))
    name = change(plan).name
    [path] = writer.write([plan], "f32", tmp_path / "it.gguf")
    with pytest.raises(BadInput, match=f"^it.gguf has no tensor {name}; expected one of shape"):
        open_session(path, "it", SETTINGS)


@pytest.mark.slow
def test_published_width_matches_pytorch_on_20_seconds_of_speech(tmp_path: Path) -> None:
    """The weights are random; the encoder has 10 of the 50 published blocks."""
    size = ParaformerSize(EncoderSize(blocks=10), decoder_blocks=4, decoder_attending=4)
    directory = write_paraformer(tmp_path / "full", size, predictor="CifPredictorV3")
    samples = np.resize(np.concatenate([read(path).samples for path in SAMPLES]), 20 * 16000)
    with closing(pytorch.open_session(directory, "it", SETTINGS)) as session:
        reference = session.trace((samples, 16000), "encoder.output,predictor.alphas,logits,tokens")
        times = [(t.start, t.end) for s in session.transcribe((samples, 16000)).segments for t in s.tokens]
    for quantization in ("f32", "q8_0"):
        path = file_of(directory, tmp_path / "it.gguf", quantization)
        with closing(open_session(path, "it", SETTINGS)) as session:
            trace = session.trace((samples, 16000), "encoder.output,predictor.alphas,logits,tokens")
            assert cosine(trace["encoder.output"], reference["encoder.output"]) >= MIN_COSINE[quantization], (
                quantization
            )
            if quantization == "f32":
                assert_same_stages(trace, reference)
                transcript = session.transcribe((samples, 16000))
                np.testing.assert_allclose(
                    [(t.start, t.end) for s in transcript.segments for t in s.tokens], times, atol=1e-6
                )
        path.unlink()
