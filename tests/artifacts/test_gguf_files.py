"""The cache of converted GGUF files: each is made once, reused while its checkpoint is unchanged, and made again after
a change or damage.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.tiny_checkpoints import tiny_sensevoice
from workbench.artifacts import gguf_files, locking, process
from workbench.artifacts.gguf_files import Entry, QuantizationOffer, converted, converted_files, measured, offered
from workbench.artifacts.seals import seal, unbroken
from workbench.core.errors import BadInput, Cancelled, Unavailable, WorkbenchError
from workbench.formats.quantization import TYPES


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "speech-workbench" / "gguf"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return tiny_sensevoice(tmp_path / "tiny")


Child = Callable[[dict[str, Any], str, Any], dict[str, Any]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Replaces the conversion process by a function that writes a few bytes; returns the arguments of its calls."""
    requests: list[dict[str, Any]] = []

    def run(arguments: dict[str, Any], name: str, on_progress: Any = None) -> dict[str, Any]:
        requests.append(arguments)
        if on_progress is not None:
            on_progress(0.5, f"writing {name}")
        sizes = {each: 1000 - 10 * number for number, each in enumerate(TYPES)}
        result: dict[str, Any] = {"sizes": sizes, "outside": []}
        if "files" in arguments:
            chosen = ["f32" if each == "auto" else each for each in arguments["quantizations"]]
            result["paths"] = [arguments["files"][each] for each in chosen]
            for each in chosen:
                Path(arguments["files"][each]).write_bytes(bytes(byte % 251 for byte in range(sizes[each])))
        return result

    monkeypatch.setattr(gguf_files, "run_child", run)
    return requests


def test_real_conversion_writes_a_gguf_of_the_predicted_size_without_importing_torch(
    tiny: Path, cache_home: Path
) -> None:
    progress: list[tuple[float, str]] = []
    code = "import sys; from workbench.artifacts.gguf_files import converted, offered; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "gguf", "transformers"} & set(loaded)
    path = converted(tiny, "sensevoice", "q8_0", lambda *each: progress.append(each))
    assert gguf.GGUFReader(path).fields["workbench.quantization"].contents() == "q8_0"
    assert path.name == "tiny-q8_0.gguf" and path.parent.parent == cache_home
    assert progress and all(0 <= fraction <= 1 for fraction, _ in progress)
    offers = {offer.name: offer for offer in offered(tiny)}
    assert list(offers) == list(TYPES)
    assert offers["q8_0"] == QuantizationOffer("q8_0", path.stat().st_size, True, False)
    assert offers["f32"].default and not offers["f32"].converted
    size = offers["f32"].nbytes
    assert converted(tiny, "sensevoice").stat().st_size == size  # predicted to the byte before the conversion
    assert not list(path.parent.glob(".*"))


def test_conversion_errors_of_the_child_process_are_passed_on(tiny: Path, cache_home: Path) -> None:
    (tiny / "model.pt").write_bytes(b"")
    with pytest.raises(BadInput, match="is truncated, damaged or not a torch file"):
        converted(tiny, "sensevoice", "f16")
    assert not [path for path in cache_home.iterdir() if path.is_dir()]
    with pytest.raises(BadInput, match="quantization is 'q4_k'; expected one of"):
        converted(tiny, "sensevoice", "q4_k")


def test_cancelled_conversion_leaves_no_files(tiny: Path, cache_home: Path) -> None:
    def stop(_fraction: float, _activity: str) -> None:
        raise Cancelled("the call was stopped")

    with pytest.raises(Cancelled):
        converted(tiny, "sensevoice", "f16", stop)
    assert not [path for path in cache_home.iterdir() if path.is_dir()]


def test_each_quantisation_is_converted_once(tiny: Path, calls: list[dict[str, Any]]) -> None:
    first = converted(tiny, "sensevoice", "f16")
    assert converted(tiny, "sensevoice", "f16") == first and len(calls) == 1
    assert converted(tiny, "sensevoice") != first and len(calls) == 2
    assert converted(tiny, "sensevoice", "f32") == converted(tiny, "sensevoice") and len(calls) == 2
    assert [offer.converted for offer in measured(tiny, "sensevoice")][:3] == [True, True, False]
    assert len(calls) == 2


def test_several_types_are_converted_at_once(tiny: Path, calls: list[dict[str, Any]]) -> None:
    first = converted(tiny, "sensevoice", "q8_0")
    paths = converted_files(tiny, "sensevoice", ["f16", "q8_0", "auto"])
    assert len(calls) == 2 and paths[1] == first
    assert [path.name for path in paths] == ["tiny-f16.gguf", "tiny-q8_0.gguf", "tiny-f32.gguf"]
    assert paths == [converted(tiny, "sensevoice", each) for each in ("f16", "q8_0", "f32")] and len(calls) == 2
    with pytest.raises(BadInput, match="quantization is 'q4_k'; expected one of"):
        converted_files(tiny, "sensevoice", ["f16", "q4_k"])


