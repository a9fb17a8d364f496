"""SenseVoice on ggml against PyTorch on the same weights: every stage and type, and files in FunASR's layout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.reference.checkpoints import EncoderSize, SenseVoiceSize, write_sensevoice
from tests.support.gguf_encoders import cosine
from tests.support.gguf_files import funasr_sensevoice, random_cmvn
from tests.support.tiny_checkpoints import change_config, noise, tiny_sensevoice
from workbench.audio.read import read
from workbench.conversion import sensevoice, writer
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.formats.gguf_file import read_gguf
from workbench.registry.sources import assets
from workbench.runtimes.gguf.sensevoice import open_session
from workbench.runtimes.pytorch import sensevoice as pytorch
from workbench.session.protocols import Session
from workbench.trace.trace import Trace

SETTINGS = Settings(threads=2)
MIN_COSINE = {"f32": 0.999999, "f16": 0.99999, "q8_0": 0.999, "q4_0": 0.9}  # of the encoder's output
SAMPLES = sorted((assets() / "samples").glob("*.wav"))


@pytest.fixture(scope="module")
def demo() -> Iterator[Session]:
    with closing(pytorch.open_session(assets() / "demo-sensevoice", "it", SETTINGS)) as session:
        yield session


@pytest.fixture(scope="module", params=tuple(MIN_COSINE))
def converted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Session]]:
    plans = sensevoice.plans(assets() / "demo-sensevoice", "workbench")
    [path] = writer.write(plans, request.param, tmp_path_factory.mktemp("demo") / "it.gguf")
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
    assert list(trace) == list(reference), "the same stages in the same order"
    assert trace.meta["dtype"] == quantization
    assert {name: trace[name].shape for name in trace} == {name: reference[name].shape for name in reference}
    assert cosine(trace["encoder.output"], reference["encoder.output"]) >= MIN_COSINE[quantization]
    if quantization == "f32":
        stages = [name for name in trace if name.startswith(("encoder.", "logits", "ctc."))]
        assert min(cosine(trace[name], reference[name]) for name in stages) >= MIN_COSINE["f32"]
    if quantization != "q4_0":
        np.testing.assert_array_equal(trace["tokens"], reference["tokens"])
        assert str(trace["text"]) == str(reference["text"])


def test_options_have_the_same_effect_as_on_pytorch(converted: tuple[str, Session], demo: Session) -> None:
    quantization, session = converted
    if quantization != "f32":
        pytest.skip("the test of the demo model compares the smaller types")
    for options in ({"language": "en"}, {"itn": True}, {"ban_emo_unk": True}, {"cmvn": "off"}):
        trace, reference = (each.trace(SAMPLES[0], "logits,tokens", **options) for each in (session, demo))
        np.testing.assert_allclose(trace["logits"], reference["logits"], atol=2e-3, err_msg=str(options))
    times = [
        [(t.start, t.end) for s in each.transcribe(SAMPLES[0]).segments for t in s.tokens] for each in (session, demo)
    ]
    assert times[0] == times[1]


@pytest.mark.parametrize("samples", [1, 399, 400, 1200, 16000])
def test_very_short_recordings_equal_pytorch(tmp_path: Path, samples: int) -> None:
    directory = tiny_sensevoice(tmp_path / "tiny")
    [path] = writer.write(sensevoice.plans(directory, "workbench"), "f32", tmp_path / "it.gguf")
    recording = (noise(1.0)[0][:samples], 16000)
    with (
        closing(open_session(path, "it", SETTINGS)) as session,
        closing(pytorch.open_session(directory, "it", SETTINGS)) as reference_session,
    ):
        trace, reference = (
            session.trace(recording, "encoder.*,logits"),
            reference_session.trace(recording, "encoder.*,logits"),
        )
        for name in reference:
            np.testing.assert_allclose(trace[name], reference[name], atol=1e-4, err_msg=name)


@pytest.mark.parametrize("wtype", ["f32", "f16", "q8_0"])
def test_files_from_the_funasr_export_script_match_pytorch(tmp_path: Path, wtype: str) -> None:
    """The script's f16 files hold the query embedding in f16 too."""
    directory, path = tiny_sensevoice(tmp_path / "tiny"), tmp_path / "published.gguf"
    funasr_sensevoice(directory, path, wtype, cmvn=random_cmvn(560))
    recording = noise(2.0)
    with (
        closing(open_session(path, "it", SETTINGS)) as session,
        closing(pytorch.open_session(directory, "it", SETTINGS)) as reference_session,
    ):
        output = session.trace(recording, "encoder.output", cmvn="off")["encoder.output"]
        reference = reference_session.trace(recording, "encoder.output", cmvn="off")["encoder.output"]
        assert cosine(output, reference) >= MIN_COSINE[wtype]


