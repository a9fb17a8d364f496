"""Paraformer on PyTorch gives what the original package gives, from the same checkpoint directory.

Random weights in the published format, real speech, no dither; the plain model (CifPredictorV2) and BiCif
(CifPredictorV3). The full-size models take a minute and 4 GB each. With `-rP --log-level=INFO` pytest prints the
figures seen.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.reference.checkpoints import ODD_PARAFORMER, SMALL_PARAFORMER, ParaformerSize, write_paraformer
from tests.reference.original import Original, OriginalResult, module, require, torch_threads
from tests.reference.speech import RECORDINGS, cosines, recording, speech
from workbench.decoding.cif import peaks
from workbench.families.sanm.paraformer import (
    HIDDEN_PIECES,
    MAX_TOKEN_FRAMES,
    PEAK,
    ParaformerOptions,
    join_pieces,
    peak_times,
    read_paraformer,
)
from workbench.pipelines.recognition.paraformer import ParaformerPipeline
from workbench.runtimes.pytorch.checkpoints.weights import read_state_dict
from workbench.runtimes.pytorch.paraformer import open_paraformer
from workbench.trace.trace import StageFilter

pytestmark = pytest.mark.reference

LOG = logging.getLogger(__name__)
COSINE = 0.999999
SMALL = [
    pytest.param((SMALL_PARAFORMER, {}), id="small"),
    pytest.param((SMALL_PARAFORMER, {"predictor": "CifPredictorV3"}), id="small-bicif"),
    pytest.param((ODD_PARAFORMER, {}), id="odd"),
    pytest.param(
        (ODD_PARAFORMER, {"predictor": "CifPredictorV3", "upsample_type": "cnn", "use_cif1_cnn": True}),
        id="odd-bicif-cnn",
    ),
]
FULL = [
    pytest.param((ParaformerSize(), {}), id="full", marks=pytest.mark.slow),
    pytest.param((ParaformerSize(), {"predictor": "CifPredictorV3"}), id="full-bicif", marks=pytest.mark.slow),
]


@dataclass
class Pair:
    """The same checkpoint in both programs."""

    original: Original
    pipeline: ParaformerPipeline

    def compare(self, samples: np.ndarray, **options: Any) -> OriginalResult:
        """Asserts that both give the same outputs for the samples; returns the original's result."""
        chosen = ParaformerOptions(**options)
        result = self.original.transcribe(samples, ("encoder", "predictor", "decoder"), cmvn=chosen.cmvn != "off")
        trace = self.pipeline.trace(samples, chosen, StageFilter("encoder.output,predictor.*,logits,tokens,text"))
        embeddings, counts, alphas = (part[0].numpy() for part in result.parts["predictor"][:3])
        logits = result.parts["decoder"][0][0].numpy()
        cosine, worst = cosines(trace["encoder.output"], result.encoded)
        assert int(counts) == len(trace["tokens"])
        assert 0.05 < int(counts) / len(alphas) < 0.4  # the token rate of speech; a lower one would show little
        differences = [
            float(np.abs(trace[stage] - expected).max())
            for stage, expected in (
                ("predictor.alphas", alphas),
                ("predictor.embeddings", embeddings),
                ("logits", logits),
            )
        ]
        total = float(alphas.astype(np.float64).sum())
        LOG.info(
            "%d frames: encoder cosine %.9f, of the worst frame %.9f; alphas, embeddings, logits differ by at most "
            "%.2e, %.2e, %.2e; %d tokens of a sum of %.4f",
            *(len(alphas), cosine, worst, *differences, int(counts), total),
        )
        assert min(cosine, worst) >= COSINE
        assert differences[0] <= 2e-6
        assert differences[1] <= 2e-4  # the original sums in float32, with this error over a minute
        ids = logits.argmax(axis=1).tolist()
        assert trace["tokens"].tolist() == ids
        pieces = self.pieces_of(ids)
        assert _same_text(str(trace["text"]), pieces)
        if result.result["text"]:
            written, words = _postprocess()(pieces)
            assert result.result["text"] in (written, " ".join(words))  # with times it writes a space after each word
        return result

    def pieces_of(self, ids: Sequence[int]) -> list[str]:
        """Returns the original's pieces of the ids, without special tokens."""
        return self.original.tokenizer.ids2tokens([number for number in ids if number > 2])