def test_sizes_are_computed_once(tiny: Path, calls: list[dict[str, Any]]) -> None:
    before = offered(tiny, "sensevoice")
    assert {offer.nbytes for offer in before} == {None} and [o.name for o in before if o.default] == ["f32"]
    assert [offer.nbytes for offer in measured(tiny, "sensevoice")] == [1000 - 10 * n for n in range(len(TYPES))]
    assert measured(tiny, "sensevoice") == offered(tiny, "sensevoice") and len(calls) == 1
    assert "files" not in calls[0]
    assert all(offer == QuantizationOffer(offer.name, None, False, False) for offer in offered(None))


def test_concurrent_requests_for_one_file_convert_once(
    tiny: Path, calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locking, "WAIT_SECONDS", 0.01)
    started, waiting_reported = threading.Event(), threading.Event()
    run = gguf_files.run_child

    def slow(*arguments: Any) -> dict[str, Any]:
        started.set()
        assert waiting_reported.wait(30)
        return run(*arguments)

    monkeypatch.setattr(gguf_files, "run_child", slow)
    paths: list[Path] = []
    first = threading.Thread(target=lambda: paths.append(converted(tiny, "sensevoice", "f16")))
    first.start()
    assert started.wait(30)

    def on_progress(_fraction: float, activity: str) -> None:
        assert "waiting for another conversion of tiny" in activity
        waiting_reported.set()

    paths.append(converted(tiny, "sensevoice", "f16", on_progress))
    first.join(30)
    assert len(calls) == 1 and paths[0] == paths[1]


def test_waiting_for_another_conversion_can_be_cancelled(
    tiny: Path, calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locking, "WAIT_SECONDS", 0.01)

    def stop(_fraction: float, _activity: str) -> None:
        raise Cancelled("the call was stopped")

    entry = Entry.of(tiny, "sensevoice")
    errors: list[Exception] = []

    def convert() -> None:
        try:
            converted(tiny, "sensevoice", "f16", stop)
        except Cancelled as error:
            errors.append(error)

    with entry.locked(None):
        thread = threading.Thread(target=convert)
        thread.start()
        thread.join(30)
    assert len(errors) == 1 and calls == []


