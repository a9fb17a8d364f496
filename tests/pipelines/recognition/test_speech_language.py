"""Speech recognition with a language model, token by token, with a fake audio encoder and a fake language model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from workbench.core.errors import BadInput
from workbench.core.options import ListeningOptions
from workbench.decoding.alternatives import Watch
from workbench.decoding.generation import ENDED, Decoding
from workbench.embeddings.merge import Merged
from workbench.families.speech_llm.instruction import Instruction
from workbench.pipelines.recognition.recogniser import Recognition, StreamingRecogniser
from workbench.pipelines.recognition.speech_language import SpeechLanguagePipeline
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter

Arrays = Callable[[np.ndarray], Any]  # from numpy to the arrays of a runtime
SPEECH, STOP = -1, 9
WIDTH = 2


class FakeEar:
    """An audio encoder that makes every sample an embedding; its prompt is the tokens 5, 6."""

    options_class = ListeningOptions
    placeholder = SPEECH
    asks: tuple[int, ...] = (5, 6)
    language = SimpleNamespace(vocabulary=10)

    def __init__(self, arrays: Arrays = torch.from_numpy):
        self.arrays = arrays
        self.tokenizer = FakeTokenizer()

    def embeddings(self, stretches: Sequence[np.ndarray], options: Any, recorder: Any = None) -> tuple[Any, np.ndarray]:
        counts = np.array([len(samples) for samples in stretches])
        frames = np.zeros((len(stretches), int(counts.max()), WIDTH), np.float32)
        for row, samples in zip(frames, stretches, strict=True):
            row[: len(samples)] = samples[:, None]
        return self.arrays(frames), counts

    def count(self, samples: int) -> int:
        return samples

    def instructed(self, instruction: Instruction) -> FakeEar:
        encoder = copy.copy(self)
        encoder.asks = tuple(map(ord, instruction.text)) or self.asks
        return encoder

    def prompt_ids(self, options: Any) -> np.ndarray:
        return np.array([self.asks[0], SPEECH, *self.asks[1:]])

    def decoding(self, options: Any, counts: np.ndarray) -> Decoding:
        return Decoding((STOP,), max_new_tokens=10)

    def text(self, generated: str) -> str:
        return generated.strip()


@dataclass
class FakeLanguage:
    """Yields the steps of its constructor; records the prompt and the number of steps requested."""

    steps: Sequence[Any]
    arrays: Arrays = torch.from_numpy
    dtype: str = "float32"
    step_count: int = 0
    closed: bool = False
    prompt: Merged[Any] | None = None

    def embed(self, ids: np.ndarray) -> Any:
        assert (ids >= 0).all(), "a placeholder has no row in the table"
        return self.arrays(np.repeat(ids[..., None], WIDTH, axis=-1).astype(np.float32))

    def generate(self, prompt: Merged[Any], decoding: Decoding, watch: Watch | None = None) -> Iterator[np.ndarray]:
        self.prompt = prompt
        try:
            for step in self.steps:
                self.step_count += 1
                yield np.array(step)
        finally:
            self.closed = True


class FakeTokenizer:
    """Token n is the letter n of the alphabet; 8 is the first half of a character."""

    def decode(self, ids: Sequence[int], special: bool = False) -> str:
        return "".join("\ufffd" if number == 8 else "abcdefghij"[number] for number in ids)

    def piece(self, number: int) -> str:
        return self.decode([number])


def recogniser(*steps: Any, arrays: Arrays = torch.from_numpy) -> tuple[SpeechLanguagePipeline, FakeLanguage]:
    language = FakeLanguage(steps, arrays)
    return SpeechLanguagePipeline(FakeEar(arrays), language), language  # type: ignore[arg-type]


def samples(*lengths: int) -> list[np.ndarray]:
    return [np.full(length, 0.5, np.float32) for length in lengths]


def drain(writing: Generator[list[str], None, list[Recognition]]) -> tuple[list[list[str]], list[Recognition]]:
    texts = []
    while True:
        try:
            texts.append(next(writing))
        except StopIteration as end:
            return texts, end.value


def test_text_grows_with_each_token_until_every_chunk_ends() -> None:
    pipeline, _ = recogniser([0, 1], [2, STOP], [3, ENDED], [STOP, ENDED])
    assert isinstance(pipeline, StreamingRecogniser)
    texts, recognitions = drain(pipeline.recognise_stream(samples(2, 3), ListeningOptions()))
    assert texts == [["a", "b"], ["ac", "b"], ["acd", "b"], ["acd", "b"]]
    assert [part.text for part in recognitions] == ["acd", "b"]
    assert [part.ids for part in recognitions] == [(0, 2, 3, STOP), (1, STOP)]
    assert [[token.text for token in part.tokens] for part in recognitions] == [["a", "c", "d"], ["b"]]
    assert all(part.notes == () for part in recognitions)


def test_pieces_of_ids_outside_the_vocabulary_are_refused() -> None:
    pipeline, _ = recogniser()
    assert pipeline.pieces([0, 9]) == ("a", "j")
    for invalid in (SPEECH, 10):
        with pytest.raises(BadInput, match=f"^the language model has no token {invalid}; expected ids from 0 to 9"):
            pipeline.pieces([3, invalid])


@pytest.mark.parametrize(("arrays", "kind"), [(torch.from_numpy, Tensor), (np.asarray, np.ndarray)])
def test_prompts_are_left_padded_with_the_frames_of_each_chunk(arrays: Arrays, kind: type) -> None:
    """The arrays are torch tensors or NumPy arrays, depending on the runtime."""
    pipeline, language = recogniser([STOP, STOP], arrays=arrays)
    _, recognitions = drain(pipeline.recognise_stream(samples(1, 3), ListeningOptions()))
    assert [part.prompt_tokens for part in recognitions] == [3, 5]
    assert language.prompt is not None and isinstance(language.prompt.embeddings, kind)
    assert language.prompt.embeddings[..., 0].tolist() == [[0, 0, 5, 0.5, 6], [5, 0.5, 0.5, 0.5, 6]]
    assert language.prompt.positions.tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]


def test_stop_token_is_not_part_of_the_text() -> None:
    pipeline, _ = recogniser([STOP])
    texts, [recognition] = drain(pipeline.recognise_stream(samples(1), ListeningOptions()))
    assert texts == [[""]] and (recognition.text, recognition.tokens, recognition.ids) == ("", (), (STOP,))


def test_incomplete_character_is_not_shown() -> None:
    pipeline, _ = recogniser([0], [8], [1], [STOP])
    texts, _ = drain(pipeline.recognise_stream(samples(1), ListeningOptions()))
    assert texts[:2] == [["a"], ["a"]]


def test_beam_search_shows_the_best_hypothesis_so_far() -> None:
    pipeline, _ = recogniser([[0], [1]], [[3, 2], [1, STOP]], [[3, 2, STOP], [1, STOP, ENDED]])
    texts, recognitions = drain(pipeline.recognise_stream(samples(1, 1), ListeningOptions()))
    assert texts == [["a", "b"], ["dc", "b"], ["dc", "b"]]
    assert [part.ids for part in recognitions] == [(3, 2, STOP), (1, STOP)]


def test_text_cut_off_at_max_new_tokens_gives_a_note() -> None:
    pipeline, _ = recogniser([0, STOP], [1, ENDED])
    _, recognitions = drain(pipeline.recognise_stream(samples(1, 1), ListeningOptions()))
    assert recognitions[0].notes == (
        "a segment of speech was cut off at max_new_tokens; the transcript may lack its end",
    )
    assert recognitions[1].notes == ()


def test_closing_the_stream_stops_the_model_at_that_token() -> None:
    pipeline, language = recogniser([0], [1], [2], [STOP])
    writing = pipeline.recognise_stream(samples(1), ListeningOptions())
    assert next(writing) == ["a"] and language.step_count == 1
    writing.close()
    assert language.step_count == 1 and language.closed


def test_recognise_transcribes_a_single_chunk() -> None:
    pipeline, _ = recogniser([0], [STOP])
    assert pipeline.recognise(samples(2)[0], ListeningOptions()).text == "a"


# Traces from given stages.


class TracingLanguage(FakeLanguage):
    """Records the prompt of a trace."""

    def trace(self, prompt: Merged[Any], recorder: Recorder) -> None:
        self.prompt = prompt
        recorder.put("llm.embeddings", np.asarray(prompt.embeddings[0]))


class TracingEar(FakeEar):
    """Records its embeddings, or continues from given ones."""

    def embeddings(self, stretches: Sequence[np.ndarray], options: Any, recorder: Any = None) -> tuple[Any, np.ndarray]:
        speech, counts = super().embeddings(stretches, options)
        return self.arrays(recorder.put("adaptor.output", np.asarray(speech[0]))[None]), counts


def trace_from(
    given: dict[str, np.ndarray] | None, arrays: Arrays = torch.from_numpy, stages: str = "*"
) -> tuple[dict[str, Any], Any]:
    """The trace of two samples, and the language model that computed it."""
    language = TracingLanguage([[0], [STOP]], arrays)
    pipeline = SpeechLanguagePipeline(TracingEar(arrays), language)  # type: ignore[arg-type]
    return pipeline.trace(samples(2)[0], ListeningOptions(), StageFilter(stages), given), language


@pytest.mark.parametrize("arrays", [torch.from_numpy, np.asarray])
def test_prompt_is_merged_from_given_tokens_and_adaptor_output(arrays: Arrays) -> None:
    full_trace, _ = trace_from(None, arrays)
    assert full_trace["llm.embeddings"][:, 0].tolist() == [5, 0.5, 0.5, 6] and full_trace["tokens"].tolist() == [
        0,
        STOP,
    ]
    ids, speech = np.array([7.0, 3.0, SPEECH]), np.array([[1, 0], [2, 0], [3, 0]], np.float32)
    trace, language = trace_from({"prompt.tokens": ids, "adaptor.output": speech}, arrays)
    assert trace["prompt.tokens"].tolist() == [5, SPEECH, 6] and trace["adaptor.output"][:, 0].tolist() == [0.5, 0.5]
    assert trace["llm.embeddings"][:, 0].tolist() == [7, 3, 1, 2, 3] == language.prompt.embeddings[0, :, 0].tolist()


def test_no_text_is_generated_from_given_stages() -> None:
    trace, language = trace_from({"llm.embeddings": np.ones((4, WIDTH), np.float32)})
    assert language.step_count == 0 and not {"tokens", "text", "tokens.alternatives"} & set(trace)


@pytest.mark.parametrize("arrays", [torch.from_numpy, np.asarray])
def test_sound_is_not_embedded_where_the_language_model_continues_from_its_input(arrays: Arrays) -> None:
    given = {"llm.embeddings": np.ones((4, WIDTH), np.float32)}
    _, language = trace_from(given, arrays, "llm.layers.*,logits")
    assert language.prompt.embeddings[0, :, 0].tolist() == [5, 0, 0, 6]
    trace, _ = trace_from(given, arrays, "llm.*")
    assert trace["llm.embeddings"][:, 0].tolist() == [5, 0.5, 0.5, 6]
    trace, _ = trace_from(given, arrays, "logits,adaptor.output")
    assert trace["adaptor.output"][:, 0].tolist() == [0.5, 0.5]
    earlier = {**given, "adaptor.output": np.full((2, WIDTH), 9, np.float32)}
    _, language = trace_from(earlier, arrays, "logits")
    assert language.prompt.embeddings[0, :, 0].tolist() == [5, 9, 9, 6]


def test_given_prompt_without_a_speech_placeholder_is_refused() -> None:
    with pytest.raises(
        BadInput, match=r"^adaptor.output does not fit into prompt.tokens of the given trace: row 0 has"
    ):
        trace_from({"prompt.tokens": np.array([5, 6])})
