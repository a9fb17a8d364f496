"""The text language model pipeline with a fake language model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.tiny_language import tiny_language
from workbench.core.errors import BadInput
from workbench.decoding.alternatives import AlternativesRecorder, Watch
from workbench.decoding.generation import Decoding
from workbench.embeddings import embedding_of
from workbench.embeddings.merge import Merged
from workbench.embeddings.prompt import TokenPrompt, injected
from workbench.families.language.causal_lm import CausalLmModel, CausalLmOptions, read_causal_lm
from workbench.pipelines.text.causal_lm import CausalLm
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter


class FakeLanguage:
    """Generates the ids of its prompt in reverse; the embedding of a token is its id."""

    dtype = "q4_0"

    def embed(self, ids: np.ndarray) -> np.ndarray:
        return ids[..., None].astype(np.float32)

    def from_numpy(self, values: np.ndarray) -> np.ndarray:
        return values

    def prompt(self, rows: Sequence[Sequence[int]]) -> Merged[Any]:
        ids = np.array(rows)
        return Merged(self.embed(ids), np.ones(ids.shape, bool), np.arange(ids.shape[1])[None])

    def generate(self, prompt: Merged[Any], decoding: Decoding, watch: Watch | None = None) -> Iterator[np.ndarray]:
        self.decoding = decoding
        for token in prompt.embeddings[0, ::-1].astype(np.int64):
            if watch and decoding.alternatives:
                watch(0, token, np.zeros(1))
            yield token

    def trace(self, prompt: Merged[Any], recorder: Recorder) -> None:
        recorder.put("llm.embeddings", prompt.embeddings[0])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> CausalLmModel:
    directory: Path = tiny_language(tmp_path_factory.mktemp("tiny") / "it")
    return read_causal_lm(directory)


def test_tokens_are_generated_one_by_one_until_a_stop_token(model: CausalLmModel) -> None:
    language = FakeLanguage()
    writer = CausalLm(model, language)
    assert list(writer.write(TokenPrompt([3, 1, 2]), CausalLmOptions(max_new_tokens=9))) == [2, 1, 3]
    assert (language.decoding.stop_ids, language.decoding.max_new_tokens) == (model.stop_ids, 9)
    assert (writer.dtype, writer.stop_ids) == ("q4_0", model.stop_ids)


def test_alternatives_are_recorded_before_each_token_is_yielded(model: CausalLmModel) -> None:
    recorder = AlternativesRecorder()
    for number, token in enumerate(
        CausalLm(model, FakeLanguage()).write(TokenPrompt([3, 1]), CausalLmOptions(), 1, recorder), 1
    ):
        assert len(recorder.steps) == number and recorder.steps[-1][0].tolist() == [token]


def test_embeddings_replace_their_placeholders_in_the_prompt(model: CausalLmModel) -> None:
    """Embeddings of different lengths replace adjacent placeholders in their order."""
    rows = [embedding_of(np.array([[0.25], [0.5]], np.float32)), embedding_of(np.array([[0.75]], np.float32))]
    prompt = injected([7, 99, 99, 8], 99, rows)
    assert prompt.ids == [7, 99, 99, 99, 8] and prompt.is_embedding.tolist() == [False, True, True, True, False]
    stages = CausalLm(model, FakeLanguage()).trace(prompt, StageFilter("llm.*"))
    assert stages["llm.embeddings"].tolist() == [[7.0], [0.25], [0.5], [0.75], [8.0]]


def test_injected_values_beyond_float16_are_refused(model: CausalLmModel) -> None:
    language = FakeLanguage()
    language.dtype = "float16"
    prompt = injected([99], 99, [embedding_of(np.array([[7e4]], np.float32), "speech")])
    with pytest.raises(
        BadInput, match=r"^speech holds 70000, and the model computes in float16, which ends at 65504; "
    ):
        list(CausalLm(model, language).write(prompt, CausalLmOptions()))


def test_trace_has_the_prompt_embeddings(model: CausalLmModel) -> None:
    stages = CausalLm(model, FakeLanguage()).trace(TokenPrompt([3, 1]), StageFilter("llm.*"))
    assert {name: value.tolist() for name, value in stages.items()} == {"llm.embeddings": [[3.0], [1.0]]}
