"""SenseVoice on PyTorch gives what the original package gives, from the same checkpoint directory.

Random weights in the published format, real speech, no dither. The full-size model takes a minute and 4 GB. With
`-rP --log-level=INFO` pytest prints the figures seen.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from tests.reference.checkpoints import SMALL_SENSEVOICE, EncoderSize, SenseVoiceSize, write_sensevoice
from tests.reference.original import Original, OriginalResult, require, torch_threads
from tests.reference.speech import RECORDINGS, cosines, recording, speech
from workbench.decoding.ctc import collapse
from workbench.families.sanm.sensevoice import QUERY_FRAMES, SenseVoiceOptions, is_tag, read_sensevoice
from workbench.families.vocabularies.funasr import CONTROL_PIECES
from workbench.pipelines.recognition.sensevoice import SenseVoicePipeline
from workbench.runtimes.pytorch.checkpoints.weights import read_state_dict
from workbench.runtimes.pytorch.sensevoice import SenseVoiceRunner, open_sensevoice
from workbench.trace.trace import StageFilter

pytestmark = pytest.mark.reference

COSINE = 0.999999
VARIANTS = [
    {"cmvn": cmvn, "language": language, "itn": itn}
    for cmvn in ("checkpoint", "off")
    for language in ("auto", "zh", "en", "yue")
    for itn in (False, True)
]
SMALL = [
    pytest.param(SMALL_SENSEVOICE, id="small"),
    pytest.param(SenseVoiceSize(EncoderSize(48, 2, 80, 2, kernel=7, shift=2), 1, 500), id="shifted"),
    pytest.param(SenseVoiceSize(EncoderSize(45, 3, 81, 2, kernel=6, shift=3), 0, 500), id="one-stage"),
]
FULL = pytest.param(SenseVoiceSize(), id="full", marks=pytest.mark.slow)

LOG = logging.getLogger(__name__)


@dataclass
class Pair:
    """The same checkpoint in both programs."""

    original: Original
    pipeline: SenseVoicePipeline

    def compare(self, samples: np.ndarray, **options: Any) -> OriginalResult:
        """Asserts that both give the same outputs for the samples; returns the original's result."""
        chosen = SenseVoiceOptions(**options)
        result = self.original.transcribe(
            samples,
            ("encoder", "ctc.ctc_lo"),
            cmvn=chosen.cmvn != "off",
            language=chosen.language,
            use_itn=chosen.itn,
        )
        trace = self.pipeline.trace(samples, chosen, StageFilter("frontend.features,encoder.output,logits,tokens,text"))
        cosine, worst = cosines(trace["encoder.output"], result.encoded)
        logits = result.parts["ctc.ctc_lo"][0].numpy()
        LOG.info(
            "%d frames: encoder cosine %.9f, of the worst frame %.9f; logits differ by at most %.2e",
            *(len(logits), cosine, worst, np.abs(trace["logits"] - logits).max()),
        )
        assert min(cosine, worst) >= COSINE
        ids = [token.id for token in collapse(logits.argmax(axis=1))]
        assert trace["tokens"].tolist() == ids
        assert self.original.tokenizer.decode(ids) == result.result["text"]
        assert str(trace["text"]) == self.original.tokenizer.decode(self._visible(ids)).strip()
        assert not np.abs(trace["logits"].argmax(axis=1) - logits.argmax(axis=1)).any()
        return result

    def _visible(self, ids: list[int]) -> list[int]:
        return [number for number in ids if not is_tag(self.pipeline.model.vocabulary.pieces[number])]


@pytest.fixture(scope="module", params=[*SMALL, FULL])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    require()
    with torch_threads():
        directory = write_sensevoice(tmp_path_factory.mktemp("sensevoice") / "model", request.param)
        original = Original(directory)
        yield Pair(original, open_sensevoice(read_sensevoice(directory), torch.device("cpu")))
        original.close()
        shutil.rmtree(directory)


def test_checkpoint_tensors_equal_those_of_the_original_model(pair: Pair) -> None:
    expected = pair.original.model.state_dict()
    file = read_state_dict(pair.pipeline.model.checkpoint.weights)
    assert {name: value.shape for name, value in file.items()} == {
        name: value.shape for name, value in expected.items()
    }
    assert all(torch.equal(file[name], value) for name, value in expected.items())
    if pair.pipeline.model.encoder.layers == 70:
        assert len(file) == 917 and sum(value.numel() for value in file.values()) == 233_999_167


