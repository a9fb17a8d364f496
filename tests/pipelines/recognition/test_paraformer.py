"""The Paraformer pipeline with a fake network: text, token times and traces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.tiny_checkpoints import noise, tiny_paraformer
from workbench.families.sanm.paraformer import ParaformerModel, ParaformerOptions, read_paraformer
from workbench.families.sanm.seaco import Hotwords
from workbench.pipelines.recognition.paraformer import Decoded, ParaformerPipeline
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter

SAMPLES = noise(1.0)[0]  # 17 frames
FRAME = 0.06


class FakeNetwork:
    """Decodes fixed pieces, one complete every fourth frame; records its arguments."""

    dtype = "f16"
    fine_alphas_arguments: tuple[Any, int] | None = None
    cif_residual: bool | None = None

    def __init__(self, model: ParaformerModel, pieces: list[str]):
        self.ids = [model.vocabulary.pieces.index(piece) for piece in pieces]
        self.width = len(model.vocabulary)

    def decode(
        self, features: np.ndarray, recorder: Recorder | None, cif_residual: bool = False, hotwords: Hotwords = ()
    ) -> Decoded:
        self.cif_residual = cif_residual
        alphas = np.full(len(features) + 1, 0.25, np.float32)
        alphas[4 * len(self.ids) :] = 0.0
        logits = np.eye(self.width, dtype=np.float32)[self.ids] if self.ids else None
        return Decoded(logits, alphas, "what the encoder gave")

    def fine_alphas(self, encoded: Any, tokens: int) -> np.ndarray:
        self.fine_alphas_arguments = encoded, tokens
        alphas = np.zeros(51, np.float32)
        alphas[[10, 20, 30]] = 1.0
        return alphas


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ParaformerModel:
    return read_paraformer(tiny_paraformer(tmp_path_factory.mktemp("tiny")))


def test_token_starts_at_the_previous_peak_and_ends_at_its_own(model: ParaformerModel) -> None:
    network = FakeNetwork(model, ["one", "two", "three", "</s>"])
    recogniser = ParaformerPipeline(model, None, network)
    recognition = recogniser.recognise(SAMPLES, ParaformerOptions())
    assert recognition.text == "one two three" and recognition.ids == tuple(network.ids) and recogniser.dtype == "f16"
    ends = [(frame - 1.5) * FRAME for frame in (3, 7, 11)]
    assert [token.end for token in recognition.tokens] == pytest.approx(ends)
    assert [token.start for token in recognition.tokens] == pytest.approx([0.0, *ends[:-1]])
    confidence = np.e / (np.e + network.width - 1)
    assert [token.confidence for token in recognition.tokens] == pytest.approx([confidence] * 3)
    assert network.fine_alphas_arguments is None
    assert network.cif_residual is False
    untimed = recogniser.recognise(SAMPLES, ParaformerOptions(timestamps=False, cif_residual=True))
    assert network.cif_residual is True
    assert [token.start for token in untimed.tokens] == [None] * 3


def test_cif_weights_are_rescaled_to_the_number_of_tokens(model: ParaformerModel) -> None:
    """Four tokens need a fifth peak for the end symbol; without an end symbol the weights are scaled to sum to five."""
    with_end, without = (
        ParaformerPipeline(model, None, FakeNetwork(model, pieces)).recognise(SAMPLES, ParaformerOptions()).tokens
        for pieces in (["one", "two", "three", "four"], ["one", "two", "three", "</s>"])
    )
    # The sum of weights of 5/16 passes 1, 2, 3 and 4 at the frames 3, 6, 9 and 12.
    assert [token.end for token in with_end] == pytest.approx([(n - 1.5) * FRAME for n in (3, 6, 9, 12)])
    assert [token.end for token in without] == pytest.approx([(n - 1.5) * FRAME for n in (3, 7, 11)])


def test_upsampled_timestamp_head_receives_encoder_output_and_token_count(model: ParaformerModel) -> None:
    fine = replace(model, predictor=replace(model.predictor, upsample=3))
    network = FakeNetwork(model, ["one", "two", "</s>"])
    recognition = ParaformerPipeline(fine, None, network).recognise(SAMPLES, ParaformerOptions())
    assert network.fine_alphas_arguments == ("what the encoder gave", 3)
    starts = [(frame - 1.5) * FRAME / 3 for frame in (10, 20)]
    assert [token.start for token in recognition.tokens] == pytest.approx(starts)


def test_zero_predicted_tokens_give_an_empty_transcript(model: ParaformerModel) -> None:
    recogniser = ParaformerPipeline(model, None, FakeNetwork(model, []))
    recognition = recogniser.recognise(SAMPLES, ParaformerOptions())
    assert (recognition.text, recognition.ids, recognition.tokens) == ("", (), ())
    trace = recogniser.trace(SAMPLES, ParaformerOptions(), StageFilter("frontend.features,tokens,text"))
    assert list(trace) == ["frontend.features", "tokens", "text"]
    assert trace["tokens"].dtype == np.int64 and trace["tokens"].shape == (0,)
