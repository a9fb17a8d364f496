"""Capturing stages changes no token or text of any family on PyTorch and ggml, and uses no disk or memory beyond the
requested stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtimes.test_given_stages import FAMILIES, RUNTIMES, open_tiny_session
from workbench.session.protocols import Session
from workbench.trace.recorder import Recorder
from workbench.trace.spill import Spill
from workbench.trace.trace import Trace

SHORT_OPTIONS = {"max_new_tokens": 8}
# Computed as arrays with or without a capture.
AT_HAND = {"llm.embeddings", "predictor.alphas", "predictor.embeddings", "logits"}
NETWORK = ("encoder.", "adaptor.", "predictor.", "decoder.", "llm.", "logits", "ctc.")


@pytest.fixture(scope="module", params=[(family, runtime) for family in FAMILIES for runtime in RUNTIMES], ids="-".join)
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Session, Any, dict[str, Any]]]:
    """A session, an input, and options for short texts."""
    family, runtime = request.param
    write, source = FAMILIES[family]
    options = {} if family in ("sensevoice", "paraformer") else SHORT_OPTIONS
    with closing(open_tiny_session(family, runtime, write(tmp_path_factory.mktemp(family) / "it"))) as session:
        yield session, source, options


def output(session: Session, source: Any, options: dict[str, Any]) -> tuple[tuple[int, ...], str]:
    """Tokens and text without any capture."""
    if isinstance(source, str):
        generation = session.generate(source, **options)
        return generation.tokens, generation.text
    transcript = session.transcribe(source, vad="none", **options)
    return transcript.tokens, transcript.text


def ends(trace: Trace) -> tuple[tuple[int, ...], str]:
    return tuple(trace["tokens"].tolist()), str(trace["text"])


def assert_same(actual: Trace, expected: Trace) -> None:
    assert list(actual) == list(expected)
    for stage in actual:
        np.testing.assert_array_equal(actual[stage], expected[stage], err_msg=stage)


def test_tokens_and_text_are_the_same_with_and_without_capture(case: tuple[Session, Any, dict[str, Any]]) -> None:
    session, source, options = case
    uncaptured = output(session, source, options)
    assert uncaptured[0], "an empty output would prove nothing"
    assert ends(session.trace(source, **options)) == uncaptured
    assert output(session, source, options) == uncaptured, "the output after a trace is the same"


def test_only_requested_stages_are_captured_with_the_same_values(
    case: tuple[Session, Any, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, source, options = case
    full_trace = session.trace(source, **options)
    stages = [stage for stage in full_trace if stage.startswith(NETWORK)]
    recorded = list[str]()
    put, allocate = Recorder.put, Recorder.allocate

    def record_put(self: Recorder, stage: str, value: np.ndarray) -> np.ndarray:
        recorded.append(stage)
        return put(self, stage, value)

    def record_allocation(self: Recorder, stage: str, shape: tuple[int, ...]) -> np.ndarray:
        recorded.append(stage)
        return allocate(self, stage, shape)

    monkeypatch.setattr(Recorder, "put", record_put)
    monkeypatch.setattr(Recorder, "allocate", record_allocation)
    for pattern in {stages[0], stages[len(stages) // 2], stages[-1]}:
        recorded.clear()
        trace = session.trace(source, pattern, **options)
        assert list(trace) == [pattern]
        np.testing.assert_array_equal(trace[pattern], full_trace[pattern])
        assert {stage for stage in recorded if stage.startswith(NETWORK)} - AT_HAND <= {pattern}


def test_spilled_stages_are_the_same_and_temporary_files_are_removed(
    case: tuple[Session, Any, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, source, options = case
    full_trace = session.trace(source, **options)
    tempdir = tmp_path / "tempdir"
    tempdir.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tempdir))
    for name in ("MEMORY_BYTES", "SMALL_BYTES"):
        monkeypatch.setattr(f"workbench.trace.spill.{name}", 1)
    spilled = session.trace(source, **options)
    assert_same(full_trace, spilled)
    assert sum(spilled[stage].base is not None for stage in spilled) > len(spilled) // 2
    assert_same(full_trace, session.trace(source, out=tmp_path / "t.safetensors", **options))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["t.safetensors"]


def test_error_while_capturing_is_raised_and_leaves_no_file(
    case: tuple[Session, Any, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, source, options = case
    uncaptured = output(session, source, options)
    last = [stage for stage in session.trace(source, **options) if stage.startswith(NETWORK)][-1]

    def fail(self: Spill, name: str, *_: Any) -> Any:
        if name == last:
            raise ZeroDivisionError(f"at {name}")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(Spill, "put", fail)
        patch.setattr(Spill, "allocate", fail)
        with pytest.raises(ZeroDivisionError, match=f"^at {last}$"):
            session.trace(source, last, out=tmp_path / "t.safetensors", **options)
    assert not list(tmp_path.iterdir())
    assert output(session, source, options) == uncaptured, "the session still works"
