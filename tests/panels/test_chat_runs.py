"""The Chat tab without a browser: binary parcels, requests, the runs of a turn, and the routes of the server."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from panels.chat import live, routes
from panels.chat.catalogue import catalogue
from panels.chat.endpoint import with_recordings
from panels.chat.request import Column, read_request
from panels.chat.routes import chat_routes
from panels.chat.run import answer_columns
from panels.chat.wire import pack, unpack
from panels.running.scripts import script_routes
from panels.running.sessions import SessionPool
from panels.widgets.samples import read_samples
from tests.support.coroutines import finished
from tests.support.fake_chat import FakeChatRegistry, FakeConverser, add_families
from tests.support.fake_panels import broken
from workbench.core.errors import BadInput
from workbench.core.visitors import Visitor, current_visitor, visited_by
from workbench.session.conversation import AudioPiece
from workbench.session.messages import check_messages
from workbench.speech.replay import MAX_VALUES, Sound

SOUND = Sound(np.arange(-800, 800, dtype=np.int16), 16000)
SAY = [{"role": "user", "content": "say three"}]
SPEECH = "fake/speech|pytorch"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> FakeChatRegistry:
    add_families(monkeypatch)
    fake = FakeChatRegistry()
    fake.speaker.pace = fake.writer.pace = 0.0
    return fake


@pytest.fixture
def pool(registry: FakeChatRegistry) -> Iterator[SessionPool]:
    with SessionPool(registry) as pool:  # type: ignore[arg-type]
        yield pool


@pytest.fixture
def client(pool: SessionPool) -> Iterator[TestClient]:
    with TestClient(Starlette(routes=chat_routes(pool))) as client:
        yield client


def request(**changed: Any) -> dict[str, Any]:
    return {"columns": [{"model": SPEECH, "messages": SAY, "options": {"max_audio_rows": 12}, **changed}]}


def ask(pool: SessionPool, content: dict[str, Any], sounds: tuple[Sound, ...] = ()) -> tuple[Column, ...]:
    return read_request(pool.registry, content, sounds)


def run_columns(pool: SessionPool, columns: tuple[Column, ...], stop_at: int | None = None) -> list[tuple[int, Any]]:
    events: list[tuple[int, Any]] = []
    stops = [threading.Event() for _ in columns]

    def tell(column: int, event: Any) -> None:
        events.append((column, event))
        if isinstance(event, AudioPiece) and event.rows == stop_at:
            stops[column].set()

    answer_columns(pool, columns, stops, tell)
    return events


def test_file_without_sound_is_refused_before_a_model_is_loaded(
    pool: SessionPool, registry: FakeChatRegistry, tmp_path: Path
) -> None:
    [column] = ask(pool, request())
    part = {"type": "audio", "audio": str(broken(tmp_path / "text.wav"))}
    [(_, event)] = run_columns(pool, (replace(column, messages=({"role": "user", "content": [part]},)),))
    assert event["sentence"].startswith("text.wav is not a sound file") and registry.opened == []


# Parcels.


@given(st.dictionaries(st.text(), st.integers()), st.lists(st.lists(st.integers(-32768, 32767)), max_size=3))
def test_packed_parcel_unpacks_to_the_same_content_and_sounds(content: dict[str, int], sounds: list[list[int]]) -> None:
    original = [Sound(np.array(samples, np.int16), 8000 + len(samples)) for samples in sounds]
    unpacked, unpacked_sounds = unpack(pack(content, original))
    assert unpacked == content and [(sound.samples.tolist(), sound.rate) for sound in unpacked_sounds] == [
        (sound.samples.tolist(), sound.rate) for sound in original
    ]


def test_half_a_character_in_a_bundle_reaches_the_page_as_a_question_mark() -> None:
    assert unpack(pack({"title": "hi \ud83d"}, []))[0] == {"title": "hi ?"}


def test_parcel_with_too_many_values_is_refused_before_it_is_read() -> None:
    text = b"[" + b"," * MAX_VALUES
    with pytest.raises(BadInput, match="more than 2,097,152 values"):
        unpack(struct.pack("<I", len(text)) + text)


def test_long_message_during_a_turn_is_not_read_and_stops_all_columns() -> None:
    messages = iter(['{"type": "stop", "column": 0}', '{"column": 0, "x": [' + "[]," * 100 + "[]]}"])
    stops = [threading.Event(), threading.Event()]
    found: list[list[bool]] = []

    class Socket:
        async def receive_text(self) -> str:
            found.append([stop.is_set() for stop in stops])
            if (message := next(messages, None)) is None:
                raise WebSocketDisconnect
            return message

    finished(live._listen(Socket(), stops))  # type: ignore[arg-type]
    assert found == [[False, False], [True, False], [True, True]]


@given(st.binary(max_size=200), st.integers(0, 200))
def test_a_damaged_parcel_is_refused(noise: bytes, end: int) -> None:
    for parcel in (noise, pack({"columns": []}, [SOUND])[: -1 - end]):
        try:
            content, _ = unpack(parcel)
        except BadInput:
            continue
        assert isinstance(content, dict)


# The catalogue and requests.


def test_catalogue_lists_chat_models_with_their_options(registry: FakeChatRegistry) -> None:
    listing = catalogue(registry, read_samples())  # type: ignore[arg-type]
    assert [(each["model"], each["runtime"], each["speaks"], each["hears"]) for each in listing["models"]] == [
        ("fake/speech", "pytorch", True, True),
        ("fake/speech", "vllm", True, True),
        ("fake/words", "pytorch", False, False),
    ], "the catalogue leaves out recognisers"
    options = {each["name"]: each for each in listing["models"][0]["options"]}
    assert (
        options["modalities"]["kind"] == "choice"
        and options["cfg"] | {"kind": "number", "default": 1.0} == options["cfg"]
    )
    assert options["probabilities"]["kind"] == "switch" and options["seed"]["whole"]
    assert "modalities" not in {each["name"] for each in listing["models"][-1]["options"]}, "the model writes text only"
    json.dumps(listing, allow_nan=False)


def test_catalogue_without_chat_models_explains_how_to_install_one(registry: FakeChatRegistry) -> None:
    registry.listed = ()
    listing = catalogue(registry, ())  # type: ignore[arg-type]
    assert not listing["models"] and "pip install torch" in listing["nobody"]


def test_request_recordings_become_samples_and_streams_become_id_arrays(pool: SessionPool) -> None:
    messages = [
        {"role": "user", "content": [{"type": "audio", "sound": 0}, {"type": "text", "text": "and"}]},
        {"role": "assistant", "content": [{"type": "audio", "streams": [[1, 2], [3, 4]]}]},
        *SAY,
    ]
    [column] = ask(pool, request(messages=messages), (SOUND,))
    samples, rate = column.messages[0]["content"][0]["audio"]
    assert rate == 16000 and samples is SOUND.samples
    np.testing.assert_array_equal(column.messages[1]["content"][0]["streams"], [[1, 2], [3, 4]])


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, "asked for no answer"),
    ({"columns": request()["columns"] * 4}, "expected at most 3"),
    (request(model=""), "no model is chosen"),
    (request(model="/etc/passwd"), "there is no '/etc/passwd'"),
    (request(model="fake/sense|pytorch"), "there is no 'fake/sense'"),
    (request(messages=[]), "the conversation is empty"),
    (request(messages=[{"role": "user"}]), "has no content"),
    (
        request(messages=[{"role": "user", "content": [{"type": "audio", "audio": "/etc/passwd"}]}]),
        "a path on the server",
    ),
    (request(messages=[{"role": "user", "content": [{"type": "audio", "sound": 3}]}]), "nor an uploaded recording"),
    (request(options={"nope": 1}), "Fake SpeechLM · PyTorch has no option 'nope'"),
    (request(options={"seed": "many"}), "Seed is 'many'; expected a whole number, or nothing"),
    (request(options={"cfg": 0.5}), "expected 1 to 10"),
    (request(options={"modalities": "video"}), "expected one of auto, text, audio, text_audio"),
)


@pytest.mark.parametrize(("content", "sentence"), WRONG)
def test_invalid_request_raises_one_line_error(pool: SessionPool, content: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput) as caught:
        ask(pool, content)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


# Runs.


def test_text_and_audio_pieces_are_streamed_before_the_answer(pool: SessionPool) -> None:
    events = [event for _, event in run_columns(pool, ask(pool, request()))]
    kinds = ["audio" if isinstance(event, AudioPiece) else event["type"] for event in events]
    assert kinds[0] == "state" and kinds[-1] == "answer" and kinds.index("text") < kinds.index("audio")
    assert (
        "".join(event["text"] for event in events if isinstance(event, dict) and event["type"] == "text") == "say three"
    )
    samples = np.concatenate([event.samples for event in events if isinstance(event, AudioPiece)])
    answer = events[-1]["answer"]
    assert answer["audio"] is None and len(answer["streams"]) == 12 + 7 and len(samples) == 12 * 320
    assert answer["settings"]["max_audio_rows"] == 12
    json.dumps(events[-1], allow_nan=False)
    assert {"type": "memory", "text": "412 MB"} in events


def test_stop_ends_generation_within_one_row_and_keeps_the_partial_answer(
    pool: SessionPool, registry: FakeChatRegistry
) -> None:
    events = run_columns(pool, ask(pool, request(options={"max_audio_rows": 500})), stop_at=20)
    answer = events[-1][1]
    assert answer["finish"] == "cancelled" and len(answer["answer"]["streams"]) == 20 and answer["text"] == "say three"
    assert registry.speaker.rows == 20 and registry.speaker.abandoned.is_set()
    assert answer["answer"]["layout"]["streams"] == 8 and answer["answer"]["prompt_rows"] == 12
    assert answer["answer"]["first_audio_seconds"] < registry.speaker.load_seconds, "the load does not count"


def test_model_load_time_is_reported_once_per_load(pool: SessionPool, registry: FakeChatRegistry) -> None:
    load_event = {"type": "loaded", "seconds": registry.speaker.load_seconds}
    assert [event for _, event in run_columns(pool, ask(pool, request())) if event == load_event] == [load_event]
    assert load_event not in [event for _, event in run_columns(pool, ask(pool, request()))]
    registry.speaker.pid = None  # unloaded in the meantime
    assert load_event in [event for _, event in run_columns(pool, ask(pool, request()))]


def test_columns_answer_in_order_and_an_error_affects_only_its_column(
    pool: SessionPool, registry: FakeChatRegistry
) -> None:
    registry.writer.fault = BadInput("message 1, part 1 is a recording; this model reads text")
    columns = [{**request()["columns"][0], "model": model} for model in ("fake/words|pytorch", SPEECH)]
    columns[0]["options"] = {}
    events = run_columns(pool, ask(pool, {"columns": columns}))
    assert [column for column, _ in events] == sorted(column for column, _ in events)
    [failed] = [event for column, event in events if column == 0 and event["type"] == "failed"]
    assert failed["sentence"] == "message 1, part 1 is a recording; this model reads text"
    assert events[-1][1]["type"] == "answer"


def test_replay_reports_whether_the_token_ids_are_the_same(pool: SessionPool) -> None:
    answer = run_columns(pool, ask(pool, request()))[-1][1]["answer"]
    recorded = {name: answer[name] for name in ("token_ids", "streams", "finish")}
    assert run_columns(pool, ask(pool, request(recorded=recorded)))[-1][1]["replay"] == "same"
    changed = request(recorded=recorded, options={"max_audio_rows": 12, "seed": 1})
    assert run_columns(pool, ask(pool, changed))[-1][1]["replay"].startswith(
        "row 0 of the audio differs first: stream 0"
    )


# Routes of the server.


def test_turn_over_the_websocket_streams_text_and_audio_chunks(client: TestClient, registry: FakeChatRegistry) -> None:
    with client.websocket_connect("/chat/live") as socket:
        socket.send_bytes(pack(request(), []))
        texts, chunks = [], []
        while not texts or texts[-1]["type"] != "end":
            message = socket.receive()
            if message.get("bytes") is not None:
                chunks.append(message["bytes"])
            else:
                texts.append(json.loads(message["text"]))
    samples = np.concatenate([np.frombuffer(chunk, "<i2", offset=12) for chunk in chunks])
    assert texts[-2]["type"] == "answer" and len(samples) == 12 * 320 and np.abs(samples).max() > 3000
    heads = [np.frombuffer(chunk, "<u4", 3).tolist() for chunk in chunks]
    assert {(column, rate) for column, rate, _ in heads} == {(0, 16000)} and heads[-1][2] == 19


def test_closed_websocket_stops_the_generation(client: TestClient, registry: FakeChatRegistry) -> None:
    registry.speaker.pace = 0.002
    with client.websocket_connect("/chat/live") as socket:
        socket.send_bytes(pack(request(options={"max_audio_rows": 6000}), []))
        socket.receive()
    assert registry.speaker.abandoned.wait(60), "the model continued after the disconnect"
    assert registry.speaker.rows < 6000


def test_model_answers_for_the_visitor_who_sent_the_turn(pool: SessionPool, monkeypatch: pytest.MonkeyPatch) -> None:
    routes_of_chat, visitor = Starlette(routes=chat_routes(pool)), Visitor("192.0.2.1", "tab")
    visitors: list[Visitor] = []

    async def visited(scope: Any, receive: Any, send: Any) -> None:
        with visited_by(visitor):
            await routes_of_chat(scope, receive, send)

    def note(*args: Any) -> None:
        visitors.append(current_visitor())

    monkeypatch.setattr(live, "answer_columns", note)
    with TestClient(visited).websocket_connect("/chat/live") as socket:
        socket.send_bytes(pack(request(), []))
        assert json.loads(socket.receive_text()) == {"type": "end"}
    assert visitors == [visitor]


def test_unreadable_or_invalid_turn_is_refused_over_the_websocket(client: TestClient) -> None:
    with client.websocket_connect("/chat/live") as socket:
        socket.send_text("{}")
        assert json.loads(socket.receive_text())["sentence"] == "the page sent nothing that can be read; reload it"
    with client.websocket_connect("/chat/live") as socket:
        socket.send_bytes(pack(request(model=""), []))
        assert json.loads(socket.receive_text()) == {
            "type": "refused",
            "sentence": "no model is chosen; choose one that answers conversations",
        }


def test_turn_beyond_the_run_limit_is_refused_until_a_slot_is_free(
    pool: SessionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "RUNS_AT_ONCE", 1)
    speaker = pool.registry.sessions["fake/speech"]  # type: ignore[attr-defined]
    speaker.pace = 0.002
    with TestClient(Starlette(routes=chat_routes(pool))) as client:
        with client.websocket_connect("/chat/live") as first:
            first.send_bytes(pack(request(options={"max_audio_rows": 6000}), []))
            first.receive()
            with client.websocket_connect("/chat/live") as second:
                second.send_bytes(pack(request(), []))
                assert "too many answers" in json.loads(second.receive_text())["sentence"]
        assert speaker.abandoned.wait(60)
        speaker.pace = 0.0
        for _ in range(100):  # the first one's slot is free when its thread has ended
            with client.websocket_connect("/chat/live") as third:
                third.send_bytes(pack(request(), []))
                if json.loads(third.receive_text())["type"] != "refused":
                    return
    raise AssertionError("the slot was never free again")


def test_uploaded_recording_is_decoded_and_bad_files_return_one_line_errors(client: TestClient) -> None:
    sample = read_samples()[0]
    answer = client.post("/chat/sound", params={"name": "x/../mine.wav"}, content=sample.path.read_bytes())
    description, [sound] = unpack(answer.content)
    assert description["name"] == "mine.wav" and sound.rate == 16000
    assert sound.seconds == pytest.approx(sample.seconds, abs=0.01)
    for content, name in ((b"no sound" * 50, "a.wav"), (b"", "b.mp3"), (b"x" * 99, "\x00<b>.w\x00v")):
        response = client.post("/chat/sound", params={"name": name}, content=content)
        assert response.status_code == 200 and "\n" not in response.json()["error"], response.text
    assert "a.wav" in client.post("/chat/sound", params={"name": "a.wav"}, content=b"no sound" * 50).json()["error"]


def test_conversation_bundle_is_written_and_read_back(client: TestClient) -> None:
    column = {"model": SPEECH, "system": "", "options": {}}
    turn = {"user": {"text": "", "sound": 0}, "answers": [None]}
    chat = {"title": "t", "created": "", "columns": [column], "turns": [turn]}
    bundle = client.post("/chat/bundle", content=pack(chat, [SOUND]))
    assert bundle.headers["content-type"] == "application/zip"
    restored, [sound] = unpack(client.post("/chat/open", content=bundle.content).content)
    assert restored["versions"]["speech-workbench"] and {**restored, "versions": None} == {**chat, "versions": None}
    np.testing.assert_array_equal(sound.samples, SOUND.samples)
    assert client.post("/chat/open", content=b"nothing").json()["error"].startswith("the file is not a replay bundle")


def test_page_scripts_are_served_with_a_no_cache_header() -> None:
    with TestClient(Starlette(routes=script_routes())) as client:
        for script in ("chat/scripts/app.js", "timeline/scripts/app.js", "visualise/scripts/app.js"):
            assert client.get(f"/{script}").headers["cache-control"] == "no-cache"


def test_fake_speaker_streams_the_audio_of_its_answer(registry: FakeChatRegistry) -> None:
    """The pieces of this test helper join to its answer."""
    speaker: FakeConverser = registry.speaker
    events = list(speaker.converse_stream(SAY, max_audio_rows=5))
    samples = np.concatenate([event.samples for event in events if isinstance(event, AudioPiece)])
    np.testing.assert_array_equal(samples, events[-1].audio)  # type: ignore[union-attr]


@pytest.mark.parametrize("content", [5, {"type": "text", "text": "x"}])
def test_recording_of_a_script_beside_a_malformed_content_raises_one_line_error(content: Any) -> None:
    with pytest.raises(BadInput, match="the content of message 1 is of type "):
        check_messages(with_recordings([{"role": "user", "content": content}], ["a.wav"]))
