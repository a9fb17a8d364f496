"""Models on a remote server, from the model card with its address to sessions and the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from tests.runtimes.vllm.remote.fake_server import CHAT, END, MODEL, Answering, FakeServer, Reply, chat_events
from tests.support.processes import PATIENCE, Background, children, eventually
from tests.test_project import HEAVY
from workbench.cli.commands import main
from workbench.core.errors import BadInput, Cancelled, SessionDied, Unavailable
from workbench.core.runtimes import RUNTIMES
from workbench.core.settings import Server, SessionSpec, Settings
from workbench.isolation.loader import why_not
from workbench.registry.budget import PROCESS_BYTES, estimated_bytes, weight_bytes
from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry
from workbench.session.values import Generation, Piece

SOUND = (np.zeros(16000, dtype=np.float32), 16000)


@pytest.fixture(autouse=True)
def cards(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(
        f'[[model]]\nid = "far/{name}"\nfamily = "{family}"\nsource = {{ server = "{server.url}/v1"{fields} }}\n'
        for name, family, fields in (
            ("funasr_nano", "funasr_nano", ""),
            ("fireredasr", "fireredasr", f', model = "{MODEL}"'),
            ("causal_lm", "causal_lm", ""),
            ("sensevoice", "sensevoice", ""),
            ("locked", "causal_lm", ', key = "FAR_KEY"'),
        )
    )
    (tmp_path / "models.toml").write_text(text)
    monkeypatch.setenv("WORKBENCH_MODELS", str(tmp_path / "models.toml"))
    monkeypatch.delenv("FAR_KEY", raising=False)


def test_listing_a_remote_model_sends_no_request(fake: FakeServer) -> None:
    registry = Registry()
    card = registry.card("far/funasr_nano")
    assert registry.availability(card, "vllm").ready and registry.default_runtime(card) == "vllm"
    assert not registry.weights(card, "vllm") and not registry.weights(card, "gguf")
    for runtime in ("pytorch", "gguf"):
        state = registry.availability(card, runtime)
        assert not state.ready and state.reason == f"it runs on the server {card.place}, so it is opened as vllm"
    assert not fake.requests


def test_family_without_autoregressive_part_is_unavailable_on_a_server(fake: FakeServer) -> None:
    registry = Registry()
    state = registry.availability(registry.card("far/sensevoice"), "vllm")
    assert not state.ready and "no autoregressive part" in str(state.reason)
    with pytest.raises(Unavailable, match="far/sensevoice cannot run on vllm: SenseVoice has no autoregressive part"):
        registry.open("far/sensevoice")


def test_remote_model_runs_without_vllm_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.core.packages.find_spec", lambda _: None)
    assert RUNTIMES["vllm"].missing()
    assert why_not("funasr_nano", "vllm") and not why_not("funasr_nano", "vllm", server=True)
    with Registry(isolate=False) as registry, registry.open("far/causal_lm") as session:
        assert session.generate("count").text == "one two"


def test_remote_model_is_unavailable_until_its_key_variable_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(isolate=False)
    state = registry.availability(registry.card("far/locked"), "vllm")
    assert not state.ready and not state.fetches and "FAR_KEY, which is not set" in str(state.reason)
    with pytest.raises(Unavailable, match="FAR_KEY, which is not set"):
        registry.open("far/locked")
    monkeypatch.setenv("FAR_KEY", "secret")
    assert registry.availability(registry.card("far/locked"), "vllm").ready


@pytest.mark.parametrize(
    "setting", [{"dtype": "bfloat16"}, {"max_length": 100}, {"threads": 2}, {"device": "cuda"}, {"eager": False}]
)
def test_settings_decided_by_the_server_are_refused(setting: dict) -> None:
    name, value = next(iter(setting.items()))
    with pytest.raises(
        BadInput, match=f"{name} is {value}, and the server of far/causal_lm decides that; leave it out"
    ):
        Registry(isolate=False).open("far/causal_lm", **setting)


def test_memory_estimate_of_a_remote_session_is_small(server: Server) -> None:
    spec = SessionSpec("far", "causal_lm", "vllm", Path(), Settings(), server)
    assert estimated_bytes(spec) == 0 and weight_bytes(spec) == 0
    speech = SessionSpec("far", "funasr_nano", "vllm", Path(), Settings(), server)
    assert 0 < estimated_bytes(speech) < PROCESS_BYTES / 2, "voice activity detection runs in a process"


def test_remote_speech_session_runs_in_its_own_process(fake: FakeServer) -> None:
    with Registry() as registry, registry.open("far/fireredasr") as session:
        assert session.transcribe(SOUND).tokens == (1, 2, END)
        assert session.session.memory_bytes < PROCESS_BYTES, "torch and vLLM are not loaded for it"
        with pytest.raises(Unavailable, match="a remote server does not show its stages"):
            session.trace(SOUND)
        fake.answers[CHAT] = lambda *_: Reply(pieces=chat_events([(1, "one")])[:2], then="wait")
        stream = session.stream(SOUND)
        for event in stream:
            if getattr(event, "text", "") == "one":
                break
        stream.close()
        assert fake.disconnected.wait(60), "the server notices that the client disconnected"
        assert session.pid, "the process still runs"


def stop_after_one_word(fake: FakeServer) -> Answering:
    """Make the server send one word and then wait; return its original answer."""
    original = fake.answers[CHAT]
    fake.answers[CHAT] = lambda *_: Reply(pieces=chat_events([(1, "one")])[:2], then="wait")
    return original


def start_stream(session: OpenSession) -> Generator[Piece | Generation, None, None]:
    """Returns a stream that has yielded the word."""
    stream = session.generate_stream("count")
    assert any(isinstance(piece, Piece) and piece.text == "one" for piece in stream)
    return stream


def test_a_language_model_on_a_server_has_no_process(fake: FakeServer) -> None:
    children_before = children()
    with Registry() as registry, registry.open("far/causal_lm") as session:
        assert session.generate("count").text == "one two" and session.load_seconds > 0
        assert session.pid is None and children() <= children_before
        [resident] = registry.residents()
        assert (resident.state, resident.memory_bytes, resident.busy) == ("on the server", 0, False)
        with pytest.raises(BadInput, match="far/causal_lm writes text; to transcribe, open a speech model"):
            session.transcribe(SOUND)
        original = stop_after_one_word(fake)
        stream = start_stream(session)
        assert registry.residents()[0].state == "at work" and not registry.unload("far/causal_lm", "vllm")
        stream.close()
        assert fake.disconnected.wait(60), "the server notices that the client disconnected"
        assert registry.unload("far/causal_lm", "vllm") and registry.residents()[0].state == "unloaded"
        fake.answers[CHAT] = original
        assert session.generate("count").text == "one two"
        assert registry.unload_idle(0.0) and registry.residents()[0].state == "unloaded"
    assert registry.residents() == []


def test_cancel_stops_only_the_calls_of_its_own_session(fake: FakeServer) -> None:
    stop_after_one_word(fake)
    with (
        Registry() as registry,
        registry.open("far/causal_lm") as cancelled,
        registry.open("far/causal_lm") as unaffected,
    ):
        assert len(registry.residents()) == 1
        reading = threading.Event()

        def read() -> None:
            stream = start_stream(cancelled)
            reading.set()
            list(stream)

        call, other_stream = Background(read), start_stream(unaffected)
        assert reading.wait(PATIENCE)
        cancelled.cancel()
        error = call.ended().error
        assert isinstance(error, Cancelled) and str(error) == "generating with far/causal_lm was stopped"
        next(other_stream)
        other_stream.close()


def test_closing_ends_calls_to_a_server(fake: FakeServer) -> None:
    stop_after_one_word(fake)
    threads = threading.active_count()
    with Registry() as registry:
        stream = start_stream(registry.open("far/causal_lm"))
        registry.close()
        with pytest.raises(SessionDied, match="the session of far/causal_lm on vllm was closed while generating"):
            list(stream)
    eventually(lambda: threading.active_count() <= threads)


def test_remote_session_imports_no_heavy_library(fake: FakeServer) -> None:
    code = f"""
        import sys
        from workbench.registry.registry import Registry
        with Registry() as registry, registry.open("far/causal_lm") as session:
            assert session.generate("count").text == "one two"
        print(*({HEAVY!r} & sys.modules.keys()))
    """
    process = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True)
    assert (process.returncode, process.stdout.split()) == (0, []), process.stderr


def test_concurrent_calls_reach_the_server_in_parallel(fake: FakeServer) -> None:
    barrier = threading.Barrier(4, timeout=60)

    def answer(*_: object) -> Reply:
        barrier.wait()
        return Reply(pieces=chat_events([(1, "one")]))

    fake.answers[CHAT] = answer
    with Registry() as registry, registry.open("far/causal_lm") as session:
        calls = [Background(lambda: session.generate("count")) for _ in range(4)]
        assert [call.ended().result.text for call in calls] == ["one"] * 4


def test_command_line_lists_and_uses_a_remote_model(
    fake: FakeServer, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    assert main(["models", "--json"]) == 0
    card = {model["id"]: model for model in json.loads(capsys.readouterr().out)}["far/causal_lm"]
    assert card["runtimes"]["vllm"] == {"ready": True, "reason": None}
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    index = lines.index("far/causal_lm: far/causal_lm")
    assert lines[index + 3] == "  vllm: ready"
    assert main(["generate", "count", "--model", "far/causal_lm"]) == 0
    assert capsys.readouterr().out == "one two\n"
    assert main(["convert", "far/causal_lm", "--quantization", "f32", "--out", str(tmp_path / "a.gguf")]) == 2
    assert "runs on the server" in capsys.readouterr().err


def test_command_line_reports_an_unreachable_server_with_exit_code_3(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    text = (tmp_path / "models.toml").read_text().replace(server.url, "http://nobody.invalid:8000")
    (tmp_path / "models.toml").write_text(text)
    assert main(["generate", "count", "--model", "far/causal_lm"]) == 3
    errors = capsys.readouterr().err.strip().splitlines()
    assert errors[-1].startswith(
        "workbench: the server http://nobody.invalid:8000 of far/causal_lm cannot be reached: "
    )