def test_unusable_cmvn_adds_a_note_to_the_transcript(tmp_path: Path) -> None:
    directory, path = tiny_sensevoice(tmp_path / "tiny"), tmp_path / "published.gguf"
    funasr_sensevoice(directory, path, "f32", cmvn=random_cmvn(560))
    with closing(open_session(path, "it", SETTINGS)) as session:
        notes = session.transcribe(noise(1.0)).notes
    assert any("no usable CMVN" in note for note in notes), notes


def test_missing_tensor_raises_an_error_at_opening(tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "tiny")
    plan, *_ = sensevoice.plans(directory, "workbench")
    name = "encoder.tp_encoders.0.feed_forward.w_2.weight"
    remaining = [tensor for tensor in plan.tensors if tensor.name != name]
    object.__setattr__(plan, "tensors", remaining)
    [path] = writer.write([plan], "f32", tmp_path / "it.gguf")
    assert name not in read_gguf(path).tensors
    with pytest.raises(BadInput, match=f"no tensor {name}"):
        open_session(path, "it", SETTINGS)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_published_width_matches_pytorch_on_44_seconds_of_speech(tmp_path: Path) -> None:
    """The weights are random; the encoder has 14 of the 70 published blocks."""
    directory = write_sensevoice(tmp_path / "full", SenseVoiceSize(EncoderSize(blocks=10), tp_blocks=4))
    samples = np.resize(np.concatenate([read(path).samples for path in SAMPLES]), 44 * 16000)
    stages = "encoder.output,tokens"
    with closing(pytorch.open_session(directory, "it", SETTINGS)) as session:
        reference = session.trace((samples, 16000), stages)
    for quantization in ("f32", "f16", "q8_0"):
        [path] = writer.write(sensevoice.plans(directory, "workbench"), quantization, tmp_path / "it.gguf")
        with closing(open_session(path, "it", SETTINGS)) as session:
            trace = session.trace((samples, 16000), stages)
        path.unlink()
        output, expected_output = trace["encoder.output"], reference["encoder.output"]
        assert cosine(output, expected_output) >= MIN_COSINE[quantization], quantization
        if quantization == "f32":
            assert np.abs(output - expected_output).max() <= 2e-4
            np.testing.assert_array_equal(trace["tokens"], reference["tokens"])


def test_encoder_without_second_stage_keeps_the_norm_of_that_stage(tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "it")
    change_config(directory, lambda config: config["encoder_conf"].update(tp_blocks=0))
    tensors = torch.load(directory / "model.pt", weights_only=True)
    tensors_without_stage = {name: value for name, value in tensors.items() if "tp_encoders" not in name}
    torch.save(tensors_without_stage, directory / "model.pt")
    [path] = writer.write(sensevoice.plans(directory, "workbench"), "f32", tmp_path / "it.gguf")
    recording = noise(2.0)
    with closing(pytorch.open_session(directory, "it", SETTINGS)) as session:
        expected = session.trace(recording)
    with closing(open_session(path, "it", SETTINGS)) as session:
        trace = session.trace(recording)
    normed = torch.from_numpy(expected["encoder.after_norm"])
    weight, bias = (tensors_without_stage[f"encoder.tp_norm.{name}"] for name in ("weight", "bias"))
    output = torch.nn.functional.layer_norm(normed, normed.shape[-1:], weight, bias, 1e-5)
    np.testing.assert_allclose(expected["encoder.output"], output, atol=1e-5)
    assert cosine(trace["encoder.output"], expected["encoder.output"]) > MIN_COSINE["f32"]
    assert np.array_equal(trace["tokens"], expected["tokens"])
