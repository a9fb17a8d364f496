"""Fun-ASR-Nano's CTC branch on gguf: its definition, the beam search of PyTorch, and files without the branch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.nano_ctc import branch_by_definition, lively_checkpoint
from tests.support.tiny_checkpoints import noise
from tests.support.tiny_funasr_nano import CTC_OUTPUTS, add_ctc_branch, tiny_funasr_nano
from workbench.conversion import funasr_nano, writer
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.formats.gguf_file import read_gguf
from workbench.pipelines.recognition.speech_session import SpeechSession
from workbench.runtimes.gguf.funasr_nano import open_session
from workbench.runtimes.pytorch import funasr_nano as pytorch
from workbench.trace.times import row_times

AUDIO = noise(2.0)
SETTINGS = Settings(threads=1)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lively_checkpoint(tmp_path_factory.mktemp("nano") / "nano", AUDIO)


@pytest.fixture(scope="module")
def file(directory: Path) -> Path:
    [plan] = funasr_nano.plans(directory, "workbench")
    assert not plan.notes
    [path] = writer.write([plan], "f32", directory.with_suffix(".gguf"))
    return path


@pytest.fixture(scope="module")
def session(file: Path) -> Iterator[SpeechSession]:
    session = open_session(file, "nano", SETTINGS)
    yield session
    session.close()


@pytest.fixture(scope="module")
def reference(directory: Path) -> Iterator[SpeechSession]:
    session = pytorch.open_session(directory, "nano", SETTINGS)
    yield session
    session.close()


def test_ctc_logits_equal_the_definition_of_the_branch(directory: Path, session: SpeechSession) -> None:
    trace = session.trace(AUDIO, "*", beam_size=8)
    tensors = {name: value.double() for name, value in torch.load(directory / "model.pt", weights_only=True).items()}
    expected = branch_by_definition(torch.from_numpy(np.array(trace["encoder.output"])).double(), tensors).numpy()
    assert expected.shape == (len(trace["encoder.output"]), CTC_OUTPUTS)
    np.testing.assert_allclose(trace["ctc.logits"], expected, atol=2e-4 * np.abs(expected).max())


def test_ctc_stages_equal_those_of_pytorch(session: SpeechSession, reference: SpeechSession) -> None:
    for stages in ("*", "ctc.layers.1.*"):
        trace, expected = (each.trace(AUDIO, stages, beam_size=8) for each in (session, reference))
        assert list(trace) == list(expected) and len(expected) > 8
        for stage in expected:
            if expected[stage].dtype.kind != "f":
                np.testing.assert_array_equal(trace[stage], expected[stage])
            else:
                tolerance = 1e-3 * np.abs(expected[stage]).max()
                np.testing.assert_allclose(trace[stage], expected[stage], atol=tolerance, err_msg=stage)
            assert row_times(trace.meta, stage) == row_times(expected.meta, stage)
    assert row_times(trace.meta, "ctc.logits") == (0.0, 0.06)


@pytest.mark.parametrize("recombination", ["sum", "max"])
def test_ctc_beam_search_gives_the_hypotheses_of_pytorch(
    session: SpeechSession, reference: SpeechSession, recombination: str, tmp_path: Path
) -> None:
    (tmp_path / "phrases.txt").write_text("a ▁the\n你\n")
    options = {"beam_size": 64, "nbest": 5, "recombination": recombination, "boost": str(tmp_path / "phrases.txt")}
    transcript, expected = (each.transcribe(AUDIO, **options) for each in (session, reference))
    assert transcript.text == expected.text and len(transcript.hypotheses) == 5
    for hypothesis, expected_hypothesis in zip(transcript.hypotheses, expected.hypotheses, strict=True):
        assert (hypothesis.text, hypothesis.tokens) == (expected_hypothesis.text, expected_hypothesis.tokens)
        assert hypothesis.score == pytest.approx(expected_hypothesis.score, abs=1e-2)


def test_language_model_decodes_when_no_ctc_options_are_set(session: SpeechSession, reference: SpeechSession) -> None:
    options = {"max_new_tokens": 8, "dither": 0.0}
    assert session.transcribe(AUDIO, **options).tokens == reference.transcribe(AUDIO, **options).tokens


def test_checkpoint_without_ctc_tokens_omits_the_branch_with_a_note(tmp_path: Path) -> None:
    add_ctc_branch(tiny_funasr_nano(tmp_path / "nano")).unlink()
    [plan] = funasr_nano.plans(tmp_path / "nano", "workbench")
    assert plan.notes == [
        "the CTC branch is left out: nano has no multilingual.tiktoken, which lists the tokens of its CTC branch; "
        "put that file beside model.pt"
    ]
    [path] = writer.write([plan], "f32", tmp_path / "it.gguf")
    assert not any(name.startswith("ctc") for name in read_gguf(path).tensors)
    session = open_session(path, "nano", SETTINGS)
    with pytest.raises(BadInput, match=r"no CTC branch to search: it\.gguf holds none of its tensors; convert"):
        session.transcribe(AUDIO, beam_size=4)
    session.close()


def test_incomplete_ctc_branch_is_omitted_with_a_note(tmp_path: Path) -> None:
    directory = tiny_funasr_nano(tmp_path / "nano")
    add_ctc_branch(directory)
    weights = torch.load(directory / "model.pt", weights_only=True)
    weights["ctc.ctc_lo.bias"] = weights["ctc.ctc_lo.bias"][:-1]
    torch.save(weights, directory / "model.pt")
    [plan] = funasr_nano.plans(directory, "workbench")
    assert len(plan.notes) == 1 and plan.notes[0].startswith("the CTC branch is left out: nano/model.pt")
    assert not any(tensor.name.startswith("ctc") for tensor in plan.tensors)


def test_funasr_layout_contains_no_ctc_branch(directory: Path) -> None:
    assert not any(t.name.startswith("ctc") for plan in funasr_nano.plans(directory, "funasr") for t in plan.tensors)
