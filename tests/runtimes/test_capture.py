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

from tests.runtimes.test_given_stages import FAMILIES, RUNTIMES, opened
from workbench.session.protocols import Session
from workbench.trace.recorder import Recorder
from workbench.trace.spill import Spill
from workbench.trace.trace import Trace

SHORT = {"max_new_tokens": 8}
AT_HAND = {"llm.embeddings", "predictor.alphas", "predictor.embeddings", "logits"}  # computed as arrays in any case
NETWORK = ("encoder.", "adaptor.", "predictor.", "decoder.", "llm.", "logits", "ctc.")


@pytest.fixture(scope="module", params=[(family, runtime) for family in FAMILIES for runtime in RUNTIMES], ids="-".join)
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Session, Any, dict[str, Any]]]:
    """A session, an input, and options that keep it short."""
    family, runtime = request.param
    write, source = FAMILIES[family]
    options = {} if family in ("sensevoice", "paraformer") else SHORT
    with closing(opened(family, runtime, write(tmp_path_factory.mktemp(family) / "it"))) as session:
        yield session, source, options


def written(session: Session, source: Any, options: dict[str, Any]) -> tuple[tuple[int, ...], str]:
    """Tokens and text without any capture."""
    if isinstance(source, str):
        generation = session.generate(source, **options)
        return generation.tokens, generation.text
    transcript = session.transcribe(source, vad="none", **options)
    return transcript.tokens, transcript.text


def ends(trace: Trace) -> tuple[tuple[int, ...], str]:
    return tuple(trace["tokens"].tolist()), str(trace["text"])


def assert_same(one: Trace, other: Trace) -> None:
    assert list(one) == list(other)
    for stage in one:
        np.testing.assert_array_equal(one[stage], other[stage], err_msg=stage)


def test_tokens_and_text_are_the_same_with_and_without_capture(case: tuple[Session, Any, dict[str, Any]]) -> None:
    session, source, options = case
    plain = written(session, source, options)
    assert plain[0], "nothing was written, which shows little"
    assert ends(session.trace(source, **options)) == plain
    assert written(session, source, options) == plain, "and afterwards"


def test_only_requested_stages_are_captured_with_the_same_values(
    case: tuple[Session, Any, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, source, options = case
    whole = session.trace(source, **options)
    stages = [stage for stage in whole if stage.startswith(NETWORK)]
    taken = list[str]()
    put, room = Recorder.put, Recorder.room

    def seen(self: Recorder, stage: str, value: np.ndarray) -> np.ndarray:
        taken.append(stage)
        return put(self, stage, value)

    def given_room(self: Recorder, stage: str, shape: tuple[int, ...]) -> np.ndarray:
        taken.append(stage)
        return room(self, stage, shape)

    monkeypatch.setattr(Recorder, "put", seen)
    monkeypatch.setattr(Recorder, "room", given_room)
    for asked in {stages[0], stages[len(stages) // 2], stages[-1]}:
        taken.clear()
        found = session.trace(source, asked, **options)
        assert list(found) == [asked]
        np.testing.assert_array_equal(found[asked], whole[asked])
        assert {stage for stage in taken if stage.startswith(NETWORK)} - AT_HAND <= {asked}


def test_spilled_stages_are_the_same_and_temporary_files_are_removed(
    case: tuple[Session, Any, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, source, options = case
    whole = session.trace(source, **options)
    tempdir = tmp_path / "tempdir"
    tempdir.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tempdir))
    for name in ("MEMORY_BYTES", "SMALL_BYTES"):
        monkeypatch.setattr(f"workbench.trace.spill.{name}", 1)
    spilled = session.trace(source, **options)
    assert_same(whole, spilled)
    assert sum(spilled[stage].base is not None for stage in spilled) > len(spilled) // 2
    assert_same(whole, session.trace(source, out=tmp_path / "t.safetensors", **options))
    assert [each.name for each in tmp_path.rglob("*") if each.is_file()] == ["t.safetensors"]


def test_error_while_capturing_is_raised_and_leaves_no_file(
    case: tuple[Session, Any, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, source, options = case
    plain = written(session, source, options)
    last = [stage for stage in session.trace(source, **options) if stage.startswith(NETWORK)][-1]

    def broken(self: Spill, name: str, *_: Any) -> Any:
        if name == last:
            raise ZeroDivisionError(f"at {name}")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(Spill, "put", broken)
        patch.setattr(Spill, "room", broken)
        with pytest.raises(ZeroDivisionError, match=f"^at {last}$"):
            session.trace(source, last, out=tmp_path / "t.safetensors", **options)
    assert not list(tmp_path.iterdir())
    assert written(session, source, options) == plain, "the session goes on"
