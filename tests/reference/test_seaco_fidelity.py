"""SeACo's hotwords on PyTorch give what the original package gives, from the same checkpoint directory.

Random weights in the published format, real speech, no dither. The hotwords are pieces of the vocabulary, as the
original looks them up. Full size takes a minute and 4 GB.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.reference.checkpoints import ODD_PARAFORMER, SMALL_PARAFORMER, ParaformerSize, write_paraformer
from tests.reference.original import Original, module, require, torch_threads
from tests.reference.speech import RECORDINGS, recording, speech
from workbench.core.softmax import log_softmax
from workbench.families.sanm.paraformer import ParaformerOptions, SeacoOptions, read_paraformer
from workbench.pipelines.recognition.paraformer import ParaformerPipeline
from workbench.runtimes.pytorch.paraformer import open_paraformer
from workbench.trace.trace import StageFilter

pytestmark = pytest.mark.reference

MODELS = [
    pytest.param((SMALL_PARAFORMER, {"predictor": "CifPredictorV3", "seaco": {}}), id="small"),
    pytest.param((SMALL_PARAFORMER, {"seaco": {"bias_encoder_bid": True}}), id="both-directions"),
    pytest.param((ODD_PARAFORMER, {"seaco": {"NO_BIAS": 3}}), id="odd"),
    pytest.param((ParaformerSize(), {"predictor": "CifPredictorV3", "seaco": {}}), id="full", marks=pytest.mark.slow),
]


class Pair:
    """The same checkpoint in both programs."""

    def __init__(self, directory: Path):
        module("funasr.models.seaco_paraformer.model")
        self.original = Original(directory)
        self.pipeline: ParaformerPipeline = open_paraformer(read_paraformer(directory), torch.device("cpu"))
        self.vocabulary = self.pipeline.model.vocabulary

    def log_probabilities(self, samples: np.ndarray, hotwords: Sequence[str]) -> np.ndarray:
        """Returns what the original decodes from, [N, V]."""
        found: list[torch.Tensor] = []
        decode = self.original.model._seaco_decode_with_ASF

        def kept(*values: Any, **options: Any) -> torch.Tensor:
            found.append(decode(*values, **options).clone())
            return found[0]

        self.original.model._seaco_decode_with_ASF = kept
        try:
            self.original.transcribe(samples, hotword=" ".join(hotwords) or None)
        finally:
            self.original.model._seaco_decode_with_ASF = decode
        return found[0][0].numpy()

    def compare(self, samples: np.ndarray, hotwords: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Asserts equal log-probabilities; returns the ids with hotwords and without."""
        options = SeacoOptions(hotwords=tuple(hotwords))
        trace = self.pipeline.trace(samples, options, StageFilter("logits,tokens"))
        expected = self.log_probabilities(samples, hotwords)
        assert np.abs(log_softmax(trace["logits"]) - expected).max() < 2e-3
        np.testing.assert_array_equal(trace["tokens"], expected.argmax(axis=1))
        return trace["tokens"], self.pipeline.trace(samples, ParaformerOptions(), StageFilter("tokens"))["tokens"]


@pytest.fixture(scope="module", params=MODELS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    require()
    with torch_threads():
        size, variant = request.param
        directory = write_paraformer(tmp_path_factory.mktemp("seaco") / "model", size, **variant)
        tokens = [piece for piece in read_paraformer(directory).vocabulary.pieces if piece[0] != "<"]
        # Words of several pieces, as the published file of segments has them.
        words = [f"w{number} {' '.join(tokens[number : number + 1 + number % 4])}" for number in range(90)]
        (directory / "seg_dict").write_text("\n".join([*words, *(f"{piece} {piece}" for piece in tokens)]) + "\n")
        found = Pair(directory)
        yield found
        found.original.close()
        shutil.rmtree(directory)


@pytest.mark.parametrize("words", [1, 2, 7, 49])
def test_hotwords_change_the_same_tokens(pair: Pair, words: int) -> None:
    with_hotwords, without = pair.compare(speech(6), [f"w{number}" for number in range(words)])
    assert 0 < (with_hotwords != without).mean() < 1


@pytest.mark.parametrize("words", [50, 51, 90])
def test_filter_keeps_the_same_hotwords(pair: Pair, words: int) -> None:
    pair.compare(speech(6), [f"w{number}" for number in range(words)])


@pytest.mark.parametrize("name", RECORDINGS)
def test_same_output_for_every_recording(pair: Pair, name: str) -> None:
    pair.compare(recording(name), ["w1", "w2", "w3"])


def test_words_that_are_no_list_entries_are_spelled_alike(pair: Pair) -> None:
    chinese = [piece for piece in pair.vocabulary.pieces if "\u4e00" <= piece <= "\u9fff"][:3]
    pair.compare(speech(2), ["".join(chinese), "W5"])


def test_nothing_changes_without_hotwords(pair: Pair) -> None:
    pair.compare(speech(2), [])