@pytest.mark.parametrize("seconds", [1, 6, 30, 60])
def test_same_output_for_every_length(pair: Pair, seconds: float) -> None:
    result = pair.compare(speech(seconds))
    best = result.parts["ctc.ctc_lo"][0].argmax(dim=-1)
    assert len(best.unique()) >= 5 + min(seconds, 30) / 4  # the random model's output varies


@pytest.mark.parametrize("name", RECORDINGS)
def test_same_output_for_every_recording(pair: Pair, name: str) -> None:
    pair.compare(recording(name))


@pytest.mark.parametrize("options", VARIANTS, ids=lambda options: "-".join(map(str, options.values())))
def test_same_output_for_every_option(pair: Pair, options: dict[str, Any]) -> None:
    pair.compare(speech(6), **options)


def test_output_with_unknown_emotion_banned_equals_the_original(pair: Pair) -> None:
    """The original bans a fixed id, so only a vocabulary of the published size has it."""
    unknown = pair.pipeline.unknown_emotion
    if unknown != 25009:
        pytest.skip("needs the published vocabulary size")
    samples = speech(6)
    assert isinstance(pair.pipeline.network, SenseVoiceRunner)
    head = pair.pipeline.network.network.ctc.ctc_lo
    original_head = pair.original.model.ctc.ctc_lo
    bias = head.bias[unknown].item()
    try:
        for layer in (head, original_head):
            layer.bias.data[unknown] = 1000.0
        emotional = pair.pipeline.recognise(samples, SenseVoiceOptions())
        assert set(emotional.ids) == {unknown}
        banned = pair.pipeline.recognise(samples, SenseVoiceOptions(ban_emo_unk=True))
        text = pair.original.transcribe(samples, language="auto", ban_emo_unk=True).result["text"]
    finally:
        for layer in (head, original_head):
            layer.bias.data[unknown] = bias
    assert pair.original.tokenizer.decode(list(banned.ids)) == text
    assert unknown not in banned.ids


class Emitted:
    """A tokenizer whose text is the ids: FunASR's timestamps re-encode the text, which seldom gives the ids back.

    Those that end within the query frames count as the four tags that FunASR takes off.
    """

    def __init__(self, leading: int):
        self.leading = leading
        self.ids: list[int] = []

    def decode(self, ids: list[int]) -> str:
        self.ids = ids
        return "all of them"

    def text2tokens(self, text: str) -> list[int]:
        return [-1] * QUERY_FRAMES + self.ids[self.leading :]

    def tokens2ids(self, tokens: list[int]) -> list[list[int]]:
        return [[number] for number in tokens]


@pytest.mark.parametrize("seconds", [1, 6, 30])
def test_token_times_equal_the_forced_alignment_of_the_original(
    pair: Pair, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = speech(seconds)
    logits = pair.pipeline.trace(samples, SenseVoiceOptions(), StageFilter("logits"))["logits"]
    path = collapse(logits.argmax(axis=1))
    emitted = [token for token in path if token.end > QUERY_FRAMES]
    model = pair.original.model
    monkeypatch.setattr(model, "post", lambda timestamp: (timestamp, None))  # which merges letters to words
    with torch.no_grad():
        results, _ = model.inference(
            [samples],
            key=["speech"],
            tokenizer=Emitted(len(path) - len(emitted)),
            frontend=pair.original.frontend,
            device="cpu",
            output_timestamp=True,
        )
    timestamps = results[0]["timestamp"]
    assert [number for number, _, _ in timestamps] == [token.id for token in emitted]
    # The pipeline omits tags and control pieces, and begins with the tokens of the query frames.
    pieces = pair.pipeline.model.vocabulary.pieces
    expected = [item for item in timestamps if not is_tag(pieces[item[0]]) and pieces[item[0]] not in CONTROL_PIECES]
    tokens = pair.pipeline.recognise(samples, SenseVoiceOptions()).tokens
    tokens = tokens[len(tokens) - len(expected) :]
    assert [token.id for token in tokens] == [number for number, _, _ in expected]
    for token, (_, start, end) in zip(tokens, expected, strict=True):
        assert token.start == pytest.approx(start, abs=1e-3)
        assert token.end == pytest.approx(end, abs=1e-3)
