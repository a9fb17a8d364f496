"""Environment variables set for vLLM's processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workbench.runtimes.vllm.engine.environment import COMPILED, DEFAULTS, UNCOMPILED, environment
from workbench.system.processors import THREADS
from workbench.system.user_cache import user_cache


def test_environment_variables_are_set_only_within_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*DEFAULTS, THREADS):
        monkeypatch.delenv(name, raising=False)
    variables = dict(os.environ)
    with environment(3):
        assert os.environ["VLLM_NO_USAGE_STATS"] == "1" and os.environ[THREADS] == "3"
        assert DEFAULTS.items() <= os.environ.items()
    assert dict(os.environ) == variables


def test_compilation_is_disabled_in_eager_mode_and_cached_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    [name] = UNCOMPILED
    monkeypatch.delenv(name, raising=False)
    with environment(None, eager=True):
        assert os.environ[name] == "1"
    monkeypatch.delenv(COMPILED, raising=False)
    with environment(None, eager=False):
        assert name not in os.environ
        assert Path(os.environ[COMPILED]).parent == user_cache(), (
            "the cache is in the user's cache folder, not in the temporary one"
        )


def test_variables_set_by_the_user_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_LOGGING_COLOR", "1")
    monkeypatch.setenv(THREADS, "7")
    with environment(None):
        assert (os.environ["VLLM_LOGGING_COLOR"], os.environ[THREADS]) == ("1", "7")
    with environment(2):
        assert os.environ[THREADS] == "2", "an explicit number of threads takes precedence"
    assert os.environ[THREADS] == "7"


def test_a_thread_for_each_core_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(THREADS, raising=False)
    with environment(None):
        assert int(os.environ[THREADS]) == len(os.sched_getaffinity(0))
    assert THREADS not in os.environ
