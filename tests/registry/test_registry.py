"""The registry: availability of models, sessions that share workers, and their lifetime."""

from __future__ import annotations

import gc
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.support.gguf_files import funasr_vad
from tests.support.processes import PATIENCE, Background, children, eventually, gone
from tests.support.shared_data import shared
from tests.support.tiny_checkpoints import LONG, long_noise, noise, tiny_sensevoice
from tests.support.tiny_language import tiny_language
from tests.support.user_cards import AddCard
from workbench.core.errors import BadInput, SessionDied
from workbench.families import FAMILIES
from workbench.registry import settings
from workbench.registry.registry import Registry
from workbench.session.protocols import Session
from workbench.session.values import Generation, Progress, Transcript


def loaded_models(registry: Registry) -> list[str]:
    return [each.model for each in registry.residents() if each.memory_bytes]


# Sessions.


def test_session_transcribes_traces_and_frees_its_memory_on_unload(registry: Registry, tmp_path: Path) -> None:
    with registry.open(tiny_sensevoice(tmp_path / "tiny"), threads=1) as session:
        assert isinstance(session, Session)
        transcript = session.transcribe(noise(2.0))
        assert transcript.model == str(tmp_path / "tiny") and transcript.text
        assert transcript.load_seconds == session.load_seconds > 0.02, "the load includes the start of the process"
        trace = session.trace(noise(2.0), stages="encoder.output, tokens")
        assert list(trace) == ["encoder.output", "tokens"] and tuple(trace["tokens"]) == transcript.tokens
        pid = session.pid
        [resident] = registry.residents()
        assert resident.memory_bytes == pytest.approx(psutil.Process(pid).memory_info().rss, rel=0.2)
        assert resident.memory_bytes > 100 << 20 and not resident.busy
        assert registry.unload(transcript.model, "pytorch")
        assert pid and gone(pid) and session.pid is None
        assert [each.memory_bytes for each in registry.residents()] == [0]
        assert session.transcribe(noise(2.0)).text == transcript.text
    assert registry.residents() == []


def test_unknown_device_is_refused(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="device is 'abacus'; expected a name such as cpu"):
        registry.open(tiny_sensevoice(tmp_path / "tiny"), device="abacus")
    assert registry.residents() == []


def test_sessions_of_one_model_share_a_worker_until_the_last_closes(models: list[str], registry: Registry) -> None:
    first, second = registry.open("one"), registry.open("one")
    other_session = registry.open("one", threads=1)
    assert first.pid == second.pid != other_session.pid and len(registry.residents()) == 2
    first.close()
    first.close()
    with pytest.raises(BadInput, match="the session of one is closed; open it again"):
        first.transcribe("x")
    assert second.transcribe("x").text.endswith("/x")
    pid = second.pid
    second.close()
    assert pid and gone(pid) and [each.model for each in registry.residents()] == ["one"]
    other_session.close()
    assert registry.residents() == []


def test_closing_one_session_does_not_stop_another_on_the_same_worker(models: list[str], registry: Registry) -> None:
    first, second = registry.open("one"), registry.open("one")
    with closing(first.stream("x", do="many")) as events:
        next(events)
        second.close()
        assert isinstance(next(events), Progress)
        first.close()
        with pytest.raises(SessionDied, match="was closed while transcribing"):
            list(events)


def test_opening_from_many_threads_starts_one_process(models: list[str], registry: Registry) -> None:
    calls = [Background(lambda: registry.open("one")) for _ in range(4)]
    sessions = [call.ended().result for call in calls]
    assert len({session.pid for session in sessions}) == 1
    for session in sessions:
        session.close()
    assert registry.residents() == []


