"""The log of an engine: captured output, progress of a start, and the reason of a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.core.errors import Unavailable
from workbench.runtimes.vllm.engine import log
from workbench.runtimes.vllm.engine.log import EngineLog, raised_in, reason_of

FAILED = """\
(EngineCore pid=7) INFO 11-21 18:18:49 [cpu_model_runner.py:68] Starting to load model /m...
(EngineCore pid=7) ERROR 11-21 18:20:11 [core.py:900] EngineCore failed to start.
(EngineCore pid=7) ERROR 11-21 18:20:11 [core.py:900] Traceback (most recent call last):
(EngineCore pid=7) ERROR 11-21 18:20:11 [core.py:900]   File "x.py", line 3, in f
(EngineCore pid=7) ERROR 11-21 18:20:11 [core.py:900]     raise ValueError("no")
(EngineCore pid=7) ERROR 11-21 18:20:11 [core.py:900] ValueError: There is no module or parameter named 'ctc'
Traceback (most recent call last):
RuntimeError: Engine core initialization failed. See root cause above.
"""


def test_output_of_child_processes_is_logged_and_own_output_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    engine_log = EngineLog.open("demo/it")
    assert "demo-it" in engine_log.path.name
    with engine_log.captured():
        child = subprocess.Popen(
            [sys.executable, "-c", "input(); print('later', flush=True)"], stdin=subprocess.PIPE, text=True
        )
        os.write(1, b"meanwhile\n")
    os.write(1, b"own output\n")
    child.communicate("\n")
    assert engine_log.text() == "meanwhile\nlater\n"
    assert capfd.readouterr().out == "own output\n"


def test_the_newest_logs_are_kept() -> None:
    first = EngineLog.open("m")
    for number in range(log.MAX_LOGS + 5):
        old = first.path.parent / f"vllm-old-{number}.log"
        old.touch()
        os.utime(old, (number, number))
    newest = EngineLog.open("m2")
    names = {path.name for path in first.path.parent.iterdir()}
    assert newest.path.name in names and first.path.name in names
    assert "vllm-old-0.log" not in names and f"vllm-old-{log.MAX_LOGS + 4}.log" in names
    assert len(names) <= log.MAX_LOGS + 1


def test_unwritable_log_folder_raises_unavailable(user_folders: Path) -> None:
    user_folders.mkdir()
    (user_folders / "cache").write_text("in the way")
    with pytest.raises(Unavailable, match="the log of the engine cannot be written"):
        EngineLog.open("m")


def test_restarted_engine_uses_only_the_log_text_since_its_start() -> None:
    engine_log = EngineLog.open("m")
    engine_log.path.write_text(FAILED)
    engine_log.begin()
    assert engine_log.text() == "" and engine_log.activity() == "vLLM is being loaded"
    with engine_log.path.open("a") as file:
        file.write("ValueError: another reason\n")
    assert reason_of(RuntimeError("Engine core initialization failed."), engine_log) == "another reason"
    assert FAILED in engine_log.path.read_text(), "the text before the restart stays"


def test_start_activity_is_read_from_the_log() -> None:
    engine_log = EngineLog.open("m")
    assert engine_log.activity() == "vLLM is being loaded"
    engine_log.path.write_text(FAILED)
    assert engine_log.activity() == "vLLM is loading the weights"
    engine_log.path.unlink()
    assert engine_log.activity() == "vLLM is being loaded"


def test_root_cause_of_a_generic_engine_error_is_read_from_the_log() -> None:
    engine_log = EngineLog.open("m")
    engine_log.path.write_text(FAILED)
    error = RuntimeError("Engine core initialization failed. See root cause above. Failed core proc(s): {}")
    assert reason_of(error, engine_log) == "There is no module or parameter named 'ctc'"


@pytest.mark.parametrize("missing", [True, False])
def test_missing_library_of_the_system_is_named(missing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    engine_log = EngineLog.open("m")
    without_kernels = "'_OpNamespace' '_C' object has no attribute 'init_cpu_memory_env'"
    engine_log.path.write_text(f"AttributeError: {without_kernels}\n")
    if missing:
        monkeypatch.setattr(log, "NUMA", "libno-such-library.so.1")
    reason = reason_of(RuntimeError("Engine core initialization failed."), engine_log)
    assert ("needs libno-such-library.so.1, which" in reason) is missing
    assert (reason == without_kernels) is not missing


def test_missing_header_files_of_python_are_named() -> None:
    engine_log = EngineLog.open("m")
    engine_log.path.write_text(
        "(EngineCore pid=7) torch._inductor.exc.InductorError: CppCompileError: C++ compile error\n"
        "(EngineCore pid=7) /tmp/x/c.main.cpp:42:10: fatal error: Python.h: No such file or directory\n"
    )
    reason = reason_of(RuntimeError("Engine core initialization failed."), engine_log)
    assert "apt-get install python3-dev" in reason and "--no-eager" in reason


def test_pydantic_wrapper_text_is_removed_from_the_reason() -> None:
    error = ValueError(
        "1 validation error for ModelConfig\n  Value error, max_model_len is too large [type=value_error, "
        "input_value=ArgsKwargs(...), input_type=ArgsKwargs]\n    For further information visit https://errors"
    )
    assert reason_of(error, EngineLog.open("m")) == "max_model_len is too large"


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (
            "User-specified max_model_len (9000) is greater than the derived max_model_len "
            "(max_position_embeddings=6000.0 or model_max_length=None in model's config.json). To allow overriding",
            "max_length is 9000; expected at most 6000, the positions that the model takes",
        ),
        (
            "To serve at least one request with the model's max seq len (3500), (0.0 GiB KV cache is needed, which is "
            "larger than the available KV cache memory (0.0 GiB). Based on the available memory, the estimated maximum "
            "model length is 896. Try increasing `gpu_memory_utilization`",
            "max_length is 3500, and the memory for keys and values has room for 896; set max_length to at most 896, "
            "or kv_gigabytes to more",
        ),
    ],
)
def test_reasons_about_the_arguments_of_vllm_name_the_settings_of_a_session(reason: str, sentence: str) -> None:
    assert reason_of(ValueError(reason), EngineLog.open("m")) == sentence


def test_reason_of_an_error_without_message_is_its_type() -> None:
    assert reason_of(KeyError(), EngineLog.open("m")) == "KeyError"
    assert raised_in("all is well\n") == ""


def test_a_very_long_reason_is_cut() -> None:
    reason = reason_of(ValueError("word " * 1000), EngineLog.open("m"))
    assert len(reason) < 500 and reason.endswith("word ...")
