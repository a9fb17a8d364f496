"""FSMN-VAD on ggml against a numpy definition, PyTorch, and the recorded result of the published weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from tests.runtimes.pytorch.test_fsmn_vad import SMALL, literal, pair, random_weights
from tests.runtimes.pytorch.test_fsmn_vad_published import milliseconds
from tests.support.gguf_files import funasr_vad
from tests.support.shared_data import shared
from tests.support.tiny_checkpoints import noise, tiny_sensevoice
from workbench.audio.read import read
from workbench.conversion import fsmn_vad, sensevoice, writer
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.families.voice_activity.fsmn_vad import FsmnConfig
from workbench.formats.gguf_file import read_gguf
from workbench.pipelines.detection import fsmn_vad as pipeline
from workbench.runtimes.gguf.fsmn_vad import FsmnGraph, open_fsmn_vad, open_session
from workbench.runtimes.pytorch.fsmn_vad import open_fsmn_vad as open_on_pytorch

SOUND = noise(3.0)[0]
TOLERANCE = {"f32": 1e-5, "f16": 2e-3, "q8_0": 5e-2}  # of a probability


def file_of(directory: Path, path: Path, quantization: str = "f32", layout: str = "workbench") -> Path:
    [file] = writer.write(fsmn_vad.plans(directory, layout), quantization, path)
    return file


def vad_file(config: FsmnConfig, folder: Path) -> Path:
    return file_of(pair(folder / "vad", random_weights(config), config=config), folder / "vad.gguf")


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        replace(SMALL, lstride=2),
        replace(SMALL, lorder=1),
        replace(SMALL, linear_dim=16, proj_dim=32, fsmn_layers=1, output_dim=17),
    ],
    ids=["small", "strided", "without memory", "other sizes"],
)
def test_fsmn_network_equals_its_numpy_definition(tmp_path: Path, config: FsmnConfig) -> None:
    network = FsmnGraph(read_gguf(vad_file(config, tmp_path)), config, 1)
    features = np.random.default_rng(1).standard_normal((30, 400)).astype(np.float32)
    expected = literal(features, random_weights(config), config)
    output, _ = network.score(features, network.start())
    assert output.dtype == np.float32 and network.classes == config.output_dim
    np.testing.assert_allclose(output, expected, atol=1e-5)

    past, parts = network.start(), []
    for part in np.split(features, [1, 3, 20]):
        scores, past = network.score(part, past)
        parts.append(scores)
    np.testing.assert_allclose(np.concatenate(parts), expected, atol=1e-5)


def test_scores_do_not_depend_on_the_block_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    detector, _ = open_fsmn_vad(vad_file(SMALL, tmp_path), 1)
    expected = detector.scores(SOUND)
    for size in (1, 7, 100):
        monkeypatch.setattr(pipeline, "_BLOCK_FRAMES", size)
        np.testing.assert_allclose(detector.scores(SOUND), expected, atol=1e-5)


def test_very_short_recordings_have_no_speech_spans(tmp_path: Path) -> None:
    detector, _ = open_fsmn_vad(vad_file(SMALL, tmp_path), 1)
    for samples in (0, 1, 399, 400, 1000):
        silence = np.zeros(samples, dtype=np.float32)
        assert detector.spans(silence) == []
        assert len(detector.scores(silence)) == (0 if samples == 0 else 1 + max(0, samples - 400) // 160)


def test_file_from_the_funasr_export_script_gives_the_scores_of_pytorch(tmp_path: Path) -> None:
    """The detector takes the dimensions from the keys of the file and CMVN from its tensors."""
    encoder = {**vars(SMALL), "lorder": 20}
    published_detector, _ = open_fsmn_vad(funasr_vad(tmp_path / "published.gguf", encoder), 1)
    assert published_detector.network.classes == 5 and len(published_detector.scores(SOUND)) == 298
    directory = pair(tmp_path / "vad", random_weights(), config=SMALL)
    expected = open_on_pytorch(directory).scores(SOUND)
    for layout in ("workbench", "funasr"):
        detector, notes = open_fsmn_vad(file_of(directory, tmp_path / "it.gguf", layout=layout), 1)
        np.testing.assert_allclose(detector.scores(SOUND), expected, atol=1e-5)
        assert notes == ()


def test_each_missing_or_misshapen_tensor_is_refused_at_opening(tmp_path: Path) -> None:
    file = read_gguf(vad_file(SMALL, tmp_path))
    tensors = file.tensors
    for name, info in tensors.items():
        if name.startswith("cmvn."):
            continue
        file.tensors = MappingProxyType({key: each for key, each in tensors.items() if key != name})
        with pytest.raises(BadInput, match=f"vad.gguf has no tensor {name}"):
            FsmnGraph(file, SMALL, 1)
        file.tensors = MappingProxyType({**tensors, name: replace(info, shape=(*info.shape[:-1], info.shape[-1] + 1))})
        with pytest.raises(BadInput, match=f"tensor {name} in vad.gguf has the shape"):
            FsmnGraph(file, SMALL, 1)


def test_file_of_another_family_raises_one_line_error(tmp_path: Path) -> None:
    plans = sensevoice.plans(tiny_sensevoice(tmp_path / "tiny"), "workbench")
    [path] = writer.write(plans, "f32", tmp_path / "it.gguf")
    with pytest.raises(BadInput, match="is for model 'SenseVoiceSmall'; expected FsmnVADStreaming"):
        open_fsmn_vad(path)


def test_session_returns_the_scores_and_spans_of_the_detector(tmp_path: Path) -> None:
    path = vad_file(SMALL, tmp_path)
    session = open_session(path, "it", Settings(threads=1))
    trace = session.trace((SOUND, 16000))
    assert list(trace) == ["frontend.fbank", "frontend.lfr", "frontend.features", "vad.scores", "vad.spans"]
    assert (trace.meta["runtime"], trace.meta["dtype"]) == ("gguf", "f32")
    np.testing.assert_array_equal(trace["vad.scores"], open_fsmn_vad(path, 1)[0].scores(SOUND))
    transcript = session.transcribe((SOUND, 16000))
    assert [(s.start, s.end) for s in transcript.segments] == [tuple(each) for each in trace["vad.spans"].tolist()]
    session.close()
    with pytest.raises(BadInput, match=r"^the session of it is closed; open it again$"):
        session.transcribe((SOUND, 16000))


@pytest.mark.parametrize("quantization", tuple(TOLERANCE))
def test_published_weights_give_the_recorded_spans(tmp_path: Path, quantization: str) -> None:
    """The runtime of the published model gives 770 to 5980 ms for this file."""
    path = file_of(shared("fsmn-vad"), tmp_path / "it.gguf", quantization)
    (detector, _), reference = open_fsmn_vad(path, 1), open_on_pytorch(shared("fsmn-vad"))
    samples = read(shared("speech/funasr_sample.wav")).samples
    assert np.abs(detector.scores(samples) - reference.scores(samples)).max() <= TOLERANCE[quantization]
    assert milliseconds(detector, samples) == milliseconds(reference, samples) == [(770, 5980)]
    if quantization == "f32":
        minute = read(shared("fsmn-vad/vad_example.wav")).samples
        for options in ({}, {"end_silence_ms": 800}):
            assert milliseconds(detector, minute, **options) == milliseconds(reference, minute, **options)