def test_batches_and_generations_report_the_load_time(models: list[str], registry: Registry) -> None:
    with registry.open("one") as session:
        assert isinstance(session, Session) and not session.reads_text
        transcripts = session.transcribe_batch(["a.wav", "b.wav"])
        assert [Path(each.text).name for each in transcripts] == ["a.wav", "b.wav"]
        assert {each.load_seconds for each in transcripts} == {session.load_seconds} != {0.0}
        numbers = [number for number, _ in session.stream_batch(["a.wav", "refuse.wav"])]
        assert sorted(set(numbers)) == [0, 1]
        *pieces, generation = session.generate_stream("go on")
        assert isinstance(generation, Generation) and len(pieces) == 3
        assert (generation.text, generation.load_seconds) == ("go on", session.load_seconds)
        assert session.generate("go on").tokens == generation.tokens


def test_dtype_unsupported_by_the_family_is_refused(
    models: list[str], registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.open("one", dtype="bfloat16").close()
    monkeypatch.setattr(settings, "FAMILIES", {**FAMILIES, "sensevoice": replace(FAMILIES["sensevoice"], mixed=False)})
    words = r"^dtype is bfloat16, and one does not compute in it; expected float32 or float64$"
    with pytest.raises(BadInput, match=words):
        registry.open("one", dtype="bfloat16")
    with pytest.raises(BadInput, match=r"^dtype is 'int8'; expected one of auto, float32, bfloat16, float16, float64$"):
        registry.open("one", dtype="int8")
    assert registry.residents() == []


def test_float64_is_accepted_on_pytorch_only(models: list[str], registry: Registry) -> None:
    registry.open("one", dtype="float64").close()
    words = r"^dtype is float64, and gguf has no such setting; leave it out, or choose pytorch$"
    with pytest.raises(BadInput, match=words):
        registry.open("one", "gguf", dtype="float64")
    words = r"^dtype is float64, and vllm does not compute in it; leave it out, or choose pytorch$"
    with pytest.raises(BadInput, match=words):
        registry.open(str(tiny_language(Path("written"))), "vllm", dtype="float64")


def test_opening_a_busy_model_does_not_wait(models: list[str], registry: Registry) -> None:
    session = registry.open("one")
    with closing(session.stream("x", do="many")) as events:
        next(events)
        registry.open("one").close()
        assert registry.residents()[0].busy and registry.residents()[0].idle_seconds == 0.0


def test_model_that_fails_to_load_is_not_listed_as_resident(
    registry: Registry, add_card: AddCard, fake: None, tmp_path: Path
) -> None:
    add_card("refuse", tiny_sensevoice(tmp_path / "tiny"))
    with pytest.raises(BadInput, match="the fake does not load"):
        registry.open("refuse")
    assert registry.residents() == []


def test_cancel_stops_a_call_in_another_thread(models: list[str], registry: Registry) -> None:
    session = registry.open("one")
    started = threading.Event()

    def listen() -> None:
        for _ in session.stream("x", do="many"):
            started.set()

    call = Background(listen)
    assert started.wait(PATIENCE)
    session.cancel()
    assert type(call.ended().error).__name__ == "Cancelled"


# The end.


def test_closed_registry_ends_all_workers_and_refuses_to_open(models: list[str]) -> None:
    children_before = children()
    registry = Registry()
    session = registry.open("one")
    stream = registry.open("two").stream("x", do="many")
    next(stream)
    registry.close()
    registry.close()
    assert children() <= children_before
    with pytest.raises(BadInput, match="the registry is closed"):
        registry.open("three")
    with pytest.raises(BadInput, match="the session of one is closed"):
        session.transcribe("x")
    with pytest.raises(SessionDied, match="was closed"):
        list(stream)
    session.close()


def test_closing_the_registry_during_loading_leaves_no_worker(models: list[str]) -> None:
    registry = Registry()
    opening = Background(lambda: registry.open("never"))
    eventually(lambda: bool(loaded_models(registry)))
    [child] = [
        child for child in psutil.Process().children() if "tests.support.fake_worker" in " ".join(child.cmdline())
    ]
    registry.close()
    assert isinstance(opening.ended().error, SessionDied) and gone(child.pid)


# Options that name models.


def test_vad_option_resolves_a_model_id_to_its_directory(
    registry: Registry, add_card: AddCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = shared("fsmn-vad")
    add_card("my-vad", directory, family="fsmn_vad")
    assert registry.resolve_options({"vad": "my-vad", "itn": True}) == {"vad": str(directory.resolve()), "itn": True}
    for built_in in ({"vad": "auto"}, {"vad": "silero"}, {"vad": "none"}, {}, {"vad": 7}):
        assert registry.resolve_options(built_in) == built_in


def test_a_voice_activity_model_may_be_a_gguf_file(registry: Registry, tmp_path: Path) -> None:
    encoder = dict.fromkeys(("input_affine_dim", "linear_dim", "proj_dim", "output_affine_dim", "output_dim"), 16)
    path = funasr_vad(tmp_path / "vad.gguf", {"input_dim": 400, "fsmn_layers": 1, "lorder": 2, **encoder})
    assert registry.resolve_options({"vad": str(path)}) == registry.resolve_options({"vad": path}) == {"vad": str(path)}


@pytest.mark.parametrize("vad", ["silreo", "", "x" * 5000])
def test_unknown_vad_model_raises_one_line_error(registry: Registry, vad: str) -> None:
    expected = "expected auto, silero, none, or the id, directory or GGUF file of an FSMN-VAD$"
    with pytest.raises(BadInput, match=rf"^option vad is '{vad}'; {expected}"):
        registry.resolve_options({"vad": vad})


def test_speech_recogniser_is_refused_as_vad_model(registry: Registry, tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "tiny")
    for vad in (str(directory), directory):
        with pytest.raises(BadInput, match=r"^option vad is '.*', a model of the family sensevoice; expected auto, "):
            registry.resolve_options({"vad": vad})


# In this process.


def test_model_runs_in_the_same_process_without_isolation(tmp_path: Path) -> None:
    children_before = children()
    with Registry(isolate=False) as registry:
        with registry.open(tiny_sensevoice(tmp_path / "tiny")) as session:
            transcript = session.transcribe(noise(2.0))
            assert isinstance(transcript, Transcript) and session.pid is None
            assert transcript.load_seconds == session.load_seconds > 0
            assert list(session.trace(noise(2.0), stages="text")) == ["text"]
        with pytest.raises(BadInput, match="is closed; open it again"):
            session.transcribe(noise(2.0))
        open_session = registry.open(tmp_path / "tiny")
        with pytest.raises(BadInput, match=r"threads is -1"):
            registry.open(tmp_path / "tiny", threads=-1)
    with pytest.raises(BadInput, match="is closed; open it again"):
        open_session.transcribe(noise(2.0))
    assert children() <= children_before


def test_garbage_collected_stream_frees_the_session(registry: Registry, tmp_path: Path) -> None:
    session = registry.open(tiny_sensevoice(tmp_path / "tiny"))
    events = session.stream(long_noise(), **LONG)
    next(events)
    del events
    gc.collect()
    assert session.transcribe(noise(2.0)).text


def test_vllm_opens_the_converted_checkpoint_directory(
    registry: Registry, tmp_path: Path, fake: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(123))
    calls: list[tuple[str, str]] = []

    def convert(directory: Path, family: str, _on_progress: object) -> Path:
        calls.append((directory.name, family))
        return tmp_path

    monkeypatch.setattr("workbench.registry.resolve.vllm_directory", convert)
    monkeypatch.setattr("workbench.core.runtimes.Runtime.missing", lambda *_: None)
    with registry.open("demo/funasr-nano", runtime="vllm") as session:
        assert session.weight_bytes == 123
    assert calls == [("demo-funasr-nano", "funasr_nano")]
    with registry.open("demo/funasr-nano", runtime="pytorch") as session:
        assert session.weight_bytes > 1 << 20 and len(calls) == 1
