"""Fun-ASR-Nano on gguf against PyTorch's session of the checkpoint: one file, and FunASR's pair of files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.gguf_encoders import assert_traces_agree
from tests.support.gguf_files import funasr_nano_encoder
from tests.support.sound_files import white_noise
from tests.support.tiny_funasr_nano import tiny_funasr_nano
from workbench.conversion import funasr_nano, writer
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.families.speech_llm.funasr_nano import FunasrNanoOptions, prompt_ids, read_funasr_nano
from workbench.formats.gguf_file import read_gguf
from workbench.pipelines.recognition.speech_session import SpeechSession
from workbench.runtimes.gguf.files.language_file import language_config
from workbench.runtimes.gguf.files.unpacking import unpacked
from workbench.runtimes.gguf.funasr_nano import open_session
from workbench.runtimes.gguf.llama_cpp.language import open_language
from workbench.runtimes.gguf.llama_cpp.llama_tokenizer import LlamaTokenizer
from workbench.runtimes.pytorch import funasr_nano as pytorch
from workbench.session.protocols import Session
from workbench.trace.trace import Trace

SETTINGS = Settings(threads=1)
GENERATION = {"max_new_tokens": 12, "dither": 0.0}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_funasr_nano(tmp_path_factory.mktemp("nano") / "checkpoint")


@pytest.fixture(scope="module")
def reference(checkpoint: Path) -> Iterator[Session]:
    session = pytorch.open_session(checkpoint, "m", SETTINGS)
    yield session
    session.close()


@pytest.fixture(scope="module")
def session(checkpoint: Path) -> Iterator[Session]:
    [path] = writer.write(funasr_nano.plans(checkpoint, "workbench"), "f32", checkpoint.with_suffix(".gguf"))
    session = open_session(path, "m", SETTINGS)
    yield session
    session.close()


@pytest.fixture
def pair(checkpoint: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The encoder as FunASR's script exports it, and the language model's file in another folder."""
    (tmp_path / "llm").mkdir()
    encoder, language = writer.write(funasr_nano.plans(checkpoint, "funasr"), "f32", tmp_path / "llm" / "it.gguf")
    encoder.unlink()
    return funasr_nano_encoder(checkpoint, tmp_path / "encoder.gguf"), language


@pytest.mark.parametrize("seconds", [0.001, 0.025, 0.4, 3.0])
def test_traces_equal_those_of_pytorch(session: Session, reference: Session, seconds: float) -> None:
    recording = white_noise(seconds)
    assert_traces_agree(session.trace(recording, **GENERATION), reference.trace(recording, **GENERATION))


@pytest.mark.parametrize("options", [{}, {"hotwords": ("nine",), "language": "en"}, {"itn": False, "batch_size": 3}])
def test_transcripts_equal_those_of_pytorch(session: Session, reference: Session, options: dict[str, object]) -> None:
    recordings = [white_noise(seconds, seed) for seed, seconds in enumerate((0.9, 2.5, 1.4))]
    transcripts, expected = (
        each.transcribe_batch(recordings, **GENERATION, **options) for each in (session, reference)
    )
    assert [transcript.tokens for transcript in transcripts] == [transcript.tokens for transcript in expected]
    assert [transcript.text for transcript in transcripts] == [transcript.text for transcript in expected]


def test_funasr_encoder_and_language_files_give_the_stages_of_pytorch(
    pair: tuple[Path, Path], reference: Session
) -> None:
    encoder, language = pair
    pair_session = open_session(encoder, "m", Settings(threads=1, language_file=language))
    stages, expected = (each.trace(white_noise(1.7), "*", **GENERATION) for each in (pair_session, reference))
    assert_traces_agree(*(Trace(_without_text(trace), {}) for trace in (stages, expected)))
    pair_session.close()


def _without_text(trace: Trace) -> dict[str, np.ndarray]:
    """The stages without the generated text: the keys of the two files lack some stop tokens of the checkpoint."""
    return {stage: trace[stage] for stage in trace if stage != "text" and not stage.startswith("tokens")}


def test_language_file_next_to_the_encoder_file_is_found(pair: tuple[Path, Path]) -> None:
    encoder, language = pair
    with pytest.raises(BadInput, match="holds only the audio encoder"):
        open_session(encoder, "m", SETTINGS)
    language.rename(encoder.with_name(language.name))
    pair_session = open_session(encoder, "m", SETTINGS)
    assert pair_session.transcribe(white_noise(1.0), **GENERATION).tokens
    pair_session.close()


def test_note_of_the_language_model_is_in_the_transcript(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.runtimes.gguf.llama_cpp.llama.amx_fault", lambda: "the units fail")
    pair_session = open_session(pair[0], "m", Settings(threads=1, language_file=pair[1]))
    assert "the units fail" in pair_session.transcribe(white_noise(1.0), **GENERATION).notes
    pair_session.close()


def test_llama_cpp_and_the_converted_tokenizer_give_the_same_prompt_ids(pair: tuple[Path, Path]) -> None:
    """The tokenizer that is built from the keys of a llama.cpp file gives the ids of llama.cpp."""
    encoder, language = map(read_gguf, pair)
    with unpacked(encoder, language) as directory:
        model = read_funasr_nano(directory, weights=encoder.path)
    language_model = open_language(language, language_config(language), threads=1, vocabulary=True)
    tokenizer = LlamaTokenizer(language_model.model, language)
    options = FunasrNanoOptions(hotwords=("zwölf", "nine"), language="zh")
    ids = prompt_ids(model, options).tolist()
    place = ids.index(-1)
    for part in (ids[:place], ids[place + 1 :]):
        assert tokenizer.encode(tokenizer.decode(part, special=True)) == part
        assert tokenizer.decode(part, special=True) == model.tokenizer.decode(part, special=True)
    language_model.close()


def test_session_closed_during_generation_raises_an_error(checkpoint: Path, tmp_path: Path) -> None:
    [path] = writer.write(funasr_nano.plans(checkpoint, "workbench"), "f16", tmp_path / "it.gguf")
    closed_session: SpeechSession = open_session(path, "m", SETTINGS)
    pipeline = closed_session.recogniser
    stream = pipeline.recognise_stream([white_noise(1.0)[0]], FunasrNanoOptions())  # type: ignore[attr-defined]
    next(stream)
    closed_session.close()
    with pytest.raises(BadInput, match="closed"):
        list(stream)
    with pytest.raises(BadInput, match="closed"):
        closed_session.transcribe(white_noise(1.0))
    with pytest.raises(BadInput, match="closed"):
        pipeline.recognise(white_noise(1.0)[0], FunasrNanoOptions())


def test_weights_that_contradict_the_configuration_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    narrow_checkpoint = tiny_funasr_nano(tmp_path / "other", audio_adaptor_conf={"ffn_dim": 32})
    [plan] = funasr_nano.plans(narrow_checkpoint, "workbench")
    [configured_plan] = funasr_nano.plans(checkpoint, "workbench")
    plan.values.update(
        {key: value for key, value in configured_plan.values.items() if key.startswith("workbench.file")}
    )
    [path] = writer.write([plan], "f32", tmp_path / "it.gguf")
    with pytest.raises(BadInput, match=r"audio_adaptor\.linear1\.weight"):
        open_session(path, "m", SETTINGS)
