"""FireRedASR-LLM on gguf against PyTorch's session of the checkpoint: both length rules, any recording length."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.gguf_encoders import assert_traces_agree
from tests.support.sound_files import white_noise
from tests.support.tiny_fireredasr import tiny_fireredasr
from workbench.conversion import fireredasr, writer
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.runtimes.gguf.fireredasr import open_session, read_arguments
from workbench.runtimes.pytorch import fireredasr as pytorch
from workbench.session.protocols import Session

SETTINGS = Settings(threads=1)
OPTIONS: dict[str, Any] = {"max_new_tokens": 10, "dither": 0.0}


def converted_file(checkpoint: Path, path: Path, quantization: str = "f32") -> Path:
    [path] = writer.write(fireredasr.plans(checkpoint, "workbench"), quantization, path)
    return path


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_fireredasr(tmp_path_factory.mktemp("firered"))


@pytest.fixture(scope="module")
def reference(checkpoint: Path) -> Iterator[Session]:
    session = pytorch.open_session(checkpoint, "m", SETTINGS)
    yield session
    session.close()


@pytest.fixture(scope="module")
def session(checkpoint: Path) -> Iterator[Session]:
    session = open_session(converted_file(checkpoint, checkpoint / "it.gguf"), "m", SETTINGS)
    yield session
    session.close()


@pytest.mark.parametrize("rule", ["release", "head"])
@pytest.mark.parametrize("seconds", [0.025, 0.06, 0.4, 6.0])
def test_traces_equal_those_of_pytorch(session: Session, reference: Session, seconds: float, rule: str) -> None:
    trace, expected = (each.trace(white_noise(seconds), length_rule=rule, **OPTIONS) for each in (session, reference))
    assert_traces_agree(trace, expected)


@pytest.mark.parametrize("options", [{}, {"batch_size": 3}, {"batch_size": 3, "length_rule": "head"}])
def test_transcripts_equal_those_of_pytorch(session: Session, reference: Session, options: dict[str, object]) -> None:
    recordings = [white_noise(seconds, seed) for seed, seconds in enumerate((0.9, 2.5, 0.05))]
    transcripts, expected = (each.transcribe_batch(recordings, **OPTIONS, **options) for each in (session, reference))
    assert [transcript.tokens for transcript in transcripts] == [transcript.tokens for transcript in expected]
    assert [transcript.text for transcript in transcripts] == [transcript.text for transcript in expected]


def test_recording_beyond_the_position_table_raises_one_line_error(tmp_path: Path) -> None:
    checkpoint = tiny_fireredasr(tmp_path, pe_maxlen=50)
    short_session = open_session(converted_file(checkpoint, tmp_path / "it.gguf", "f16"), "m", SETTINGS)
    with pytest.raises(BadInput, match="2 seconds that the positions"):
        short_session.trace(white_noise(2.5), **OPTIONS)
    assert short_session.transcribe(white_noise(1.9), **OPTIONS).audio_seconds == pytest.approx(1.9)
    short_session.close()


def test_dimensions_that_contradict_the_tensors_are_refused_at_opening(checkpoint: Path, tmp_path: Path) -> None:
    [plan] = fireredasr.plans(checkpoint, "workbench")
    arguments = json.loads(str(plan.values["workbench.arguments"]))
    arguments["encoder"]["kernel_size"] = 7
    plan.values["workbench.arguments"] = json.dumps(arguments)
    [path] = writer.write([plan], "f32", tmp_path / "it.gguf")
    with pytest.raises(BadInput, match=r"depthwise_conv\.weight.*expected \(7, 32\)"):
        open_session(path, "m", SETTINGS)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"model": {}}', '{"model": {}, "encoder": []}'])
def test_unreadable_model_arguments_raise_one_line_error(text: str) -> None:
    file: Any = SimpleNamespace(name="it.gguf", text=lambda key: text)
    with pytest.raises(BadInput, match=r"workbench\.arguments in it\.gguf"):
        read_arguments(file)
