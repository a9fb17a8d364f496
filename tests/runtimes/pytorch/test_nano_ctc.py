"""Fun-ASR-Nano's CTC branch: the network against a reference, and beam search over its output."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.support.nano_ctc import branch_by_definition, lively_checkpoint
from tests.support.tiny_checkpoints import WIDTH, noise
from tests.support.tiny_funasr_nano import CTC_OUTPUTS, CTC_TOKENS, add_ctc_branch, tiny_funasr_nano
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.pipelines.recognition.speech_session import SpeechSession
from workbench.runtimes.pytorch.funasr_nano import open_session

AUDIO = noise(2.0)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose CTC branch has different best tokens in most frames."""
    return lively_checkpoint(tmp_path_factory.mktemp("nano") / "nano", AUDIO)


@pytest.fixture(scope="module")
def session(directory: Path) -> Iterator[SpeechSession]:
    session = open_session(directory, "nano", Settings())
    yield session
    session.close()


def test_ctc_logits_equal_the_reference_implementation(directory: Path, session: SpeechSession) -> None:
    trace = session.trace(AUDIO, "*", beam_size=8)
    tensors = {name: value.double() for name, value in torch.load(directory / "model.pt", weights_only=True).items()}
    encoded = torch.from_numpy(np.array(trace["encoder.output"])).double()
    expected = branch_by_definition(encoded, tensors).numpy()
    assert encoded.shape[1] == WIDTH and expected.shape == (len(encoded), CTC_OUTPUTS)
    np.testing.assert_allclose(trace["ctc.logits"], expected, atol=2e-4 * np.abs(expected).max())
    transcript = session.transcribe(AUDIO, beam_size=8)
    assert str(trace["text"]) == transcript.text and tuple(trace["tokens"]) == transcript.tokens


def test_acoustic_scores_equal_ctc_loss_with_special_tokens_as_blanks(session: SpeechSession) -> None:
    logits = torch.from_numpy(np.array(session.trace(AUDIO, "ctc.logits", beam_size=8)["ctc.logits"])).double()
    hypotheses = session.transcribe(AUDIO, beam_size=200, nbest=5).hypotheses
    assert len(hypotheses) == 5 and len(hypotheses[0].tokens) > 3
    probabilities = logits.softmax(1)
    text_probabilities = probabilities[:, : len(CTC_TOKENS)]
    folded = torch.cat([text_probabilities, probabilities[:, len(CTC_TOKENS) :].sum(1, keepdim=True)], 1).log()
    for hypothesis in hypotheses:
        ids = torch.tensor([token.id for token in hypothesis.tokens])
        lengths = torch.tensor([len(folded)]), torch.tensor([len(ids)])
        exact = -F.ctc_loss(folded[:, None], ids[None], *lengths, blank=len(CTC_TOKENS), reduction="sum")
        assert float(exact) - 0.05 < hypothesis.acoustic < float(exact) + 1e-3, "a beam misses a little of the sum"
        assert hypothesis.text == b"".join(CTC_TOKENS[number] for number in ids).decode(errors="replace").strip()


def test_token_times_are_multiples_of_the_frame_and_tokens_join_to_the_text(session: SpeechSession) -> None:
    transcript = session.transcribe(AUDIO, beam_size=8)
    tokens = [token for segment in transcript.segments for token in segment.tokens]
    assert tokens and "".join(token.text for token in tokens).strip() == transcript.text
    starts = [token.start for token in tokens]
    assert starts == sorted(starts) and all(0 <= token.start < token.end <= 2.0 for token in tokens)
    assert all(round(start / 0.06, 6).is_integer() for start in starts)


def test_lexicon_restricts_the_words_of_the_beam_search(session: SpeechSession, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("the\t▁the\nA\ta\nB\t▁b\nyou\t你\nhao\t<E5> <A5><BD>\nsee\tc\nend\t.\n")
    transcript = session.transcribe(AUDIO, lexicon=str(tmp_path / "words.txt"), word_bonus=0.5)
    assert transcript.text == " ".join(word.text for word in transcript.hypotheses[0].words or ())
    assert {*transcript.text.split()} <= {"the", "A", "B", "you", "hao", "see", "end"} and transcript.text


def test_language_model_decodes_unless_a_beam_size_is_set(
    directory: Path, session: SpeechSession, tmp_path: Path
) -> None:
    plain = open_session(tiny_funasr_nano(tmp_path / "plain"), "plain", Settings())
    brief = {"max_new_tokens": 20}
    assert session.transcribe(AUDIO, **brief).tokens == plain.transcribe(AUDIO, **brief).tokens
    with pytest.raises(BadInput, match=r"no CTC branch to search: plain/config\.yaml names no ctc_decoder"):
        plain.transcribe(AUDIO, beam_size=4)


def test_incomplete_ctc_branch_raises_an_error_with_the_missing_part(tmp_path: Path) -> None:
    tokens = add_ctc_branch(tiny_funasr_nano(tmp_path / "m"))
    weights = torch.load(tmp_path / "m" / "model.pt", weights_only=True)
    weights.pop("ctc.ctc_lo.bias")
    torch.save(weights, tmp_path / "m" / "model.pt")
    with pytest.raises(BadInput, match=r"branch to search: m/model\.pt lacks tensor ctc\.ctc_lo\.bias"):
        open_session(tmp_path / "m", "m", Settings()).transcribe(AUDIO, beam_size=4)
    tokens.unlink()
    with pytest.raises(BadInput, match=r"m has no multilingual\.tiktoken, which lists the tokens of its CTC branch"):
        open_session(tmp_path / "m", "m", Settings()).transcribe(AUDIO, beam_size=4)
