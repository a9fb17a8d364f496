"""The SenseVoice pipeline with a fake network: network input, and text, tags, times and traces from its logits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.tiny_checkpoints import noise, tiny_sensevoice
from workbench.audio.cmvn import Cmvn
from workbench.core.errors import BadInput
from workbench.families.sanm.sensevoice import SenseVoiceModel, SenseVoiceOptions, read_sensevoice
from workbench.pipelines.recognition.sensevoice import SenseVoicePipeline
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter

SAMPLES = noise(1.0)[0]  # 17 frames
BANNED = SenseVoiceOptions(ban_emo_unk=True)
LONGER_INPUT = noise(1.5)[0], SenseVoiceOptions(), StageFilter("*")


class FakeNetwork:
    """Emits the given pieces at their frames and blanks elsewhere; records its input."""

    dtype = "q8_0"
    scale = 1.0

    def __init__(self, model: SenseVoiceModel, pieces: dict[int, str]):
        self.ids = {frame: model.vocabulary.ids[piece] for frame, piece in pieces.items()}
        self.width = len(model.vocabulary)

    def logits(self, features: np.ndarray, queries: tuple[int, ...], recorder: Recorder | None) -> Iterator[np.ndarray]:
        self.features, self.queries = features, queries
        logits = np.zeros((len(queries) + len(features), self.width), np.float32)
        logits[:, 0] = 1.0
        for frame, number in self.ids.items():
            logits[frame, number] = 2.0
        logits *= self.scale
        half = len(logits) // 2
        yield from (logits[:half], logits[half:])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SenseVoiceModel:
    return read_sensevoice(tiny_sensevoice(tmp_path_factory.mktemp("tiny")))


def pipeline(model: SenseVoiceModel, **pieces: str) -> tuple[SenseVoicePipeline, FakeNetwork]:
    network = FakeNetwork(model, {int(frame[1:]): piece for frame, piece in pieces.items()})
    return SenseVoicePipeline(model, None, network), network


def test_tags_text_and_times_are_read_from_the_ctc_path(model: SenseVoiceModel) -> None:
    recogniser, network = pipeline(model, f0="<|en|>", f1="<|HAPPY|>", f6="▁a", f7="▁a", f9="▁c")
    recognition = recogniser.recognise(SAMPLES, SenseVoiceOptions(language="en", itn=True))
    assert network.queries == (4, 1, 2, 14) and recogniser.dtype == "q8_0"
    assert (recognition.text, recognition.language, recognition.tags) == ("a c", "en", {"emotion": "HAPPY"})
    assert [token.start for token in recognition.tokens] == pytest.approx([(6 - 4.5) * 0.06, (9 - 4.5) * 0.06])
    confidence = np.exp(2) / (np.exp(2) + np.exp(1) + network.width - 2)  # the blank has 1, all others 0
    assert [token.confidence for token in recognition.tokens] == pytest.approx([confidence, confidence])
    assert len(recognition.ids) == 4


def test_ban_emo_unk_changes_the_tokens_but_not_the_traced_logits(model: SenseVoiceModel) -> None:
    recogniser, _ = pipeline(model, f1="<|EMO_UNKNOWN|>")
    unknown_emotion = recogniser.unknown_emotion
    assert recogniser.recognise(SAMPLES, SenseVoiceOptions()).tags == {"emotion": "EMO_UNKNOWN"}
    assert recogniser.recognise(SAMPLES, SenseVoiceOptions(ban_emo_unk=True)).ids == ()
    trace = recogniser.trace(SAMPLES, SenseVoiceOptions(ban_emo_unk=True), StageFilter("logits,ctc.*,tokens"))
    assert trace["logits"][1, unknown_emotion] == 2.0 and trace["tokens"].tolist() == []


def test_posteriors_are_the_softmax_of_large_logits(model: SenseVoiceModel) -> None:
    recogniser, network = pipeline(model)
    network.scale = 1e4
    posteriors = recogniser.trace(SAMPLES, SenseVoiceOptions(), StageFilter("ctc.posteriors"))["ctc.posteriors"]
    assert posteriors.dtype == np.float32
    np.testing.assert_array_equal(posteriors, np.eye(len(model.vocabulary), dtype=np.float32)[[0] * len(posteriors)])


def test_cmvn_is_applied_unless_option_cmvn_is_off(model: SenseVoiceModel) -> None:
    network = FakeNetwork(model, {})
    width = model.frontend.width
    recogniser = SenseVoicePipeline(model, Cmvn(np.full(width, 1.0), np.full(width, 2.0)), network)
    recogniser.recognise(SAMPLES, SenseVoiceOptions(cmvn="off"))
    plain = network.features
    recogniser.recognise(SAMPLES, SenseVoiceOptions())
    assert plain.shape == (17, width) and plain.dtype == np.float32
    np.testing.assert_allclose(network.features, (plain + 1) * 2, rtol=1e-5)


def test_checkpoint_is_read_with_weights_elsewhere(tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "it")
    (directory / "model.pt").unlink()
    elsewhere = tmp_path / "it.gguf"
    assert read_sensevoice(directory, elsewhere).checkpoint.weights == elsewhere


def test_tokens_and_text_are_computed_from_given_logits(model: SenseVoiceModel) -> None:
    recogniser, _ = pipeline(model, f1="▁a")
    ids, stages = model.vocabulary.ids, StageFilter("logits,ctc.*,tokens,text")
    full_trace = recogniser.trace(SAMPLES, SenseVoiceOptions(), stages)
    given_logits = full_trace["logits"].copy()
    given_logits[6, ids["▁c"]] = given_logits[7, ids["<|EMO_UNKNOWN|>"]] = 9.0
    for options, tokens in ((SenseVoiceOptions(), ["▁a", "▁c", "<|EMO_UNKNOWN|>"]), (BANNED, ["▁a", "▁c"])):
        trace = recogniser.trace(SAMPLES, options, stages, {"logits": given_logits})
        np.testing.assert_array_equal(trace["logits"], full_trace["logits"])
        np.testing.assert_array_equal(trace["ctc.posteriors"].argmax(axis=1), given_logits.argmax(axis=1))
        assert trace["tokens"].tolist() == [ids[piece] for piece in tokens] and str(trace["text"]) == "a c"


def test_front_end_stages_are_computed_from_the_given_previous_stage(model: SenseVoiceModel) -> None:
    """The given stage may have another length or dtype."""
    width = model.frontend.width
    network = FakeNetwork(model, {})
    recogniser = SenseVoicePipeline(model, Cmvn(np.full(width, 1.0), np.full(width, 2.0)), network)
    long_trace = {
        name: array for name, array in recogniser.trace(*LONGER_INPUT).items() if name.startswith("frontend.")
    }
    short_trace = recogniser.trace(SAMPLES, SenseVoiceOptions(), StageFilter("frontend.*"))
    given_fbank = {"frontend.fbank": long_trace["frontend.fbank"].astype(np.float64)}
    trace = recogniser.trace(SAMPLES, SenseVoiceOptions(), StageFilter("frontend.*"), given_fbank)
    np.testing.assert_array_equal(trace["frontend.fbank"], short_trace["frontend.fbank"])
    for stage in ("frontend.lfr", "frontend.features"):
        np.testing.assert_array_equal(trace[stage], long_trace[stage])
    np.testing.assert_array_equal(network.features, long_trace["frontend.features"])
    given_lfr = {"frontend.lfr": long_trace["frontend.lfr"] + 1}
    trace = recogniser.trace(SAMPLES, SenseVoiceOptions(cmvn="off"), StageFilter("frontend.*"), given_lfr)
    np.testing.assert_array_equal(trace["frontend.lfr"], short_trace["frontend.lfr"])
    np.testing.assert_array_equal(trace["frontend.features"], long_trace["frontend.lfr"] + 1)
    recogniser.trace(
        SAMPLES, SenseVoiceOptions(), StageFilter("*"), {"frontend.features": long_trace["frontend.features"] * 3}
    )
    np.testing.assert_array_equal(network.features, long_trace["frontend.features"] * 3)
    with pytest.raises(
        BadInput, match=r"frontend.fbank of the trace to compute from is float32 of the shape \(0, 80\)"
    ):
        recogniser.trace(
            SAMPLES, SenseVoiceOptions(), StageFilter("*"), {"frontend.fbank": np.zeros((0, 80), np.float32)}
        )
