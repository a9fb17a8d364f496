"""Conversations in text and speech: streamed events match the answer, and invalid input is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fake_conversations import HEARD, FakeCodec, FakeTokenizer, fake_conversation
from tests.support.speech_layouts import LAYOUT
from tests.support.tiny_checkpoints import noise
from workbench.core.errors import BadInput
from workbench.pipelines.conversation.conversation_session import ConversationSession
from workbench.session.conversation import Answer, AnswerSoFar, AnswerStart, AudioPiece
from workbench.session.protocols import Converses, Session, Traces
from workbench.session.values import Piece
from workbench.trace.trace import Trace

ASK = [{"role": "user", "content": "say three"}]
SOUND = {"role": "user", "content": [{"type": "audio", "audio": noise(1.0)}]}
MODES = ("text", "audio", "text_audio", "auto")


def decode_at_once(streams: np.ndarray) -> np.ndarray:
    """The audio of all rows decoded at once, by the definition of the delay pattern."""
    frames = len(streams) - LAYOUT.streams + 1
    codes = [
        [max(streams[frame + n, n] - LAYOUT.codec_first - n * LAYOUT.layer_size - 1, 0) for n in range(LAYOUT.streams)]
        for frame in range(frames)
    ]
    return FakeCodec().decode(np.array(codes))


def test_conversation_session_converses_and_traces() -> None:
    session = fake_conversation()
    assert all(isinstance(session, protocol) for protocol in (Session, Converses, Traces))


@settings(max_examples=40)
@given(st.sampled_from(MODES), st.integers(0, 50), st.sampled_from([1.0, 3.0]), st.sampled_from([0.0, 3.0]))
def test_streamed_events_add_up_to_the_answer(modalities: str, seed: int, cfg: float, ends: float) -> None:
    session = fake_conversation(ends=ends)
    so_far = AnswerSoFar("fake", "pytorch")
    *events, answer = session.converse_stream(ASK, modalities=modalities, seed=seed, cfg=cfg)
    assert isinstance(answer, Answer)
    for event in events:
        so_far.add(event)
    collected = so_far.answer()
    assert collected.token_ids == answer.token_ids and collected.text == answer.text
    assert answer.text == FakeTokenizer().decode(
        n for n in answer.token_ids if LAYOUT.text_first <= n < LAYOUT.text_end
    )
    if answer.streams is None:
        assert answer.audio is None and collected.streams is None
        return
    np.testing.assert_array_equal(collected.streams, answer.streams)
    assert answer.audio is not None and answer.sample_rate == 16000
    np.testing.assert_allclose(answer.audio, decode_at_once(answer.streams), atol=1e-5)
    np.testing.assert_array_equal(collected.audio, answer.audio)
    pieces = [event for event in events if isinstance(event, AudioPiece)]
    assert [piece.rows for piece in pieces[: len(answer.streams)]] == list(range(1, len(answer.streams) + 1))
    assert sum(len(piece.samples) > 0 for piece in pieces) > 2, "audio is streamed while rows are generated"


def test_answer_has_settings_timings_and_probabilities() -> None:
    answer = fake_conversation().converse(ASK, modalities="text_audio", seed=3, temperature=0.5, probabilities=True)
    assert answer.finish == "stop" or answer.finish == "length"
    assert answer.prompt_rows == 1 + 2 + len("say three") + 1 + 1
    assert answer.settings["modalities"] == "text_audio" and answer.settings["max_audio_rows"] == 60
    assert answer.settings["audio_temperature"] == answer.settings["text_temperature"] == 0.5
    assert "temperature" not in answer.settings and not answer.notes
    assert fake_conversation().converse([SOUND], modalities="text").notes == ("a fake",)
    assert answer.layout is not None and answer.layout["streams"] == LAYOUT.streams
    assert answer.probabilities is not None and answer.probabilities.shape == (len(answer.token_ids), LAYOUT.streams)
    assert answer.first_text_seconds is not None and answer.first_audio_seconds is not None
    assert answer.first_text_seconds < answer.first_audio_seconds < answer.compute_seconds
    assert answer.rows_per_second and answer.real_time_factor
    repeated = fake_conversation().converse(ASK, **answer.settings)
    assert repeated.token_ids == answer.token_ids
    np.testing.assert_array_equal(repeated.streams, answer.streams)
    json.loads(answer.to_json())


def test_previous_answer_returns_to_the_prompt_unchanged() -> None:
    session = fake_conversation()
    first = session.converse(ASK, modalities="text_audio")
    dialogue = [*ASK, first.message(), SOUND]
    second = session.converse(dialogue, modalities="text")
    rows = first.streams
    assert rows is not None
    answer_rows = 2 + len(first.text) + 1 + 2 + len(rows) + 1
    assert second.prompt_rows == first.prompt_rows - 1 + answer_rows + 2 + 16000 // HEARD + 1 + 1
    samples = {"role": "assistant", "content": [{"type": "audio", "audio": noise(0.01)}]}
    answer = session.converse([*ASK, samples, *ASK], modalities="text")
    assert answer.prompt_rows == 13 + 2 + (160 // 4 + LAYOUT.streams - 1) + 1 + 12 + 1


def test_closing_the_stream_stops_generation_within_one_row() -> None:
    session = fake_conversation()
    network: Any = session.network
    stream = session.converse_stream(ASK, modalities="audio")
    so_far = AnswerSoFar("fake", "pytorch")
    while so_far.answer().streams is None or len(so_far.answer().streams) < 9:  # type: ignore[arg-type]
        so_far.add(next(stream))
    call_count = len(network.calls)
    stream.close()
    assert len(network.calls) == call_count
    partial = so_far.answer()
    assert partial.finish == "cancelled" and partial.streams is not None and len(partial.streams) == 9
    assert session.converse([*ASK, partial.message(), *ASK], modalities="text").text
    assert partial.layout == session.converse(ASK, modalities="text").layout and partial.prompt_rows == 14
    call_count = len(network.calls)
    start_event = next(session.converse_stream(ASK, seed=3))
    assert (
        isinstance(start_event, AnswerStart) and start_event.settings["seed"] == 3 and len(network.calls) == call_count
    )


def test_answer_without_audio_has_a_note_with_the_reason() -> None:
    answer = fake_conversation(context=40, ends=-50.0).converse(ASK, modalities="text_audio", max_text_tokens=100)
    assert answer.finish == "length" and answer.audio is None
    assert "the answer has no audio: the context was full before it began" in answer.notes
    answer = fake_conversation(ends=-50.0).converse(ASK, modalities="text_audio", max_tokens=5)
    assert (answer.finish, answer.audio) == ("length", None)
    assert "the answer has no audio: max_tokens, 5, ended the answer before it began" in answer.notes
    answer_without_rows = fake_conversation(ends=50.0, min_audio_rows=1).converse(
        ASK, modalities="audio", min_audio_rows=0
    )
    assert answer_without_rows.notes == ("the answer has no audio: the model ended it before its first row",)
    answer_without_rows = fake_conversation(ends=50.0, min_audio_rows=1).converse(
        ASK, modalities="audio", max_audio_rows=1
    )
    assert answer_without_rows.notes == ("the answer has no audio: it has 1 row, too few for one frame",)


@pytest.mark.parametrize(
    ("messages", "options", "error"),
    [
        (ASK, {"cfg": 0.5}, "option cfg of fake is 0.5; expected 1 to 20"),
        (ASK, {"modalities": "video"}, "option modalities of fake is 'video'; expected one of auto, "),
        (ASK, {"min_audio_rows": 9, "max_audio_rows": 3}, "min_audio_rows is 9 and max_audio_rows 3; "),
        (ASK, {"top_k": 3}, "fake has no option top_k; did you mean "),
        ("x" * 500, {}, "the conversation is 505 positions long; expected fewer than 400"),
        (
            [{"role": "user", "content": [{"type": "audio", "audio": (np.zeros(16000, np.float32), 16000)}]}],
            {},
            "message 1, part 1: the recording of 1.0 s is silent; expected sound",
        ),
        (
            [*ASK, {"role": "assistant", "content": "x"}, {"role": "user", "content": [SOUND["content"][0]] * 2}][:2],  # type: ignore[index]
            {},
            "message 2, the last one, is from the assistant; ",
        ),
        (
            [{"role": "user", "content": [{"type": "audio", "audio": noise(300.0)}]}],
            {},
            "message 1, part 1, a recording of 300.0 s, needs 3000 positions, and the context of the model has 400 for",
        ),
        (
            [*ASK, {"role": "assistant", "content": [{"type": "audio", "audio": noise(31.0)}]}, *ASK],
            {},
            "message 2, part 1: the recording is 31.0 s long; expected at most 30 s, as the codec encodes",
        ),
        (
            [{"role": "user", "content": [{"type": "audio", "audio": noise(0.01)}]}],
            {},
            "message 1, part 1 has 160 samples at 16 kHz; expected a longer recording",
        ),
        (
            [{"role": "assistant", "content": [{"type": "audio", "streams": [[1, 2, 3, 4, 5]]}]}, *ASK],
            {},
            "the streams of message 1, part 1 have the id 1 in row 1, stream 0; expected 30 to 35",
        ),
        (
            [{"role": "assistant", "content": [{"type": "audio", "streams": [[31, 37]]}]}, *ASK],
            {},
            "the streams of message 1, part 1 have the shape (1, 2); expected rows of 5 streams",
        ),
    ],
)
def test_invalid_conversation_raises_one_line_error(messages: Any, options: Any, error: str) -> None:
    session = fake_conversation()
    with pytest.raises(BadInput) as raised:
        session.converse(messages, **options)
    assert str(raised.value).startswith(error) and "\n" not in str(raised.value)
    assert session.converse(ASK, modalities="text").text, "the session still works"


def test_recording_length_is_limited_only_by_the_context() -> None:
    minute = {"role": "user", "content": [{"type": "audio", "audio": noise(60.0)}]}
    answer = fake_conversation(context=2000).converse([minute], modalities="text")
    assert answer.prompt_rows == 60 * 16000 // HEARD + 5
    assert answer.notes[1:] == (
        "message 1, part 1: the recording is 60.0 s long; the published models were trained with at most 30 s",
    )


def test_missing_codec_or_audio_encoder_is_reported() -> None:
    without_codec = fake_conversation(speaks=False)
    assert without_codec.converse(ASK).audio is None and without_codec.converse(ASK).settings["modalities"] == "text"
    with pytest.raises(BadInput, match=r"^modalities is audio, and fake-speechlm names no codec, "):
        without_codec.converse(ASK, modalities="audio")
    with pytest.raises(BadInput, match="is audio of the assistant, but the model has no codec"):
        without_codec.converse([{"role": "assistant", "content": SOUND["content"]}, *ASK])
    with pytest.raises(BadInput, match="cannot be heard, as the model has no audio encoder"):
        fake_conversation(hears=False).converse([SOUND])


def test_texts_of_ids_outside_the_vocabulary_are_refused() -> None:
    for invalid in (-1, LAYOUT.vocabulary):
        with pytest.raises(BadInput, match=f"has no token {invalid}; expected ids from 0 to {LAYOUT.vocabulary - 1}"):
            fake_conversation().token_texts([invalid])


def test_max_audio_rows_below_the_checkpoint_minimum_is_respected() -> None:
    answer = fake_conversation().converse(ASK, modalities="audio", max_audio_rows=7)
    assert answer.streams is not None and len(answer.streams) == 7 and answer.finish == "length"


def test_trace_has_the_stages_of_prompt_and_answer(tmp_path: Path) -> None:
    session = fake_conversation()
    trace = session.trace([SOUND], modalities="text_audio", out=tmp_path / "t.safetensors")
    answer = session.converse([SOUND], modalities="text_audio")
    assert {"tower.output", "llm.embeddings", "codec.rows", "codec.codes", "codec.latents", "codec.audio"} < set(trace)
    np.testing.assert_array_equal(trace["codec.rows"], answer.streams)
    np.testing.assert_allclose(trace["codec.audio"], answer.audio, atol=1e-5)
    assert tuple(trace["tokens"].tolist()) == answer.token_ids and str(trace["text"]) == answer.text
    assert len(trace["llm.embeddings"]) == answer.prompt_rows
    assert list(session.trace("say three", stages="text")) == ["text"]
    digests = {session.trace(source, stages="llm.*").meta["input_digest"] for source in ("a", "b", [SOUND], ASK)}
    assert len(digests) == 4
    isolated = session.trace([SOUND], given=trace)
    assert "tokens" not in isolated and isolated.meta["isolated"]
    assert "codec.rows" not in session.trace(ASK, modalities="text")


def test_trace_without_a_stage_of_the_codec_decodes_no_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    session = fake_conversation()
    full_trace = session.trace([SOUND], modalities="text_audio")

    def refuse(*_: Any) -> None:
        raise AssertionError("no stage of the codec is requested")

    monkeypatch.setattr(session._codec, "decode", refuse)
    trace = session.trace([SOUND], stages="tokens,codec.rows,text", modalities="text_audio")
    for stage in ("tokens", "codec.rows", "text"):
        np.testing.assert_array_equal(trace[stage], full_trace[stage])


def test_closed_session_raises_an_error() -> None:
    session = fake_conversation()
    codec: Any = session._codec
    session.close()
    assert codec.closed
    with pytest.raises(BadInput, match="the session of fake is closed"):
        session.converse(ASK)
    session.close()


def test_text_pieces_are_streamed_one_by_one() -> None:
    session: ConversationSession = fake_conversation()
    pieces = [event for event in session.converse_stream(ASK, modalities="text") if isinstance(event, Piece)]
    assert sum(bool(piece.text) for piece in pieces) > 3 and all(len(piece.tokens) <= 1 for piece in pieces)


def test_trace_has_sampling_details_of_each_id() -> None:
    session = fake_conversation()
    options = {"modalities": "text_audio", "temperature": 0.7, "seed": 4}
    answer = session.converse(ASK, **options)
    trace = session.trace(ASK, **options)
    steps = len(answer.token_ids)
    assert trace["tokens"].tolist() == list(answer.token_ids)
    np.testing.assert_array_equal(trace["codec.rows"], answer.streams)
    for name in ("logprobs", "alternatives", "temperatures", "candidates", "rooms"):
        assert trace[f"answer.{name}"].shape[:2] == (steps, LAYOUT.streams)
    assert set(np.round(trace["answer.temperatures"], 6).ravel()) == {0.0, 0.7}
    # The embeddings of the fake network are its input rows.
    embedded = trace["answer.embeddings"]
    assert embedded[:, 0].tolist() == list(answer.token_ids) and len(trace["llm.embeddings"]) == answer.prompt_rows
    assert trace.meta["answer"] == answer.settings and trace.meta["layout"] == answer.layout
    plain = session.trace(ASK, stages="llm.*,tokens", **options)
    assert list(plain) == ["llm.embeddings", "tokens"]
    assert "answer" not in session.trace(ASK, stages="llm.*", **options).meta


def test_substituted_codes_are_decoded() -> None:
    session = fake_conversation()
    full_trace = session.trace(ASK, modalities="audio")
    isolated = session.trace(ASK, given=full_trace, modalities="audio")
    np.testing.assert_array_equal(isolated["codec.audio"], full_trace["codec.audio"])
    assert isolated.meta["isolated"] and "tokens" not in isolated
    invalid = Trace({**full_trace, "codec.codes": full_trace["codec.codes"] + 100}, full_trace.meta)
    with pytest.raises(BadInput, match="the codes go from"):
        session.trace(ASK, given=invalid, modalities="audio")
