"""Speech sessions on a fake server with scripted answers."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Callable, Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.runtimes.vllm.remote.fake_server import (
    CHAT,
    DONE,
    END,
    MODEL,
    TRANSCRIPTIONS,
    FakeServer,
    Reply,
    as_json,
    chat_events,
    event,
)
from workbench.core.errors import BadInput, SessionDied, Unavailable
from workbench.core.settings import Server, SessionSpec
from workbench.runtimes.vllm.remote import open_session
from workbench.session.protocols import Session
from workbench.session.values import Partial, Transcript

SOUND = np.linspace(-0.5, 0.5, 16000, dtype=np.float32)
Opening = Callable[..., Session]


@pytest.fixture
def open_remote(server: Server) -> Iterator[Opening]:
    sessions = []

    def open_one(family: str = "funasr_nano") -> Session:
        sessions.append(open_session(SessionSpec("mine", family, "vllm", Path(), server=server)))
        return sessions[-1]

    yield open_one
    for session in sessions:
        session.close()


def request_bodies(fake: FakeServer, path: str = CHAT) -> list[Any]:
    return [body for route, body in fake.requests if route == path]


def test_transcription_is_a_chat_request_with_the_prompt_of_the_family(open_remote: Opening, fake: FakeServer) -> None:
    transcript = open_remote().transcribe((SOUND, 16000), language="en", hotwords=["seven"], itn=False)
    assert transcript.text == "one two" and transcript.tokens == (1, 2, END)
    assert [(token.id, token.text) for token in transcript.segments[0].tokens] == [(1, "one"), (2, " two")]
    assert (transcript.model, transcript.runtime, transcript.notes) == ("mine", "vllm", ())
    [body] = request_bodies(fake)
    assert body["model"] == MODEL and body["stream"] and body["return_token_ids"] and body["stop_token_ids"] == [END]
    assert (body["temperature"], body["max_tokens"]) == (0.0, 512)
    [message] = body["messages"]
    text, speech = message["content"]
    assert message["role"] == "user" and text["text"].endswith("热词列表：[seven]\n语音转写成英文，不进行文本规整：")
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(speech["input_audio"]["data"])), dtype="float32")
    assert rate == 16000 and speech["input_audio"]["format"] == "wav"
    np.testing.assert_array_equal(samples, SOUND)


def test_instruction_of_the_user_replaces_the_prompt_of_the_family(open_remote: Opening, fake: FakeServer) -> None:
    content = [{"type": "audio", "audio": (SOUND, 16000)}, {"type": "text", "text": "say it backwards"}]
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": content}]
    answer = open_remote().converse(messages)
    assert (answer.text, answer.token_ids, answer.finish) == ("one two", (1, 2, END), "stop")
    [body] = request_bodies(fake)
    system, message = body["messages"]
    assert system == {"role": "system", "content": "be brief"}
    text, speech = message["content"]
    assert text["text"] == "say it backwards" and speech["type"] == "input_audio"
    with pytest.raises(BadInput, match="dither"):
        open_remote().converse(messages, dither=1.0)


def test_fireredasr_request_starts_with_audio_and_limits_tokens_by_its_length(
    open_remote: Opening, fake: FakeServer
) -> None:
    fake.answers[CHAT] = lambda *_: Reply(pieces=chat_events([(1, "ONE "), (2, "Two")]))
    assert open_remote("fireredasr").transcribe((SOUND, 16000)).text == "one two"
    [body] = request_bodies(fake)
    assert [part["type"] for part in body["messages"][0]["content"]] == ["input_audio", "text"]
    assert body["max_tokens"] == 12, "98 frames, eight of which give one embedding"


def test_partial_texts_are_streamed_before_the_transcript(open_remote: Opening) -> None:
    events = list(open_remote().stream((SOUND, 16000)))
    texts = [item.text for item in events if isinstance(item, Partial)]
    assert list(dict.fromkeys(text for text in texts if text)) == ["one", "one two"]
    assert isinstance(events[-1], Transcript)


def test_transcript_cut_off_by_the_token_limit_has_a_note(open_remote: Opening, fake: FakeServer) -> None:
    fake.answers[CHAT] = lambda *_: Reply(pieces=chat_events([(1, "one")], finish="length"))
    transcript = open_remote().transcribe((SOUND, 16000), max_new_tokens=1)
    assert transcript.tokens == (1,) and "cut off at max_new_tokens" in transcript.notes[0]


def test_repetition_penalty_adds_a_note_about_prompt_tokens(open_remote: Opening) -> None:
    transcript = open_remote().transcribe((SOUND, 16000), repetition_penalty=1.5)
    assert transcript.notes == ("vLLM's repetition_penalty also counts the tokens of the prompt",)


def test_segments_and_concurrent_callers_are_sent_in_parallel(open_remote: Opening, fake: FakeServer) -> None:
    """All eight answers wait for each other; the requests come from two batches of four in two threads."""
    barrier = threading.Barrier(8, timeout=60)

    def answer(*_: object) -> Reply:
        barrier.wait()
        return Reply(pieces=chat_events([(1, "one")]))

    fake.answers[CHAT] = answer
    session = open_remote()
    transcripts: list[Transcript] = []

    def batch() -> None:
        transcripts.extend(session.transcribe_batch([(SOUND, 16000)] * 4))

    threads = [threading.Thread(target=batch) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [transcript.text for transcript in transcripts] == ["one"] * 8
    assert len(request_bodies(fake, "/detokenize")) == 1, "each token is detokenised once"


def test_an_answer_belongs_to_its_recording(open_remote: Opening, fake: FakeServer) -> None:
    fake.tokens |= {number: str(number) for number in range(100, 200)}

    def answer(_: FakeServer, body: Any) -> Reply:
        seconds = len(body["messages"][0]["content"][1]["input_audio"]["data"]) * 3 // 4 // 32000
        return Reply(pieces=chat_events([(100 + seconds, f"{seconds} seconds")]))

    fake.answers[CHAT] = answer
    sounds = [(np.zeros(16000 * seconds, dtype=np.float32), 16000) for seconds in (3, 1, 2)]
    transcripts = open_remote().transcribe_batch(sounds, batch_size=3)
    assert [transcript.text for transcript in transcripts] == ["3 seconds", "1 seconds", "2 seconds"]


def test_refused_recording_does_not_affect_other_recordings(open_remote: Opening, fake: FakeServer) -> None:
    def answer(_: FakeServer, body: Any) -> Reply:
        if len(body["messages"][0]["content"][1]["input_audio"]["data"]) > 60_000:
            return as_json({"error": {"message": "the audio is too long", "code": 400}}, 400)
        return Reply(pieces=chat_events([(1, "one")]))

    fake.answers[CHAT] = answer
    sounds = [(np.zeros(16000 * seconds, dtype=np.float32), 16000) for seconds in (1, 2)]
    results = dict(open_remote().stream_batch(sounds, batch_size=2))
    assert isinstance(results[0], Transcript) and results[0].text == "one"
    assert isinstance(results[1], BadInput) and "(400): the audio is too long" in str(results[1])


@pytest.mark.parametrize("options", [{"dither": 1.0}, {"cmvn": "off"}])
def test_feature_options_are_refused_before_any_file_is_read(
    open_remote: Opening, fake: FakeServer, options: dict
) -> None:
    with pytest.raises(BadInput, match="a server computes the features itself"):
        open_remote().transcribe_batch(["there is no such file.wav"], **options)
    assert not request_bodies(fake)


def test_trace_on_a_remote_server_is_unavailable(open_remote: Opening) -> None:
    with pytest.raises(Unavailable, match="a remote server does not show its stages; open the model on this machine"):
        open_remote().trace((SOUND, 16000))


def test_closing_the_stream_closes_the_connection(open_remote: Opening, fake: FakeServer) -> None:
    fake.answers[CHAT] = lambda *_: Reply(pieces=chat_events([(1, "one")])[:2], then="wait")
    stream = open_remote().stream((SOUND, 16000))
    next(item for item in stream if isinstance(item, Partial) and item.text == "one")
    stream.close()
    assert fake.disconnected.wait(60)


def test_broken_stream_raises_session_died_and_the_next_call_succeeds(open_remote: Opening, fake: FakeServer) -> None:
    session, original = open_remote(), fake.answers[CHAT]
    fake.answers[CHAT] = lambda *_: Reply(pieces=chat_events([(1, "one")])[:2], then="drop")
    with pytest.raises(
        SessionDied, match="closed the connection before its answer was complete; the next call asks again"
    ):
        session.transcribe_batch([(SOUND, 16000)] * 3, batch_size=3)
    fake.answers[CHAT] = original
    assert session.transcribe((SOUND, 16000)).text == "one two"


def test_call_on_a_closed_session_raises_an_error(open_remote: Opening) -> None:
    session = open_remote()
    session.close()
    session.close()
    with pytest.raises(BadInput, match="the session of mine is closed"):
        session.transcribe((SOUND, 16000))


# A server that only transcribes, as vLLM's own classes of these models do.


@pytest.fixture
def transcription_server(fake: FakeServer) -> FakeServer:
    for path in (CHAT, "/v1/completions"):
        del fake.answers[path]
    events = [
        event({"choices": [{"delta": {"content": "one"}}]}),
        event({"choices": [{"delta": {"content": " two"}, "finish_reason": "stop"}]}),
        DONE,
    ]
    fake.answers[TRANSCRIPTIONS] = lambda *_: Reply(pieces=events)
    return fake


def test_conversation_on_a_transcription_only_server_is_unavailable(
    open_remote: Opening, transcription_server: FakeServer
) -> None:
    with pytest.raises(Unavailable, match=r"offers only transcriptions of .*; open the model on this machine"):
        open_remote().converse([{"role": "user", "content": [{"type": "audio", "audio": (SOUND, 16000)}]}])


def test_transcription_only_server_receives_a_form_with_wav_and_options(
    open_remote: Opening, transcription_server: FakeServer
) -> None:
    transcript = open_remote().transcribe((SOUND, 16000), language="ja", hotwords=["a", "b"], max_new_tokens=20)
    assert (transcript.text, transcript.tokens) == ("one two", ())
    assert transcript.notes == (
        "the server offers only transcriptions, with its own prompt, and does not send their tokens",
    )
    [body], headers = request_bodies(transcription_server, TRANSCRIPTIONS), transcription_server.headers[-1]
    form = message_from_bytes(b"Content-Type: " + headers["Content-Type"].encode() + b"\r\n\r\n" + body)
    parts = {part.get_param("name", header="Content-Disposition"): part for part in form.get_payload()}
    samples, _ = soundfile.read(io.BytesIO(parts.pop("file").get_payload(decode=True)), dtype="float32")
    np.testing.assert_array_equal(samples, SOUND)
    assert {name: part.get_payload() for name, part in parts.items()} == {
        "model": MODEL,
        "language": "ja",
        "hotwords": "a, b",
        "stream": "true",
        "max_completion_tokens": "20",
        "temperature": "0.0",
        "top_k": "0",
        "top_p": "1.0",
        "min_p": "0.0",
        "repetition_penalty": "1.0",
    }


@pytest.mark.parametrize("options", [{"itn": False}, {"min_new_tokens": 3}])
def test_options_without_a_transcription_field_are_refused(
    open_remote: Opening, transcription_server: FakeServer, options: dict
) -> None:
    with pytest.raises(BadInput, match="the server's transcriptions have no such field"):
        open_remote().transcribe((SOUND, 16000), **options)


def test_server_without_chat_and_transcription_routes_is_unavailable(
    open_remote: Opening, transcription_server: FakeServer
) -> None:
    del transcription_server.answers[TRANSCRIPTIONS]
    with pytest.raises(Unavailable, match=f"offers neither {CHAT} nor {TRANSCRIPTIONS} for {MODEL}"):
        open_remote()
