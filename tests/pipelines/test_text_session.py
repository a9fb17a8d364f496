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
from workbench.pipelines.text_session import IncrementalDetokenizer, Table, TextSession, alternatives_of
from workbench.session.calls import call_of
from workbench.session.protocols import Generates, Session, Transcribes, last_generation
from workbench.session.values import Generation, Piece
from workbench.trace.trace import StageFilter, Trace

STOP = 0


class ByteWriter:
    """A writer whose tokens are bytes; it writes what it was told to."""

    dtype = "float32"
    options_class = WritingOptions
    stop_ids = (STOP,)

    def __init__(self, writes: Sequence[int]):
        self.writes = list(writes)
        self.written = 0
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
                self.written += 1
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

    def trace(self, prompt: TokenPrompt, wanted: StageFilter, given: Any = None) -> dict[str, np.ndarray]:
        stages = {"llm.embeddings": np.ones((len(prompt.ids), 2)), "logits": np.zeros((len(prompt.ids), 256))}
        return {stage: array for stage, array in stages.items() if wanted(stage)}


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
    left, tokens = text.encode(), list[bytes]()
    for cut in cuts:
        tokens.append(left[:cut])
        left = left[cut:]
    tokens.append(left)
    unfolding = IncrementalDetokenizer(
        lambda ids: b"".join(tokens[number] for number in ids).decode("utf-8", "replace")
    )
    pieces = [unfolding.add(number) for number in range(len(tokens))]
    assert "".join(pieces) == text == unfolding.text and unfolding.finish() == ""
    assert not any("\ufffd" in piece for piece in pieces)


