"""The table of session calls: missing capabilities raise one-line errors, and a new capability is a single entry."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.processes import eventually
from tests.support.sound_files import Decoder
from tests.support.talking_worker import Talks, talking
from tests.support.tiny_checkpoints import noise
from workbench.audio.spans import Span
from workbench.core.errors import BadInput, SessionDied
from workbench.core.settings import SessionSpec
from workbench.isolation import concurrent, serial
from workbench.isolation.base import IsolatedSession
from workbench.isolation.concurrent import ParallelSession
from workbench.isolation.serial import ProcessSession
from workbench.pipelines.conversation.instructed_session import InstructedSession
from workbench.pipelines.detection.detection_session import DetectionSession
from workbench.pipelines.recognition.speech_session import SpeechSession
from workbench.pipelines.text.text_session import TextSession
from workbench.registry.handle import OpenSession
from workbench.session.calls import CALLS, CAPABILITIES, call_of, with_calls
from workbench.session.messages import Message, TextPart
from workbench.session.protocols import (
    Converses,
    Detects,
    FindsNeighbours,
    Generates,
    NamesTokens,
    ScoresTexts,
    Session,
    Traces,
    Transcribes,
)
from workbench.session.values import Segment
from workbench.text.prompts import messages_of

unused: Any = None
SESSIONS = {
    "speech": SpeechSession("m", "r", unused),
    "text": TextSession("m", "r", unused),
    "instructed": InstructedSession("m", "r", unused),
    "detection": DetectionSession("m", "r", unused),
}
HAVE = {
    "speech": {Transcribes, Traces, NamesTokens},
    "instructed": {Transcribes, Converses, Traces, FindsNeighbours, NamesTokens},
    "text": {Generates, Converses, Traces, FindsNeighbours, NamesTokens, ScoresTexts},
    "detection": {Detects, Transcribes, Traces},
}


@pytest.mark.parametrize("kind", SESSIONS)
def test_session_has_exactly_the_calls_of_its_capabilities(kind: str) -> None:
    session = SESSIONS[kind]
    assert isinstance(session, Session)
    assert {capability.protocol for capability in CAPABILITIES if isinstance(session, capability.protocol)} == HAVE[
        kind
    ]
    assert {capability.protocol for capability in CAPABILITIES if capability.held_by(session)} == HAVE[kind]
    for call in CALLS.values():
        assert hasattr(session, call.name) == (call.capability.protocol in HAVE[kind])


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("speech", "converse_stream", "m transcribes speech; to chat, open a language model or a model that speaks"),
        ("text", "stream", "m writes text; to transcribe, open a speech model"),
        ("text", "stream_batch", "m writes text; to transcribe, open a speech model"),
        ("speech", "generate_stream", "m transcribes speech; to generate from text, open a language model"),
        ("detection", "generate_stream", "m finds speech; to generate from text, open a language model"),
        ("speech", "detect", "m transcribes speech; to find speech, open an FSMN-VAD"),
        (
            "speech",
            "neighbours",
            "m is not a language model; open one to see its tokens near an embedding",
        ),
        (
            "speech",
            "score_texts",
            "m transcribes speech and cannot score texts; open a language model on this machine",
        ),
    ],
)
def test_missing_capability_raises_one_line_error(kind: str, name: str, message: str) -> None:
    with pytest.raises(BadInput) as raised:
        call_of(SESSIONS[kind], name)
    assert str(raised.value) == message
    spec = SessionSpec("m", "sensevoice", "pytorch", Path())
    holder = OpenSession(spec, SESSIONS[kind], lambda options: options, lambda spec: None)
    with pytest.raises(BadInput) as raised:
        getattr(holder, name)("x")
    assert str(raised.value) == message


def test_detected_speech_is_returned_as_segments() -> None:
    detector: Any = SimpleNamespace(spans=lambda samples, options: [Span(0.5, 1.0)])
    assert DetectionSession("m", "r", detector).detect(noise(2.0)) == (Segment(0.5, 1.0, ""),)


def test_streaming_calls_are_derived_from_the_protocols() -> None:
    assert {name for name, call in CALLS.items() if call.streams} == {
        "stream",
        "stream_batch",
        "generate_stream",
        "converse_stream",
    }


def test_call_arguments_are_prepared_for_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = str(tmp_path / "a.wav")

    def prepare(name: str, *arguments: Any, source: str = "recording", **options: Any) -> tuple[Any, Any]:
        bound = CALLS[name].prepared(arguments, options, source)
        return bound.args[1:], bound.kwargs

    assert prepare("stream", "a.wav", itn=True) == ((path,), {"itn": True})
    assert prepare("stream_batch", ["a.wav", Path("a.wav")]) == (([path, path],), {})
    assert prepare("trace", "a.wav") == ((path, "*", None, None), {})
    assert prepare("trace", "a.wav", source="prompt") == (("a.wav", "*", None, None), {})
    spoken_message = {"role": "user", "content": [{"type": "audio", "audio": "a.wav"}]}
    for prepared_call in (
        prepare("converse_stream", [spoken_message], cfg=3),
        prepare("trace", [spoken_message], source="conversation"),
    ):
        [message] = prepared_call[0][0]
        assert message.parts[0].source == path
    assert prepare("trace", "hello", source="conversation")[0][0] == (Message("user", (TextPart("hello"),)),)
    assert prepare("trace", "a.wav", given="a.wav", out="t.safetensors") == (
        (path, "*", path, tmp_path / "t.safetensors"),
        {},
    )
    assert prepare("generate_stream", "a.wav", top_k=3) == (("a.wav",), {"top_k": 3})
    assert prepare("score_texts", ("a", ""), end=False) == ((["a", ""],), {"end": False})
    for invalid, reason in (("ab", "'ab' is not a list of texts"), (["a", 3], "text 2 is of type int")):
        with pytest.raises(BadInput, match=reason):
            prepare("score_texts", invalid)
    rows = np.ones((2, 3), dtype=np.float32)
    for _, options in (
        prepare("generate_stream", "<x>", embeddings=[rows]),
        prepare("trace", "<x>", embeddings=[rows], source="prompt"),
    ):
        np.testing.assert_array_equal(options["embeddings"][0].values, rows)
    assert prepare("trace", "<x>", embeddings=[], source="prompt")[1] == {}
    with pytest.raises(BadInput, match="expected a list of them"):
        prepare("generate_stream", "<x>", embeddings="file.npy")
    with pytest.raises(TypeError):
        prepare("neighbours")


ROW = {"array": [0.0, 0.5], "sampling_rate": 16000}


@pytest.mark.parametrize("row", [ROW, Decoder(np.array([[0.0, 0.5]], np.float32))])
def test_the_audio_of_a_row_of_datasets_is_sent_as_samples(row: Any) -> None:
    for name, argument, source in (
        ("stream", row, "recording"),
        ("stream_batch", [row], "recording"),
        ("trace", row, "recording"),
        ("trace", messages_of(row), "conversation"),
    ):
        [prepared, *_] = CALLS[name].prepared((argument,), {}, source).args[1:]
        found = prepared[0] if name == "stream_batch" else prepared
        samples, rate = found[0].parts[0].source if source == "conversation" else found
        assert np.ravel(samples).tolist() == [0.0, 0.5] and rate == 16000
        pickle.dumps(prepared)


def test_an_open_file_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.touch()
    with path.open("rb") as file:
        for name in ("stream", "detect", "trace"):
            with pytest.raises(BadInput, match=r"not BufferedReader; give the path of an open file, or what soundfile"):
                CALLS[name].prepared((file,), {})
        with pytest.raises(BadInput, match=r"^recording 2 of 2: a recording is a path or .*, not BufferedReader; give"):
            CALLS["stream_batch"].prepared(([path, file],), {})


@pytest.mark.parametrize(
    ("audios", "name"),
    [
        ("a.wav", "'a.wav'"),
        ((np.zeros(2), 16000), "a value of type tuple"),
        (ROW, "a value of type dict"),
        (None, "a value of type NoneType"),
    ],
)
def test_a_single_recording_is_no_batch(audios: Any, name: str) -> None:
    with pytest.raises(BadInput, match=f"^{name} is not a list of recordings; expected a list, even for one recording"):
        CALLS["stream_batch"].prepared((audios,), {})


def test_a_batch_may_be_a_tuple() -> None:
    pair = (np.zeros(2), 16000)
    for batch in ((), ("/a.wav", "/b.wav"), (pair, pair)):
        assert CALLS["stream_batch"].prepared((batch,), {}).args[1:] == (list(batch),)
    with pytest.raises(BadInput, match=r"^recording 2 of 2: a recording is a path or .*, not int"):
        CALLS["stream_batch"].prepared((["a.wav", 5],), {})


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        (None, "the ids are of type NoneType; expected a list, even for one token"),
        ("12", "the ids are of type str; "),
        (np.array(3), "the ids are of type ndarray; "),
        ([1, "2"], "'2' is no id of a token; expected whole numbers"),
        ([1.5], "1.5 is no id of a token; "),
        ([-1], "-1 is no id of a token; ids count from 0"),
    ],
)
def test_ids_of_tokens_are_whole_numbers(ids: Any, sentence: str) -> None:
    for name in ("token_texts", "token_embeddings"):
        with pytest.raises(BadInput, match=f"^{sentence}"):
            CALLS[name].prepared((ids,), {})
        assert CALLS[name].prepared((np.array([3, 4]),), {}).args[1:] == ([3, 4],)


# A new capability.


@pytest.fixture
def talks() -> Iterator[None]:
    with talking():
        yield


@pytest.mark.parametrize("kind", [ProcessSession, ParallelSession])
def test_new_capability_needs_only_a_protocol_and_one_table_entry(
    talks: None, monkeypatch: pytest.MonkeyPatch, kind: Callable[..., IsolatedSession]
) -> None:
    """Both kinds of processes support it with streams and crashes; sessions without it refuse the call."""
    monkeypatch.setattr(serial, "CHILD", ("-P", "-m", "tests.support.talking_worker"))
    monkeypatch.setattr(concurrent, "_Slot", with_calls(type("Slot", (concurrent._Slot,), {})))
    isolated_class: Any = with_calls(type("Carrying", (kind,), {}))  # type: ignore[arg-type]
    handle_class: Any = with_calls(type("Holding", (OpenSession,), {}))
    spec = SessionSpec("talking", "sensevoice", "pytorch", Path())
    with isolated_class(spec) as session:
        handle = handle_class(spec, session, lambda options: options, lambda spec: session.close())
        assert isinstance(handle, Talks) and handle.talk(["a", "b"], mark="?") == "a? b?"
        assert session.talk(["a", "b"], mark="?") == "a? b?"
        stream = session.talk_stream(["a"] * 100)
        assert next(stream) == "a!"
        stream.close()
        eventually(lambda: not session.busy)
        with pytest.raises(SessionDied, match="SIGABRT while talking; the next call starts a new one"):
            session.talk(["a", "b"], do="abort")
        assert session.talk(["c"]) == "c!"
    with (
        isolated_class(SessionSpec("mute", "sensevoice", "pytorch", Path())) as session,
        pytest.raises(BadInput, match=r"^fake transcribes speech; to talk, open a model that talks$"),
    ):
        session.talk(["a"])
