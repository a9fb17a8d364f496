"""The cache of directories converted for vLLM: keyed by the contents of the checkpoint, wherever it lies, and made
again when the contents change.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from workbench.artifacts import locking, vllm_directories
from workbench.artifacts.vllm_directories import vllm_directory
from workbench.core.errors import BadInput, Cancelled

Calls = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "speech-workbench" / "vllm"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A checkpoint directory whose files no test reads."""
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.yaml").write_text("model: FunASRNano")
    (tmp_path / "tiny" / "model.pt").write_bytes(b"weights")
    return tmp_path / "tiny"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Replaces the conversion process by a function that writes a file; returns the arguments of its calls."""
    requests: Calls = []

    def run(arguments: dict[str, Any], name: str, on_progress: Any = None) -> dict[str, Any]:
        requests.append(arguments)
        on_progress(0.5, f"writing {name}")
        Path(arguments["served"]).mkdir()
        (Path(arguments["served"]) / "config.json").write_text(name)
        return {"path": arguments["served"], "outside": []}

    monkeypatch.setattr(vllm_directories, "run_child", run)
    return requests


def folders(cache_home: Path) -> list[Path]:
    return [path for path in cache_home.iterdir() if path.is_dir()]


def test_real_conversion_in_a_child_process_imports_no_heavy_library_here(tmp_path: Path, cache_home: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    from tests.support.tiny_funasr_nano import tiny_funasr_nano
    from workbench.families.speech_llm.funasr_nano import read_vllm_funasr_nano

    code = "import sys; from workbench.artifacts.vllm_directories import vllm_directory; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "gguf", "transformers", "vllm", "safetensors"} & set(loaded)
    directory = tiny_funasr_nano(tmp_path / "tiny")
    progress: list[tuple[float, str]] = []
    path = vllm_directory(directory, "funasr_nano", lambda *each: progress.append(each))
    assert path.parent == cache_home and path.name.startswith("tiny-")
    assert read_vllm_funasr_nano(path).adaptor.llm_dim == 32
    assert progress and all(0 <= fraction <= 1 for fraction, _ in progress) and progress[0][1] == "reading tiny"
    progress.clear()
    assert vllm_directory(directory, "funasr_nano", lambda *each: progress.append(each)) == path and not progress
    half = vllm_directory(directory, "causal_lm")
    assert half != path and half.is_dir() and path.is_dir()
    (directory / "model.pt").write_bytes(b"")
    with pytest.raises(BadInput, match="is truncated, damaged or not a torch file"):
        vllm_directory(directory, "funasr_nano")
    assert sorted(folders(cache_home)) == sorted([path, half])


def test_a_language_models_directory_is_used_directly(tmp_path: Path, cache_home: Path, calls: Calls) -> None:
    (tmp_path / "it").mkdir()
    (tmp_path / "it" / "config.json").write_text('{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}')
    (tmp_path / "it" / "model.safetensors").touch()
    (tmp_path / "link").symlink_to(tmp_path / "it")
    assert vllm_directory(tmp_path / "link", "causal_lm") == tmp_path / "it"
    assert not calls and not cache_home.exists()


def test_checkpoints_with_the_same_contents_share_one_directory(tiny: Path, cache_home: Path, calls: Calls) -> None:
    first = vllm_directory(tiny, "funasr_nano")
    other = tiny.parent / "elsewhere" / "tiny"
    shutil.copytree(tiny, other)
    assert vllm_directory(other, "funasr_nano") == first and len(calls) == 1
    (other / "model.pt").write_bytes(b"changed")  # with as many bytes
    second = vllm_directory(other, "funasr_nano")
    assert second != first and first.is_dir() and len(calls) == 2
    (tiny / "model.pt").write_bytes(b"changed")
    assert vllm_directory(tiny, "funasr_nano") == second and len(calls) == 2


def test_directory_of_the_previous_contents_is_removed(tiny: Path, cache_home: Path, calls: Calls) -> None:
    first, half = (vllm_directory(tiny, family) for family in ("funasr_nano", "causal_lm"))
    (tiny / "model.pt").write_bytes(b"changed")
    second = vllm_directory(tiny, "funasr_nano")
    assert sorted(folders(cache_home)) == sorted([half, second]) and not first.exists()


def test_change_in_an_external_language_model_directory_triggers_conversion(
    tiny: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tiny.parent / "Qwen"
    outside.mkdir()
    (outside / "model.safetensors").write_bytes(b"one")
    run = vllm_directories.run_child
    monkeypatch.setattr(
        vllm_directories, "run_child", lambda *arguments: {**run(*arguments), "outside": [str(outside)]}
    )
    first = vllm_directory(tiny, "fireredasr")
    assert vllm_directory(tiny, "fireredasr") == first and len(calls) == 1
    (outside / "model.safetensors").write_bytes(b"two")
    assert vllm_directory(tiny, "fireredasr") == first and len(calls) == 2


def test_the_remains_of_interrupted_runs_are_removed(tiny: Path, cache_home: Path, calls: Calls) -> None:
    first = vllm_directory(tiny, "funasr_nano")
    (cache_home / f".{first.name}.json").unlink()  # killed before the conversion was recorded
    partial = cache_home / f".{first.name}.0123.part"
    partial.mkdir()
    assert vllm_directory(tiny, "funasr_nano") == first and len(calls) == 2 and not partial.exists()


def test_cancelled_conversion_leaves_no_files(tmp_path: Path, cache_home: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    from tests.support.tiny_funasr_nano import tiny_funasr_nano

    directory = tiny_funasr_nano(tmp_path / "tiny")

    def stop(_fraction: float, activity: str) -> None:
        if activity.startswith(("preparing", "writing")):  # activities of the child process
            raise Cancelled("the call was stopped")

    with pytest.raises(Cancelled):
        vllm_directory(directory, "funasr_nano", stop)
    assert not folders(cache_home) and not list(cache_home.glob("*.part"))


def test_concurrent_requests_for_one_directory_convert_once(
    tiny: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locking, "WAIT_SECONDS", 0.01)
    started, waiting_reported = threading.Event(), threading.Event()
    run = vllm_directories.run_child

    def slow(*arguments: Any) -> dict[str, Any]:
        started.set()
        assert waiting_reported.wait(30)
        return run(*arguments)

    monkeypatch.setattr(vllm_directories, "run_child", slow)
    paths: list[Path] = []
    first = threading.Thread(target=lambda: paths.append(vllm_directory(tiny, "funasr_nano")))
    first.start()
    assert started.wait(30)

    def on_progress(_fraction: float, activity: str) -> None:
        if "waiting for another conversion of tiny" in activity:
            waiting_reported.set()

    paths.append(vllm_directory(tiny, "funasr_nano", on_progress))
    first.join(30)
    assert len(calls) == 1 and paths[0] == paths[1]


def test_directory_with_a_damaged_file_is_converted_again_with_a_warning(
    tiny: Path, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    place = vllm_directory(tiny, "funasr_nano")
    file = place / "config.json"
    content = file.read_bytes()
    for number, damaged in enumerate((b"", content[:1], content[:-1], content + b"x", bytes(len(content)), None), 2):
        caplog.clear()
        file.unlink() if damaged is None else file.write_bytes(damaged)
        assert vllm_directory(tiny, "funasr_nano") == place and file.read_bytes() == content
        assert len(calls) == number and caplog.messages == [
            f"{place} has changed since it was written; it will be made again"
        ]
    assert vllm_directory(tiny, "funasr_nano") == place and len(calls) == number


@pytest.mark.parametrize("about", ["", "[]", json.dumps({"outside": 3})])
def test_damaged_json_record_causes_a_new_conversion(about: str, tiny: Path, cache_home: Path, calls: Calls) -> None:
    first = vllm_directory(tiny, "funasr_nano")
    (cache_home / f".{first.name}.json").write_text(about)
    assert vllm_directory(tiny, "funasr_nano") == first and len(calls) == 2