def test_a_changed_checkpoint_is_converted_again(
    tiny: Path, cache_home: Path, calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tiny_sensevoice(tiny.parent / "elsewhere" / "tiny")
    of_other = converted(other, "sensevoice", "f16")
    first = converted(tiny, "sensevoice", "f16")
    assert of_other != first and of_other.name == first.name
    os.utime(tiny / "tokens.json", ns=(1, 1))
    second = converted(tiny, "sensevoice", "f16")
    assert second != first and second.is_file() and not first.parent.exists() and of_other.is_file()
    assert not offered(tiny, "sensevoice")[0].converted
    monkeypatch.setattr(gguf_files, "__version__", "999")
    third = converted(tiny, "sensevoice", "f16")
    assert third not in (first, second) and not second.parent.exists() and of_other.is_file()
    assert len(calls) == 4


def test_change_in_an_external_language_model_directory_triggers_conversion(
    tiny: Path, calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tiny.parent / "Qwen2"
    outside.mkdir()
    (outside / "config.json").write_text("{}")
    run = gguf_files.run_child
    monkeypatch.setattr(gguf_files, "run_child", lambda *arguments: {**run(*arguments), "outside": [str(outside)]})
    path = converted(tiny, "fireredasr", "f16")
    assert converted(tiny, "fireredasr", "f16") == path and len(calls) == 1
    os.utime(outside / "config.json", ns=(1, 1))
    assert not any(offer.converted for offer in offered(tiny, "fireredasr"))
    assert converted(tiny, "fireredasr", "f16").is_file() and len(calls) == 2
    shutil.rmtree(outside)
    assert not any(offer.converted for offer in offered(tiny, "fireredasr"))


def test_the_remains_of_an_interrupted_conversion_are_removed(tiny: Path, calls: list[dict[str, Any]]) -> None:
    folder = converted(tiny, "sensevoice", "f16").parent
    (folder / ".workbench-0.part").touch()
    converted(tiny, "sensevoice", "bf16")
    assert sorted(path.name for path in folder.iterdir()) == ["about.json", "tiny-bf16.gguf", "tiny-f16.gguf"]
    (folder / "about.json").write_text("{")  # damaged, so the size of the files is unknown
    assert converted(tiny, "sensevoice", "bf16").is_file()
    assert sorted(path.name for path in folder.iterdir()) == ["about.json", "tiny-bf16.gguf"]


def damages(content: bytes) -> list[bytes]:
    """A file cut short at its beginning, in its header, in its weights and by one byte, emptied, and zeroed in part."""
    cuts = [content[:count] for count in (0, 1, 3, 4, 100, len(content) // 2, len(content) - 1)]
    return [
        *cuts,
        content + b"x",
        bytes(64) + content[64:],
        content[:200] + bytes(64) + content[264:],
        bytes(len(content)),
    ]


def test_damaged_gguf_is_converted_again_with_a_warning(
    tiny: Path, calls: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    path = converted(tiny, "sensevoice", "f16")
    other = converted(tiny, "sensevoice", "q8_0")
    content = path.read_bytes()
    for number, damaged in enumerate(damages(content), 1):
        path.write_bytes(damaged)
        caplog.clear()
        assert converted(tiny, "sensevoice", "f16") == path and path.read_bytes() == content
        assert len(calls) == 2 + number
        assert caplog.messages == [f"{path} has changed since it was written; it will be made again on the next use"]
    path.write_bytes(content[:-1])
    assert not next(each for each in offered(tiny, "sensevoice") if each.name == "f16").converted
    path.unlink()
    assert converted(tiny, "sensevoice", "f16").read_bytes() == content
    count = len(calls)
    assert converted(tiny, "sensevoice", "q8_0") == other and len(calls) == count, "the other type was left alone"


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_seal_detects_truncation_and_any_changed_byte(tmp_path: Path, data: st.DataObject) -> None:
    content = data.draw(st.binary(min_size=1, max_size=200))
    (path := tmp_path / "file").write_bytes(content)
    sealed = json.loads(json.dumps(seal(path)))
    assert unbroken(path, sealed)
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    assert not unbroken(path, sealed)
    place = data.draw(st.integers(0, len(content) - 1))
    path.write_bytes(content[:place] + bytes([content[place] ^ data.draw(st.integers(1, 255))]) + content[place + 1 :])
    assert not unbroken(path, sealed)
    assert not unbroken(path, None) and not unbroken(path, [1]) and not unbroken(tmp_path / "none", sealed)


@pytest.mark.parametrize(
    "about", ["", "[" * 5000, "[]", '{"outside": 3}', '{"outside": {}, "sizes": {"f16": "x"}}', '{"seals": 3}']
)
def test_damaged_about_json_causes_one_new_conversion(about: str, tiny: Path, calls: list[dict[str, Any]]) -> None:
    path = converted(tiny, "sensevoice", "f16")
    (path.parent / "about.json").write_text(about)
    assert converted(tiny, "sensevoice", "f16") == path and len(calls) == 2
    assert converted(tiny, "sensevoice", "f16") == path and len(calls) == 2


def test_special_characters_in_directory_names_are_replaced_in_file_names(tmp_path: Path) -> None:
    directory = tmp_path / "…/ a model: v1.5 (new)…".replace("/", "-")
    shutil.copytree(tiny_sensevoice(tmp_path / "tiny"), directory)
    entry = Entry.of(directory, "sensevoice")
    assert entry.file("f16").name == "a-model-v1.5-new-f16.gguf"
    assert entry.folder.name.startswith("a-model-v1.5-new-")
    assert Entry.of(directory, "causal_lm").folder != entry.folder
    assert replace(entry, family="causal_lm") != entry
    with pytest.raises(BadInput, match="cannot be read"):
        Entry.of(tmp_path / "missing", "sensevoice")


FAKE = """
import json, os, signal, sys, time
{}
"""


@pytest.mark.parametrize(
    "body, kind, words",
    [
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            WorkbenchError,
            "ended it with signal 9, perhaps because memory ran out",
        ),
        ("sys.exit('no such thing')", WorkbenchError, "ended without a result: no such thing"),
        ("os._exit(3)", WorkbenchError, "exit status 3"),
        ("print(json.dumps({'error': 'Unavailable', 'sentence': 'not there'}))", Unavailable, "^not there$"),
        ("print(json.dumps({'error': 'WorkbenchError', 'sentence': 'odd'}))", WorkbenchError, "of it failed: odd"),
    ],
)
def test_failed_child_process_raises_an_error_with_the_cause(
    body: str, kind: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(process, "CHILD", ("-c", FAKE.format(body)))
    with pytest.raises(kind, match=words):
        process.run_child({}, "it")


def test_unresponsive_child_is_killed_when_the_caller_cancels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child stops by itself when its stdin closes; the caller kills one that does not stop."""
    monkeypatch.setattr(process, "ENDING_SECONDS", 0.2)
    monkeypatch.setattr(process, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(process, "CHILD", ("-c", FAKE.format("time.sleep(60)")))
    activities: list[str] = []

    def stop(_fraction: float, activity: str) -> None:
        activities.append(activity)
        if len(activities) == 3:
            raise Cancelled("the call was stopped")

    with pytest.raises(Cancelled):
        process.run_child({}, "it", stop)
    assert activities == ["preparing it"] * 3


def test_cache_that_cannot_be_written_is_an_error_that_names_the_variable_for_another(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(Unavailable, match="could not be written: Not a directory; set XDG_CACHE_HOME to a folder that"):
        converted(tiny, "sensevoice", "q8_0")
