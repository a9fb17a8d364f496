"""The websockets of a live microphone: the page's own, and OpenAI's realtime sessions."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse

from workbench.audio.read import read, samples_to_int16
from workbench.registry.sources import assets
from workbench.serving.admission.gate import Gate
from workbench.serving.admission.limits import PUBLIC
from workbench.serving.service import Service
from workbench.serving.streaming.live_connection import LARGEST_MESSAGE, PcmDecoder


def speech() -> bytes:
    """Digits and a second of silence, as int16 at 16 kHz."""
    samples = read(assets() / "samples" / "three_seven_one.wav").samples
    return samples_to_int16(np.concatenate([samples, np.zeros(16000, np.float32)])).tobytes()


def until(socket: Any, kind: str) -> list[dict[str, Any]]:
    """Returns the events up to the first of this type."""
    events = [socket.receive_json()]
    while events[-1]["type"] != kind:
        events.append(socket.receive_json())
    return events


def test_live_websocket_transcribes_streamed_speech(http: TestClient) -> None:
    with http.websocket_connect("/live/listen") as socket:
        socket.send_json({"model": "fake/sense", "rate": 16000})
        assert socket.receive_json() == {"type": "ready"}
        sound = speech()
        for start in range(0, len(sound), 3200):
            socket.send_bytes(sound[start : start + 3200])
        socket.send_json({"type": "stop"})
        events = until(socket, "end")
    assert [event["type"] for event in events if event["type"] != "written"] == ["began", "final", "end"]
    final = events[-2]
    assert final["text"] == "three eleven one" and 0 <= final["start"] < final["end"] < 2.9


def test_invalid_live_request_is_refused_with_the_reason(http: TestClient) -> None:
    for settings, sentence in (
        ({"model": "nobody"}, "the server has no model 'nobody'"),
        ({"model": "fake/sense", "rate": 1}, "rate is 1; expected"),
        ({"model": "fake/sense", "options": {"vad": "/etc"}}, "option vad is '/etc'"),
    ):
        with http.websocket_connect("/live/listen") as socket:
            socket.send_json(settings)
            reply = socket.receive_json()
        assert reply["type"] == "refused" and sentence in reply["sentence"]


@pytest.mark.parametrize(
    ("query", "sentence", "code"),
    [("?model=nobody", "has no model 'nobody'", 1008), ("?model=fake/speaker", "for this route", 1008)],
)
def test_realtime_session_of_an_unknown_model_ends_with_an_error(
    http: TestClient, query: str, sentence: str, code: int
) -> None:
    with http.websocket_connect(f"/v1/realtime{query}") as socket:
        event, ending = socket.receive_json(), socket.receive()
    assert event["type"] == "error" and event["event_id"] and event["error"]["code"] == "model_not_found"
    assert sentence in event["error"]["message"] and ending["code"] == code and sentence[:10] in ending["reason"]


@pytest.mark.parametrize("path", ["/v1/nothing", "/realtime"])
def test_websocket_of_an_unknown_route_is_refused_with_the_routes(http: TestClient, path: str) -> None:
    with pytest.raises(WebSocketDenialResponse) as caught, http.websocket_connect(path):
        pass
    assert caught.value.status_code == 404 and "/v1/realtime" in caught.value.json()["error"]["message"]


def test_realtime_session_transcribes_appended_audio(http: TestClient) -> None:
    with http.websocket_connect("/v1/realtime?model=fake/sense") as socket:
        assert socket.receive_json()["type"] == "session.created"
        form = {"type": "audio/pcm", "rate": 16000}
        socket.send_json(
            {"type": "session.update", "session": {"type": "transcription", "audio": {"input": {"format": form}}}}
        )
        assert socket.receive_json()["session"]["audio"]["input"]["format"] == form
        socket.send_json({"type": "response.create", "event_id": "mine"})
        error = socket.receive_json()
        assert error["type"] == "error" and error["error"]["event_id"] == "mine"
        sound = speech()
        for start in range(0, len(sound), 3200):
            audio = base64.b64encode(sound[start : start + 3200]).decode()
            socket.send_json({"type": "input_audio_buffer.append", "audio": audio})
        events = until(socket, "conversation.item.input_audio_transcription.completed")
    assert events[0]["type"] == "input_audio_buffer.speech_started"
    assert events[-1]["transcript"] == "three eleven one"
    deltas = [event["delta"] for event in events if event["type"].endswith(".delta")]
    assert "".join(deltas) == events[-1]["transcript"]
    assert len({event["item_id"] for event in events if "item_id" in event}) == 1


DEEP = "[" * 100_000


@pytest.mark.parametrize("message", ["", "[", "[]", DEEP, '{"rate": NaN}', '{"rate": 1e999}', r'{"model": "\ud800"}'])
def test_invalid_json_in_the_first_message_is_refused(
    http: TestClient, caplog: pytest.LogCaptureFixture, message: str
) -> None:
    with http.websocket_connect("/live/listen") as socket:
        socket.send_text(message)
        assert re.search("is not (JSON|a JSON object);", socket.receive_json()["sentence"])
    assert not caplog.records


@pytest.mark.parametrize("message", ["[]", "5", "null", '{"type": ["stop"]}'])
def test_unknown_later_messages_are_ignored(http: TestClient, caplog: pytest.LogCaptureFixture, message: str) -> None:
    with http.websocket_connect("/live/listen") as socket:
        socket.send_json({"model": "fake/sense", "rate": 16000})
        socket.send_text(message)
        socket.send_json({"type": "stop"})
        assert [event["type"] for event in until(socket, "end")] == ["ready", "end"]
    assert not caplog.records


@pytest.mark.parametrize("path", ["/live/listen", "/v1/realtime"])
def test_live_recordings_have_separate_slots_and_idle_clients_lose_theirs(
    service: Service, http: TestClient, path: str
) -> None:
    service.gate = Gate(replace(PUBLIC, live=3, live_per_visitor=1, per_address=1, live_idle_seconds=0.5))
    with http.websocket_connect(path) as idle:
        with http.websocket_connect(path) as second:
            error = until(second, "error" if "realtime" in path else "refused")[-1]
            assert "1 live recordings of one visitor" in str(error) and second.receive()["code"] == 1013
        assert http.get("/v1/models").status_code == 200
        assert "nothing came for" in str(until(idle, "error" if "realtime" in path else "refused")[-1])
        assert idle.receive()["code"] == 3008
    service.gate = Gate(replace(PUBLIC, running=0, waiting=0))  # no place for other work
    with http.websocket_connect("/live/listen") as socket:
        socket.send_json({"rate": 16000})
        assert socket.receive_json() == {"type": "ready"}


def test_live_session_without_a_model_reports_all_speech_segments(http: TestClient) -> None:
    """Also the last segment, which no pause ends."""
    with http.websocket_connect("/live/listen") as socket:
        socket.send_json({"rate": 16000})
        socket.send_bytes(speech()[:-32000])
        socket.send_json({"type": "stop"})
        events = until(socket, "end")
    assert [event["type"] for event in events] == ["ready", "began", "spoke", "end"]
    assert events[-1]["seconds"] == pytest.approx(len(speech()) / 32000 - 1, abs=0.01)


def _session(**audio: Any) -> str:
    return json.dumps({"type": "session.update", "session": {"audio": {"input": audio}}})


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (DEEP, "not JSON"),
        ('{"type": "x", "event_id": NaN}', "not JSON"),
        (r'{"type": "x", "event_id": "\ud800"}', "not JSON"),
        ('{"type": {}}', "the event {} is not one of"),
        ('{"type": "session.update", "session": {"audio": "x"}}', "session.audio is 'x'; expected an object"),
        ('{"type": "session.update", "session": {"audio": {"input": [1]}}}', "session.audio.input is [1]"),
        (_session(format="x"), "format is 'x'"),
        (_session(transcription="x"), "transcription is 'x'"),
        (_session(transcription={"model": 5}), "transcription.model is 5"),
        (_session(transcription={"model": "fake/sense", "language": 5}), "transcription.language is 5"),
        (_session(transcription={"model": "fake/sense", "language": ["a"]}), "transcription.language is ['a']"),
        (_session(transcription={"model": "fake/sense", "language": "xx"}), "option language"),
        (_session(transcription={"speed": 2}), "session.audio.input.transcription has the field speed"),
        (_session(turn_detection=[1]), "turn_detection is [1]"),
        (_session(turn_detection=None), "turn_detection is null"),
        (
            _session(turn_detection={"type": "semantic_vad"}),
            "turn_detection.type is 'semantic_vad'; expected server_vad",
        ),
        (_session(turn_detection={"threshold": 0.9}), "turn_detection.threshold is 0.9"),
        (
            _session(turn_detection={"silence_duration_ms": 9}),
            "session.audio.input.turn_detection.silence_duration_ms is 9; expected a whole number from 200",
        ),
        (_session(noise_reduction={"type": "near_field"}), "reduces no noise"),
        (_session(format={"rate": 1}), "format.rate is 1; expected a whole number from 8000"),
        ('{"type": "session.update", "session": {"include": ["x"]}}', "session.include asks"),
        ('{"type": "session.update", "session": {"voice": "x"}}', "session has the field voice"),
        ('{"type": "transcription_session.update", "session": {"input_audio_format": "g711_ulaw"}}', "expected pcm16"),
    ],
)
def test_invalid_realtime_event_is_refused_and_the_session_continues(
    http: TestClient, caplog: pytest.LogCaptureFixture, event: str, sentence: str
) -> None:
    with http.websocket_connect("/v1/realtime?model=fake/sense") as socket:
        assert socket.receive_json()["type"] == "session.created"
        socket.send_text(event)
        assert sentence in socket.receive_json()["error"]["message"]
        socket.send_json({"type": "session.update", "session": {}})
        assert socket.receive_json()["type"] == "session.updated"
    assert not caplog.records


def test_session_update_retains_omitted_settings(http: TestClient) -> None:
    usual = {"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 700}
    with http.websocket_connect("/v1/realtime?model=fake/sense") as socket:
        assert socket.receive_json()["type"] == "session.created"
        for audio in ({"transcription": {"language": "en"}}, {"turn_detection": usual}, {"format": {"rate": 16000}}):
            socket.send_text(_session(**audio))
            settings = socket.receive_json()["session"]["audio"]["input"]
        update = {"input_audio_format": "pcm16", "input_audio_transcription": {"model": "fake/sense"}}
        socket.send_json({"type": "transcription_session.update", "session": update})
        assert socket.receive_json()["session"]["audio"]["input"] == {
            **settings,
            "format": {**settings["format"], "rate": 24000},
        }
    assert settings["transcription"] == {"model": "fake/sense", "language": "en", "prompt": None}
    assert settings["turn_detection"]["silence_duration_ms"] == 700 and settings["format"]["rate"] == 16000


def test_half_a_sample_of_cleared_audio_does_not_spoil_the_next(http: TestClient) -> None:
    with http.websocket_connect("/v1/realtime?model=fake/sense") as socket:
        socket.send_text(_session(format={"rate": 16000}))
        for sound in (b"\1", None, speech()):
            if sound is None:
                socket.send_json({"type": "input_audio_buffer.clear"})
            else:
                audio = base64.b64encode(sound).decode()
                socket.send_json({"type": "input_audio_buffer.append", "audio": audio})
        socket.send_json({"type": "bye"})
        kinds = [event["type"] for event in until(socket, "error")]
    assert "input_audio_buffer.speech_started" in kinds[kinds.index("input_audio_buffer.cleared") :]


def _append(socket: Any, sound: bytes) -> None:
    for start in range(0, len(sound), 200_000):
        audio = base64.b64encode(sound[start : start + 200_000]).decode()
        socket.send_json({"type": "input_audio_buffer.append", "audio": audio})


COMMIT = {"type": "input_audio_buffer.commit", "event_id": "mine"}
COMPLETED = "conversation.item.input_audio_transcription.completed"


def test_commit_of_an_empty_buffer_is_refused_and_the_session_continues(http: TestClient) -> None:
    with http.websocket_connect("/v1/realtime?model=fake/sense") as socket:
        socket.send_text(_session(format={"rate": 16000}))
        for sound in (b"", bytes(3000), speech()[:-16000]):
            _append(socket, sound)
            socket.send_json(COMMIT)
        events = until(socket, COMPLETED)
        socket.send_json(COMMIT)  # nothing came since the last one
        events += until(socket, "error")
    errors = [event["error"] for event in events if event["type"] == "error"]
    assert [error["code"] for error in errors] == ["input_audio_buffer_commit_empty"] * 3
    assert {error["event_id"] for error in errors} == {"mine"} and "has 94 ms" in errors[1]["message"]


def test_commit_that_is_refused_leaves_the_sound_in_the_buffer(http: TestClient) -> None:
    with http.websocket_connect("/v1/realtime?model=fake/sense") as socket:
        socket.send_text(_session(format={"rate": 16000}))
        sound = speech()[:-16000]
        for start in range(0, 3200 * 2, 1600):  # 50 ms
            _append(socket, sound[start : start + 1600])
            if start in (0, 3200):
                socket.send_json(COMMIT)
        until(socket, "error")
        events = until(socket, COMPLETED)
    assert "error" not in {event["type"] for event in events}
    assert events[-1]["usage"]["seconds"] == pytest.approx(0.15, abs=0.02)


def test_commit_of_sound_without_speech_gives_an_empty_item_after_those_before(http: TestClient) -> None:
    with http.websocket_connect("/v1/realtime?model=fake/sense") as socket:
        socket.send_text(_session(format={"rate": 16000}))
        _append(socket, bytes(16000))
        socket.send_json(COMMIT)
        _append(socket, speech() + bytes(32000))  # a pause ends the speech, and new silence follows
        socket.send_json(COMMIT)
        events = [event for _ in range(3) for event in until(socket, COMPLETED)]
    assert "error" not in {event["type"] for event in events}
    assert [event["transcript"] for event in events if event["type"] == COMPLETED] == ["", "three eleven one", ""]
    assert events[-1]["usage"]["seconds"] == pytest.approx(1.7, abs=0.3)
    committed = [event for event in events if event["type"] == "input_audio_buffer.committed"]
    items = [event["item_id"] for event in committed]
    assert [event["previous_item_id"] for event in committed] == [None, *items[:2]] and len(set(items)) == 3


def test_cleared_buffer_keeps_the_segments_that_have_ended_and_the_time(http: TestClient) -> None:
    with http.websocket_connect("/v1/realtime?model=fake/sense") as socket:
        socket.send_text(_session(format={"rate": 16000}))
        for _ in range(2):
            _append(socket, speech() + speech()[:-32000])  # the second speech is not over
            socket.send_json({"type": "input_audio_buffer.clear"})
        events = [*until(socket, COMPLETED), *until(socket, COMPLETED)]
        socket.send_text(_session(turn_detection={"silence_duration_ms": 300}))
        events += until(socket, "session.updated")
        _append(socket, speech())
        events += until(socket, COMPLETED)
    assert [event["transcript"] for event in events if event["type"] == COMPLETED] == ["three eleven one"] * 3
    starts = [event["audio_start_ms"] for event in events if event["type"].endswith("speech_started")]
    one = len(speech()) / 32  # ms
    expected = [0, one, 2 * one - 1000, 3 * one - 1000, 4 * one - 2000]
    assert np.abs(np.subtract(starts, expected)).max() < 400


def test_audio_before_an_update_is_transcribed_and_each_segment_has_an_item_id(http: TestClient) -> None:
    with http.websocket_connect("/v1/realtime?model=fake/sense") as socket:
        socket.send_text(_session(format={"rate": 16000}))
        for change in ({"turn_detection": {"silence_duration_ms": 300}}, {"format": {"rate": 24000}}):
            audio = base64.b64encode(speech()[:-32000]).decode()  # no pause ends it
            socket.send_json({"type": "input_audio_buffer.append", "audio": audio})
            socket.send_text(_session(**change))
        events = [*until(socket, COMPLETED), *until(socket, COMPLETED)]
        socket.send_json({"type": "input_audio_buffer.append", "audio": audio})
        socket.send_json({"type": "input_audio_buffer.clear"})
        socket.send_json({"type": "input_audio_buffer.append", "audio": audio})
        starts = [until(socket, "input_audio_buffer.speech_started")[-1] for _ in range(2)]
    assert [event["transcript"] for event in events if event["type"] == COMPLETED] == ["three eleven one"] * 2
    items = [event["item_id"] for event in (*events, *starts) if event["type"].endswith("speech_started")]
    assert len(items) == len(set(items)) == 4


def test_subprotocol_of_a_browser_is_accepted(http: TestClient) -> None:
    with http.websocket_connect("/v1/realtime?model=fake/sense", subprotocols=["realtime", "other"]) as socket:
        assert socket.accepted_subprotocol == "realtime" and socket.receive_json()["type"] == "session.created"


def test_a_megabyte_of_audio_is_taken_at_once_and_no_more(http: TestClient) -> None:
    with http.websocket_connect("/v1/realtime?model=fake/sense") as socket:
        socket.receive_json()
        for size, kind in ((LARGEST_MESSAGE + 3, "error"), (LARGEST_MESSAGE, "input_audio_buffer.cleared")):
            socket.send_json({"type": "input_audio_buffer.append", "audio": base64.b64encode(bytes(size)).decode()})
            socket.send_json({"type": "input_audio_buffer.clear"})
            assert socket.receive_json()["type"] == kind
            if kind == "error":
                socket.receive_json()


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 24000, 44100, 96000])
def test_pcm_decoder_returns_the_full_duration_at_any_sample_rate(rate: int) -> None:
    """The resampler holds back the last samples until `rest` ends the stream."""
    samples = (np.sin(np.arange(rate) * 0.05) * 20000).astype("<i2").tobytes()
    decoder = PcmDecoder(rate)
    pieces = [decoder.samples(samples[start : start + 3333]) for start in range(0, len(samples), 3333)]
    assert abs(sum(map(len, [*pieces, decoder.rest()])) - 16000) <= 1
    repeated = [decoder.samples(samples), decoder.rest()]  # the same samples again after the end of the first stream
    np.testing.assert_allclose(np.concatenate(repeated)[:14000], np.concatenate(pieces)[:14000], atol=1e-6)


def test_websocket_frame_of_more_than_a_megabyte_is_processed_completely(http: TestClient) -> None:
    """A frame of more than a megabyte: 40 s of silence before the speech."""
    with http.websocket_connect("/live/listen") as socket:
        socket.send_json({"model": "fake/sense", "rate": 16000})
        assert socket.receive_json() == {"type": "ready"}
        socket.send_bytes(bytes(40 * 32000) + speech())
        socket.send_json({"type": "stop"})
        end = until(socket, "end")[-1]
    assert end["seconds"] == pytest.approx(40 + len(speech()) / 32000, abs=0.01)


def test_live_recordings_and_their_segments_are_counted(http: TestClient) -> None:
    def figures() -> list[str]:
        return [line.removeprefix("workbench_live_") for line in http.get("/metrics").text.splitlines()]

    model = 'model="fake/sense|pytorch"'
    with http.websocket_connect("/v1/realtime?model=fake/sense") as socket:
        socket.send_text(_session(format={"rate": 16000}))
        _append(socket, speech() * 2)
        for _ in range(2):
            until(socket, COMPLETED)
        open_figures = figures()
    for path, message in (("/v1/realtime?model=nobody", {}), ("/live/listen", {"rate": 1})):
        with http.websocket_connect(path) as socket:
            socket.send_json(message)
            until(socket, "error" if "realtime" in path else "refused")
            socket.receive()
    assert 'open{route="realtime"} 1.0' in open_figures
    assert f'segments_total{{{model},outcome="completed",route="realtime"}} 2.0' in open_figures
    assert any(line.startswith(f'workbench_audio_seconds_total{{{model},route="realtime"}} ') for line in open_figures)
    assert {
        'open{route="realtime"} 0.0',
        'open{route="live"} 0.0',
        f'recordings_total{{{model},route="realtime",status="200"}} 1.0',
        'recordings_total{model="none",route="realtime",status="404"} 1.0',
        'recordings_total{model="none",route="live",status="400"} 1.0',
    } <= {*figures()}