def _postprocess() -> Any:
    return module("funasr.utils.postprocess_utils").sentence_postprocess


def _same_text(text: str, pieces: Sequence[str]) -> bool:
    """Whether it is the original's text of the pieces, perhaps with an unfinished last word that it drops."""
    finished, unfinished = len(pieces), ""
    while finished and pieces[finished - 1].endswith("@@"):
        finished -= 1
        unfinished = pieces[finished].replace("@@", "") + unfinished
    if not unfinished:
        return bool(text == _postprocess()(list(pieces))[0]) or _begins_earlier(text, pieces)
    rest = join_pieces(pieces[:finished])
    return text in (rest + unfinished, f"{rest} {unfinished}") and _same_text(rest, pieces[:finished])


def _begins_earlier(text: str, pieces: Sequence[str]) -> bool:
    """Whether the unfinished word that the original drops stands before Chinese characters."""
    latest = max((i for i, piece in enumerate(pieces) if piece.isalpha() and piece.isascii()), default=-1)
    unfinished = "".join(piece.replace("@@", "") for piece in pieces[latest + 1 :] if piece.endswith("@@"))
    return bool(unfinished) and text.removesuffix(unfinished) == _postprocess()(list(pieces))[0]


@pytest.fixture(scope="module", params=[*SMALL, *FULL])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    require()
    with torch_threads():
        size, variant = request.param
        directory = write_paraformer(tmp_path_factory.mktemp("paraformer") / "model", size, **variant)
        original = Original(directory)
        yield Pair(original, open_paraformer(read_paraformer(directory), torch.device("cpu")))
        original.close()
        shutil.rmtree(directory)


def test_checkpoint_tensors_equal_those_of_the_original_model(pair: Pair) -> None:
    expected = pair.original.model.state_dict()
    file = read_state_dict(pair.pipeline.model.checkpoint.weights)
    assert {name: value.shape for name, value in file.items()} == {
        name: value.shape for name, value in expected.items()
    }
    assert all(torch.equal(file[name], value) for name, value in expected.items())
    if pair.pipeline.model.encoder.layers == 50:
        numbers = sum(value.numel() for value in file.values())
        assert (len(file), numbers) in ((956, 220_084_533), (968, 225_074_998))


@pytest.mark.parametrize(
    ("seconds", "cmvn"), [(1, "checkpoint"), (6, "off"), (30, "checkpoint"), (60, "off"), (60, "checkpoint")]
)
def test_same_output_for_every_length(pair: Pair, seconds: float, cmvn: str) -> None:
    result = pair.compare(speech(seconds), cmvn=cmvn)
    if seconds > 1:
        assert len(result.parts["decoder"][0][0].argmax(dim=-1).unique()) > 3


@pytest.mark.parametrize("name", RECORDINGS)
def test_same_output_for_every_recording(pair: Pair, name: str) -> None:
    pair.compare(recording(name))