def test_incremental_decoding_decodes_only_the_last_tokens() -> None:
    longest = 0

    def text_of(ids: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return "x" * len(ids)

    unfolding = IncrementalDetokenizer(text_of)
    assert "".join(unfolding.add(number) for number in range(500)) == "x" * 500 and longest <= 3


def test_a_tokenizer_that_drops_the_first_space_keeps_the_others() -> None:
    """As those of Llama and Mistral do."""
    words = ["▁one", "▁two", "▁three"]
    unfolding = IncrementalDetokenizer(lambda ids: "".join(words[n] for n in ids).replace("▁", " ").removeprefix(" "))
    assert [unfolding.add(number) for number in range(3)] == ["one", " two", " three"]


# What comes with it.


def test_generation_has_tokens_timings_and_finish_reason() -> None:
    pieces, generation = pieces_of([97, 98, STOP])
    assert (generation.model, generation.runtime) == ("fake", "bytes")
    assert (generation.text, generation.tokens, generation.prompt_tokens) == ("ab", (97, 98, STOP), 1)
    assert [piece.tokens for piece in pieces] == [(97,), (98,), (STOP,)]
    assert 0 < generation.first_token_seconds <= generation.compute_seconds
    assert generation.to_json().startswith('{"model": "fake", "runtime": "bytes", "text": "ab", "tokens": [97, 98, 0]')
    _, cut = pieces_of([97, 98, 99], max_new_tokens=2)
    assert (cut.text, cut.finish) == ("ab", "length")
    _, silent = pieces_of([])
    assert (silent.text, silent.tokens, silent.finish) == ("", (), "length")


def test_alternatives_are_reported_per_token_on_request() -> None:
    pieces, generation = pieces_of([97, 98, STOP], alternatives=2)
    told = [[(each.id, each.text, each.logprob) for each in piece.alternatives] for piece in pieces]
    assert told[0] == [(97, "<97>", 0.0), (98, "<98>", -1.0)] and told[2][0] == (STOP, "<0>", 0.0)
    assert generation.alternatives == tuple(piece.alternatives for piece in pieces)
    plain, without = pieces_of([97, 98, STOP])
    assert without.alternatives == () and not any(piece.alternatives for piece in plain)
    assert '"alternatives": [[{"id": 97, "text": "<97>", "logprob": 0.0}, ' in generation.to_json()
    with pytest.raises(BadInput, match="alternatives of fake is 21; expected 0 to 20"):
        pieces_of([97], alternatives=21)


def test_tokens_with_zero_probability_are_left_out_of_alternatives() -> None:
    [one] = alternatives_of(np.array([3, 4]), np.array([-0.1, -np.inf]), str)
    assert (one.id, one.text, one.logprob) == (3, "3", -0.1)


def test_compute_time_excludes_the_time_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def passing() -> float:
        nonlocal now
        now += 0.001
        return now

    monkeypatch.setattr(time, "perf_counter", passing)
    stream = session([97, 98, 99])[0].generate_stream("x")
    given: list[Piece | Generation] = []
    for piece in stream:
        now += 1000.0
        given.append(piece)
    assert isinstance(given[-1], Generation) and given[-1].compute_seconds < 1


# Stopping.


def test_closing_the_stream_stops_generation_within_one_token() -> None:
    made, writer = session([97] * 100)
    stream = made.generate_stream("x")
    next(stream)
    next(stream)
    stream.close()
    assert writer.written == 2 and writer.closed


def test_stream_without_a_generation_raises_cancelled() -> None:
    with pytest.raises(Cancelled, match="the generation was stopped before it ended"):
        last_generation(iter([Piece("a", (97,))]))


# Traces.


def test_trace_has_prompt_stages_and_generated_tokens() -> None:
    trace = session([97, 98, STOP])[0].trace("xy")
    told = ["tokens.alternatives", "tokens.logprobs"]
    assert list(trace) == ["prompt.tokens", "llm.embeddings", "logits", "tokens", *told, "text"]
    assert trace["tokens.alternatives"][:, 0].tolist() == [97, 98, STOP] and trace["tokens.logprobs"].shape == (3, 10)
    assert trace["prompt.tokens"].tolist() == [120, 121] and trace["tokens"].tolist() == [97, 98, STOP]
    assert str(trace["text"]) == "ab" and trace.meta["dtype"] == "float32"
    assert trace.meta["input_digest"] == session([])[0].trace("xy", "logits").meta["input_digest"]
    assert trace.meta["input_digest"] != session([])[0].trace("xz", "logits").meta["input_digest"]


def test_trace_has_only_the_selected_stages() -> None:
    made, writer = session([97])
    assert list(made.trace("x", "llm.*")) == ["llm.embeddings"] and writer.written == 0
    assert list(made.trace("x", "text", max_new_tokens=3)) == ["text"]
    assert list(made.trace("x", "tokens", temperature=1.0)) == ["tokens"], "drawn, and not for being the likeliest"
    with pytest.raises(BadInput, match=r"^no stage of fake on bytes matches 'encoder\.\*'; see the stages with \*$"):
        made.trace("x", "encoder.*")


def test_trace_from_given_stages_uses_the_given_prompt_and_generates_no_text() -> None:
    made, writer = session([97, STOP])
    whole = made.trace("xy")
    writer.written = 0
    given = Trace({**whole, "prompt.tokens": np.array([1, 2, 3])}, whole.meta)
    trace = made.trace("xy", given=given)
    assert list(trace) == ["prompt.tokens", "llm.embeddings", "logits"] and writer.written == 0
    assert trace["prompt.tokens"].tolist() == [120, 121] and len(trace["llm.embeddings"]) == 3
    assert trace.meta["isolated"] is True and trace.meta["input_digest"] == whole.meta["input_digest"]
    with pytest.raises(BadInput, match="the trace to compute from has another input"):
        made.trace("xz", given=given)
    with pytest.raises(BadInput, match=r"matches 'tok\*'; a trace from given stages has no text"):
        made.trace("xy", "tok*", given=given)


# What is refused.


def test_text_session_refuses_to_transcribe() -> None:
    made, _ = session([])
    assert isinstance(made, Session) and isinstance(made, Generates) and not isinstance(made, Transcribes)
    for name in ("stream", "stream_batch"):
        with pytest.raises(BadInput, match=r"^fake writes text; to transcribe, open a speech model$"):
            call_of(made, name)


def test_options_and_prompts_are_checked() -> None:
    made, writer = session([97])
    with pytest.raises(BadInput, match="fake has no option temprature; did you mean temperature"):
        made.generate("x", temprature=1.0)
    with pytest.raises(BadInput, match="the prompt is empty"):
        made.generate("")
    assert writer.written == 0


def test_closed_session_raises_an_error() -> None:
    made, _ = session([97])
    made.close()
    for call in (made.generate, made.trace):
        with pytest.raises(BadInput, match="the session of fake is closed; open it again"):
            call("x")


# Tokens near an embedding.


def test_neighbours_of_an_embedding_have_texts_and_a_table_sample() -> None:
    found = session([])[0].neighbours(np.array([[1.0, 5], [3, 0]]), 2)
    assert found.ids.tolist() == [[5, 6], [0, 1]] and found.texts == (("<5>", "<6>"), ("<0>", "<1>"))
    assert found.sample.shape == (256, 2) and found.cosines[0, 0] == pytest.approx(1)


def test_embedding_of_wrong_width_is_refused() -> None:
    with pytest.raises(BadInput, match=r"given is 3 wide, .* expects vectors of 2"):
        session([])[0].neighbours(np.ones((1, 3)))
