"""Text generation sessions: pieces never split a character; timings, traces, and refused input."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.errors import BadInput, Cancelled
from workbench.decoding.alternatives import Watch
from workbench.decoding.generation import WritingOptions
from workbench.embeddings import Embedding
from workbench.embeddings.prompt import TokenPrompt, injected
from workbench.pipelines.text.text_session import IncrementalDetokenizer, Table, TextSession, alternatives_of
from workbench.session.calls import call_of
from workbench.session.protocols import Generates, Session, Transcribes, last_generation
from workbench.session.values import Generation, Piece
from workbench.trace.trace import StageFilter, Trace

STOP = 0


class ByteWriter:
    """A text pipeline whose tokens are bytes; it generates the bytes passed to its constructor."""

    dtype = "float32"
    options_class = WritingOptions
    stop_ids = (STOP,)
    vocabulary = 256

    def __init__(self, writes: Sequence[int]):
        self.writes = list(writes)
        self.written_count = 0
        self.closed = False

    def prompt(self, prompt: Any, options: Any, embeddings: Sequence[Embedding] = ()) -> TokenPrompt:
        if not prompt:
            raise BadInput("the prompt is empty")
        return injected(list(prompt.encode()), ord("?"), embeddings)

    def write(
        self, prompt: TokenPrompt, options: WritingOptions, alternatives: int = 0, watch: Watch | None = None
    ) -> Generator[int, None, None]:
        try:
            for token in self.writes[: options.max_new_tokens]:
                self.written_count += 1
                if watch and alternatives:
                    watch(0, (token + np.arange(alternatives)) % 256, 0.0 - np.arange(alternatives))
                yield token
        finally:
            self.closed = True

    def text_of(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")

    def piece(self, number: int) -> str:
        return f"<{number}>"

    @property
    def table(self) -> Table:
        return Table((256, 2), lambda first, last: np.array([(1, n) for n in range(first, last)], np.float32))

    def trace(self, prompt: TokenPrompt, requested_stages: StageFilter, given: Any = None) -> dict[str, np.ndarray]:
        stages = {"llm.embeddings": np.ones((len(prompt.ids), 2)), "logits": np.zeros((len(prompt.ids), 256))}
        return {stage: array for stage, array in stages.items() if requested_stages(stage)}


def session(writes: Sequence[int]) -> tuple[TextSession, ByteWriter]:
    writer = ByteWriter(writes)
    return TextSession("fake", "bytes", writer), writer


def pieces_of(writes: Sequence[int], **options: Any) -> tuple[list[Piece], Generation]:
    *pieces, generation = session(writes)[0].generate_stream("x", **options)
    assert isinstance(generation, Generation) and all(isinstance(piece, Piece) for piece in pieces)
    return pieces, generation  # type: ignore[return-value]


# Text.


def test_incomplete_character_is_held_back_until_complete() -> None:
    pieces, generation = pieces_of([*"aß语🎙!".encode(), STOP])
    texts = [piece.text for piece in pieces]
    assert texts == ["a", "", "ß", "", "", "语", "", "", "", "🎙", "!", ""]
    assert generation.text == "aß语🎙!" and generation.finish == "stop"


def test_incomplete_last_character_becomes_a_replacement_character() -> None:
    pieces, generation = pieces_of([97, 0xE8, 0xAF])
    assert [piece.text for piece in pieces] == ["a", "", "", "\ufffd"]
    assert pieces[-1].tokens == () and generation.text == "a\ufffd" and generation.finish == "length"


@given(st.lists(st.integers(1, 255), max_size=40))
def test_pieces_join_to_the_decoded_text_for_any_bytes(writes: list[int]) -> None:
    pieces, generation = pieces_of(writes)
    assert "".join(piece.text for piece in pieces) == generation.text == bytes(writes).decode("utf-8", "replace")
    assert [token for piece in pieces for token in piece.tokens] == writes == list(generation.tokens)


@given(st.text(max_size=20), st.lists(st.integers(1, 5), min_size=1, max_size=30))
def test_pieces_of_valid_text_have_no_broken_characters(text: str, cuts: list[int]) -> None:
    """Also where tokens end inside characters and begin inside others."""
    text = text.encode("utf-8", "ignore").decode().replace("\ufffd", "")
    remaining, tokens = text.encode(), list[bytes]()
    for cut in cuts:
        tokens.append(remaining[:cut])
        remaining = remaining[cut:]
    tokens.append(remaining)
    detokenizer = IncrementalDetokenizer(
        lambda ids: b"".join(tokens[number] for number in ids).decode("utf-8", "replace")
    )
    pieces = [detokenizer.add(number) for number in range(len(tokens))]
    assert "".join(pieces) == text == detokenizer.text and detokenizer.finish() == ""
    assert not any("\ufffd" in piece for piece in pieces)


def test_incremental_decoding_decodes_only_the_last_tokens() -> None:
    longest = 0

    def text_of(ids: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return "x" * len(ids)

    detokenizer = IncrementalDetokenizer(text_of)
    assert "".join(detokenizer.add(number) for number in range(500)) == "x" * 500 and longest <= 3


def test_a_tokenizer_that_drops_the_first_space_keeps_the_others() -> None:
    """As those of Llama and Mistral do."""
    words = ["▁one", "▁two", "▁three"]
    detokenizer = IncrementalDetokenizer(lambda ids: "".join(words[n] for n in ids).replace("▁", " ").removeprefix(" "))
    assert [detokenizer.add(number) for number in range(3)] == ["one", " two", " three"]


# Values beside the text.


def test_generation_has_tokens_timings_and_finish_reason() -> None:
    pieces, generation = pieces_of([97, 98, STOP])
    assert (generation.model, generation.runtime) == ("fake", "bytes")
    assert (generation.text, generation.tokens, generation.prompt_tokens) == ("ab", (97, 98, STOP), 1)
    assert [piece.tokens for piece in pieces] == [(97,), (98,), (STOP,)]
    assert 0 < generation.first_token_seconds <= generation.compute_seconds
    assert generation.to_json().startswith('{"model": "fake", "runtime": "bytes", "text": "ab", "tokens": [97, 98, 0]')
    _, truncated = pieces_of([97, 98, 99], max_new_tokens=2)
    assert (truncated.text, truncated.finish) == ("ab", "length")
    _, empty = pieces_of([])
    assert (empty.text, empty.tokens, empty.finish) == ("", (), "length")


def test_alternatives_are_reported_per_token_on_request() -> None:
    pieces, generation = pieces_of([97, 98, STOP], alternatives=2)
    alternatives = [
        [(alternative.id, alternative.text, alternative.logprob) for alternative in piece.alternatives]
        for piece in pieces
    ]
    assert alternatives[0] == [(97, "<97>", 0.0), (98, "<98>", -1.0)] and alternatives[2][0] == (STOP, "<0>", 0.0)
    assert generation.alternatives == tuple(piece.alternatives for piece in pieces)
    plain, without = pieces_of([97, 98, STOP])
    assert without.alternatives == () and not any(piece.alternatives for piece in plain)
    assert '"alternatives": [[{"id": 97, "text": "<97>", "logprob": 0.0}, ' in generation.to_json()
    with pytest.raises(BadInput, match="alternatives of fake is 21; expected 0 to 20"):
        pieces_of([97], alternatives=21)


def test_tokens_with_zero_probability_are_left_out_of_alternatives() -> None:
    [alternative] = alternatives_of(np.array([3, 4]), np.array([-0.1, -np.inf]), str)
    assert (alternative.id, alternative.text, alternative.logprob) == (3, "3", -0.1)


def test_compute_time_excludes_the_time_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 0.0

    def clock() -> float:
        nonlocal seconds
        seconds += 0.001
        return seconds

    monkeypatch.setattr(time, "perf_counter", clock)
    stream = session([97, 98, 99])[0].generate_stream("x")
    events: list[Piece | Generation] = []
    for piece in stream:
        seconds += 1000.0
        events.append(piece)
    assert isinstance(events[-1], Generation) and events[-1].compute_seconds < 1


def test_texts_of_ids_outside_the_vocabulary_are_refused() -> None:
    assert session([])[0].token_texts([0, 255]) == ("<0>", "<255>")
    for invalid in (-1, 256):
        with pytest.raises(BadInput, match=f"^fake has no token {invalid}; expected ids from 0 to 255"):
            session([])[0].token_texts([97, invalid])


# Stopping.


def test_closing_the_stream_stops_generation_within_one_token() -> None:
    text_session, writer = session([97] * 100)
    stream = text_session.generate_stream("x")
    next(stream)
    next(stream)
    stream.close()
    assert writer.written_count == 2 and writer.closed


def test_stream_without_a_generation_raises_cancelled() -> None:
    with pytest.raises(Cancelled, match="the generation was stopped before it ended"):
        last_generation(iter([Piece("a", (97,))]))


# Traces.


def test_trace_has_prompt_stages_and_generated_tokens() -> None:
    trace = session([97, 98, STOP])[0].trace("xy")
    alternative_stages = ["tokens.alternatives", "tokens.logprobs"]
    assert list(trace) == ["prompt.tokens", "llm.embeddings", "logits", "tokens", *alternative_stages, "text"]
    assert trace["tokens.alternatives"][:, 0].tolist() == [97, 98, STOP] and trace["tokens.logprobs"].shape == (3, 10)
    assert trace["prompt.tokens"].tolist() == [120, 121] and trace["tokens"].tolist() == [97, 98, STOP]
    assert str(trace["text"]) == "ab" and trace.meta["dtype"] == "float32"
    assert trace.meta["input_digest"] == session([])[0].trace("xy", "logits").meta["input_digest"]
    assert trace.meta["input_digest"] != session([])[0].trace("xz", "logits").meta["input_digest"]


def test_trace_has_only_the_selected_stages() -> None:
    text_session, writer = session([97])
    assert list(text_session.trace("x", "llm.*")) == ["llm.embeddings"] and writer.written_count == 0
    assert list(text_session.trace("x", "text", max_new_tokens=3)) == ["text"]
    assert list(text_session.trace("x", "tokens", temperature=1.0)) == ["tokens"], "sampled tokens have no alternatives"
    with pytest.raises(BadInput, match=r"^no stage of fake on bytes matches 'encoder\.\*'; '\*' takes all stages$"):
        text_session.trace("x", "encoder.*")


def test_trace_from_given_stages_uses_the_given_prompt_and_generates_no_text() -> None:
    text_session, writer = session([97, STOP])
    full_trace = text_session.trace("xy")
    writer.written_count = 0
    given_trace = Trace({**full_trace, "prompt.tokens": np.array([1, 2, 3])}, full_trace.meta)
    trace = text_session.trace("xy", given=given_trace)
    assert list(trace) == ["prompt.tokens", "llm.embeddings", "logits"] and writer.written_count == 0
    assert trace["prompt.tokens"].tolist() == [120, 121] and len(trace["llm.embeddings"]) == 3
    assert trace.meta["isolated"] is True and trace.meta["input_digest"] == full_trace.meta["input_digest"]
    with pytest.raises(BadInput, match="the trace to compute from has another input"):
        text_session.trace("xz", given=given_trace)
    with pytest.raises(BadInput, match=r"matches 'tok\*'; a trace from given stages has no text"):
        text_session.trace("xy", "tok*", given=given_trace)


# Refusals.


def test_text_session_refuses_to_transcribe() -> None:
    text_session, _ = session([])
    assert (
        isinstance(text_session, Session)
        and isinstance(text_session, Generates)
        and not isinstance(text_session, Transcribes)
    )
    for name in ("stream", "stream_batch"):
        with pytest.raises(BadInput, match=r"^fake writes text; to transcribe, open a speech model$"):
            call_of(text_session, name)


def test_options_and_prompts_are_checked() -> None:
    text_session, writer = session([97])
    with pytest.raises(BadInput, match="fake has no option temprature; did you mean temperature"):
        text_session.generate("x", temprature=1.0)
    with pytest.raises(BadInput, match="the prompt is empty"):
        text_session.generate("")
    assert writer.written_count == 0


def test_closed_session_raises_an_error() -> None:
    text_session, _ = session([97])
    text_session.close()
    for call in (text_session.generate, text_session.trace):
        with pytest.raises(BadInput, match="the session of fake is closed; open it again"):
            call("x")


# Tokens near an embedding.


def test_neighbours_of_an_embedding_have_texts_and_a_table_sample() -> None:
    neighbours = session([])[0].neighbours(np.array([[1.0, 5], [3, 0]]), 2)
    assert neighbours.ids.tolist() == [[5, 6], [0, 1]] and neighbours.texts == (("<5>", "<6>"), ("<0>", "<1>"))
    assert neighbours.sample.shape == (256, 2) and neighbours.cosines[0, 0] == pytest.approx(1)


def test_embedding_of_wrong_width_is_refused() -> None:
    with pytest.raises(BadInput, match=r"given is 3 wide, .* expects vectors of 2"):
        session([])[0].neighbours(np.ones((1, 3)))
