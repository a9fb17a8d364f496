"""The SenseVoice pipeline with a fake network: network input, and text, tags, times and traces from its logits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.tiny_checkpoints import noise, tiny_sensevoice
from workbench.audio.cmvn import Cmvn
from workbench.core.errors import BadInput
from workbench.families.sensevoice import SenseVoiceModel, SenseVoiceOptions, read_sensevoice
from workbench.pipelines.sensevoice import SenseVoicePipeline
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter

SAMPLES = noise(1.0)[0]  # 17 frames
BANNED = SenseVoiceOptions(ban_emo_unk=True)
AGAIN = noise(1.5)[0], SenseVoiceOptions(), StageFilter("*")


class FakeNetwork:
    """Emits pieces by frame, blank elsewhere; keeps what it was asked."""

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
    hearer, network = pipeline(model, f0="<|en|>", f1="<|HAPPY|>", f6="▁a", f7="▁a", f9="▁c")
    heard = hearer.recognise(SAMPLES, SenseVoiceOptions(language="en", itn=True))
    assert network.queries == (4, 1, 2, 14) and hearer.dtype == "q8_0"
    assert (heard.text, heard.language, heard.tags) == ("a c", "en", {"emotion": "HAPPY"})
    assert [token.start for token in heard.tokens] == pytest.approx([(6 - 4.5) * 0.06, (9 - 4.5) * 0.06])
    likely = np.exp(2) / (np.exp(2) + np.exp(1) + network.width - 2)  # the blank has 1, all others 0
    assert [token.confidence for token in heard.tokens] == pytest.approx([likely, likely])
    assert len(heard.ids) == 4


def test_ban_emo_unk_changes_the_tokens_but_not_the_traced_logits(model: SenseVoiceModel) -> None:
    hearer, _ = pipeline(model, f1="<|EMO_UNKNOWN|>")
    unknown = hearer.unknown_emotion
    assert hearer.recognise(SAMPLES, SenseVoiceOptions()).tags == {"emotion": "EMO_UNKNOWN"}
    assert hearer.recognise(SAMPLES, SenseVoiceOptions(ban_emo_unk=True)).ids == ()
    trace = hearer.trace(SAMPLES, SenseVoiceOptions(ban_emo_unk=True), StageFilter("logits,ctc.*,tokens"))
    assert trace["logits"][1, unknown] == 2.0 and trace["tokens"].tolist() == []


def test_posteriors_are_the_softmax_of_large_logits(model: SenseVoiceModel) -> None:
    hearer, network = pipeline(model)
    network.scale = 1e4
    posteriors = hearer.trace(SAMPLES, SenseVoiceOptions(), StageFilter("ctc.posteriors"))["ctc.posteriors"]
    assert posteriors.dtype == np.float32
    np.testing.assert_array_equal(posteriors, np.eye(len(model.vocabulary), dtype=np.float32)[[0] * len(posteriors)])


def test_cmvn_is_applied_unless_option_cmvn_is_off(model: SenseVoiceModel) -> None:
    network = FakeNetwork(model, {})
    width = model.frontend.width
    hearer = SenseVoicePipeline(model, Cmvn(np.full(width, 1.0), np.full(width, 2.0)), network)
    hearer.recognise(SAMPLES, SenseVoiceOptions(cmvn="off"))
    plain = network.features
    hearer.recognise(SAMPLES, SenseVoiceOptions())
    assert plain.shape == (17, width) and plain.dtype == np.float32
    np.testing.assert_allclose(network.features, (plain + 1) * 2, rtol=1e-5)


def test_checkpoint_is_read_with_weights_elsewhere(tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "it")
    (directory / "model.pt").unlink()
    elsewhere = tmp_path / "it.gguf"
    assert read_sensevoice(directory, elsewhere).checkpoint.weights == elsewhere


def test_tokens_and_text_are_computed_from_given_logits(model: SenseVoiceModel) -> None:
    hearer, _ = pipeline(model, f1="▁a")
    ids, wanted = model.vocabulary.ids, StageFilter("logits,ctc.*,tokens,text")
    own = hearer.trace(SAMPLES, SenseVoiceOptions(), wanted)
    given = own["logits"].copy()
    given[6, ids["▁c"]] = given[7, ids["<|EMO_UNKNOWN|>"]] = 9.0
    for options, tokens in ((SenseVoiceOptions(), ["▁a", "▁c", "<|EMO_UNKNOWN|>"]), (BANNED, ["▁a", "▁c"])):
        found = hearer.trace(SAMPLES, options, wanted, {"logits": given})
        np.testing.assert_array_equal(found["logits"], own["logits"])
        np.testing.assert_array_equal(found["ctc.posteriors"].argmax(axis=1), given.argmax(axis=1))
        assert found["tokens"].tolist() == [ids[piece] for piece in tokens] and str(found["text"]) == "a c"


def test_front_end_stages_are_computed_from_the_given_previous_stage(model: SenseVoiceModel) -> None:
    """Also of recordings of another length, in another type."""
    width = model.frontend.width
    network = FakeNetwork(model, {})
    hearer = SenseVoicePipeline(model, Cmvn(np.full(width, 1.0), np.full(width, 2.0)), network)
    long = {name: array for name, array in hearer.trace(*AGAIN).items() if name.startswith("frontend.")}
    short = hearer.trace(SAMPLES, SenseVoiceOptions(), StageFilter("frontend.*"))
    only = {"frontend.fbank": long["frontend.fbank"].astype(np.float64)}
    found = hearer.trace(SAMPLES, SenseVoiceOptions(), StageFilter("frontend.*"), only)
    np.testing.assert_array_equal(found["frontend.fbank"], short["frontend.fbank"])
    for stage in ("frontend.lfr", "frontend.features"):
        np.testing.assert_array_equal(found[stage], long[stage])
    np.testing.assert_array_equal(network.features, long["frontend.features"])
    stacked = {"frontend.lfr": long["frontend.lfr"] + 1}
    found = hearer.trace(SAMPLES, SenseVoiceOptions(cmvn="off"), StageFilter("frontend.*"), stacked)
    np.testing.assert_array_equal(found["frontend.lfr"], short["frontend.lfr"])
    np.testing.assert_array_equal(found["frontend.features"], long["frontend.lfr"] + 1)
    hearer.trace(SAMPLES, SenseVoiceOptions(), StageFilter("*"), {"frontend.features": long["frontend.features"] * 3})
    np.testing.assert_array_equal(network.features, long["frontend.features"] * 3)
    with pytest.raises(
        BadInput, match=r"frontend.fbank of the trace to compute from is float32 of the shape \(0, 80\)"
    ):
        hearer.trace(SAMPLES, SenseVoiceOptions(), StageFilter("*"), {"frontend.fbank": np.zeros((0, 80), np.float32)})