@pytest.mark.parametrize("seconds", [6, 30])
def test_token_times_equal_those_of_the_original(pair: Pair, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """BiCif's times are compared directly; the plain model's edges are starts in the original and ends here.

    The plain model's `inference` passes weights and peaks in the wrong order; the test swaps them.
    """
    upsampled = bool(pair.pipeline.model.predictor.upsample)
    tools = module("funasr.utils.timestamp_tools")
    calls: list[Any] = []

    def predict(us_alphas: torch.Tensor, us_peaks: torch.Tensor, chars: list[str], **options: Any) -> Any:
        if not upsampled:
            us_alphas, us_peaks = us_peaks, us_alphas
            assert float(us_alphas.max()) <= 1.0 < float(us_peaks.max())
        prediction = tools.ts_prediction_lfr6_standard(us_alphas.clone(), us_peaks.clone(), list(chars), **options)
        calls.append((list(chars), prediction[1]))
        return prediction

    model_module = module(f"funasr.models.{'bicif_paraformer' if upsampled else 'paraformer'}.model")
    monkeypatch.setattr(model_module, "ts_prediction_lfr6_standard", predict)
    samples = speech(seconds)
    pair.original.transcribe(samples, pred_timestamp=True)
    ((chars, times),) = calls
    assert len(chars) == len(times) > 5
    if not upsampled:
        longest = MAX_TOKEN_FRAMES * 60
        ends = [max(start, 0) for start, _ in times]
        times = [(max(before, end - longest), end) for before, end in pairwise([0, *ends])]
    expected = [(char, *span) for char, span in zip(chars, times, strict=True) if char not in HIDDEN_PIECES]
    tokens = pair.pipeline.recognise(samples, ParaformerOptions()).tokens
    assert [token.text for token in tokens] == [char for char, _, _ in expected]
    for token, (_, start, end) in zip(tokens, expected, strict=True):
        assert token.start is not None and token.end is not None
        assert 1000 * token.start == pytest.approx(max(start, 0), abs=1)
        assert 1000 * token.end == pytest.approx(max(end, 0), abs=1)


@given(st.data())
def test_token_times_for_random_cif_weights_equal_those_of_the_original(data: st.DataObject) -> None:
    """Also for edges that fit the tokens, which random models do not produce, and for tokens that are cut."""
    require()
    tools = module("funasr.utils.timestamp_tools")
    tokens = data.draw(st.integers(1, 12))
    frames = data.draw(st.integers(4 * tokens, 120))
    seed, power = data.draw(st.integers(0, 2**32 - 1)), data.draw(st.sampled_from([0.5, 1, 3, 8]))
    alphas = torch.rand(frames, generator=torch.Generator().manual_seed(seed)) ** power
    alphas = (alphas / alphas.max()).clamp(min=0.01)  # none is so large that it completes two tokens
    if float(alphas.sum()) > tokens:
        alphas *= (tokens + data.draw(st.sampled_from([0.0, 0.5, 1.0, 1.3, 2.4]))) / alphas.sum()
    assume(float(alphas.max()) * (tokens + 1) / float(alphas.sum()) < 0.99)
    expected = tools.ts_prediction_lfr6_standard(
        alphas.clone(), tools.cif_wo_hidden(alphas[None], PEAK)[0], ["x"] * tokens
    )[1]
    weights = alphas.numpy()
    times = peak_times(peaks(weights, PEAK).tolist(), tokens, 0.02, True)
    if times is None:
        times = peak_times(peaks(weights * ((tokens + 1) / weights.sum()), PEAK).tolist(), tokens, 0.02, True)
    assert times is not None and len(times) == len(expected) == tokens
    for span, expected_span in zip(times, expected, strict=True):
        assert [1000 * edge for edge in span] == pytest.approx([max(edge, 0) for edge in expected_span], abs=1)


WELL_FORMED = st.lists(
    st.one_of(
        st.sampled_from(["中", "国", "我", "八", "12", "3", "@", "<unk>", "</s>", "<s>"]).map(lambda piece: [piece]),
        st.sampled_from(["a", "b", "i", "world", "it's", "'", "é", "ア"]).map(lambda piece: [piece]),
        st.tuples(
            st.lists(st.sampled_from(["he@@", "l@@", "wor@@"]), min_size=1, max_size=3),
            st.lists(st.sampled_from(["中", "国"]), max_size=1),
            st.sampled_from(["llo", "d", "ld"]),
        ).map(lambda word: [*word[0], *word[1], word[2]]),
    ),
    max_size=12,
)


@given(WELL_FORMED)
def test_text_joined_from_random_pieces_equals_that_of_the_original(words: list[list[str]]) -> None:
    require()
    pieces = [piece for word in words for piece in word]
    assert join_pieces(pieces) == _postprocess()(list(pieces))[0]
