"""The trace of a session: its stages and metadata, files, substituted stages, and errors for missing stages."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.tiny_checkpoints import noise, tiny_sensevoice
from workbench.core.errors import BadInput, Cancelled
from workbench.core.progress import listening
from workbench.core.settings import Settings
from workbench.pipelines.tracing import make_trace, substituted_stages, substitution_meta
from workbench.runtimes.pytorch.sensevoice import open_session
from workbench.trace.read import StoredTrace
from workbench.trace.recorder import stage_digest
from workbench.trace.trace import Trace


def test_trace_metadata_names_model_runtime_dtype_options_and_input(tmp_path: Path) -> None:
    session = open_session(tiny_sensevoice(tmp_path / "it"), "tiny", Settings())
    trace = make_trace(session, {"a": np.ones(2)}, "*", "q8_0", {"itn": True}, input_digest="d", audio_seconds=1.5)
    assert list(trace) == ["a"]
    versions = trace.meta.pop("versions")
    assert trace.meta == {
        "model": "tiny", "runtime": "pytorch", "dtype": "q8_0", "options": {"itn": True}, "input_digest": "d",
        "audio_seconds": 1.5,
    }  # fmt: skip
    assert json.loads(json.dumps(versions)) == versions and versions["numpy"] == np.__version__
    with pytest.raises(BadInput, match=r"no stage of tiny on pytorch matches 'b\*'"):
        session.trace(noise(1.0), "b*")


def test_trace_written_to_a_file_equals_the_returned_trace(tmp_path: Path) -> None:
    session = open_session(tiny_sensevoice(tmp_path / "it"), "tiny", Settings())
    path = tmp_path / "t.safetensors"
    returned, stored = session.trace(noise(1.0)), session.trace(noise(1.0), out=path)
    assert isinstance(stored, StoredTrace) and list(stored) == list(returned) and stored.meta == returned.meta
    for stage in returned:
        np.testing.assert_array_equal(stored[stage], returned[stage])
    with pytest.raises(BadInput, match="cannot be written to"):
        session.trace(noise(1.0), out=tmp_path / "none" / "t.safetensors")
    with pytest.raises(BadInput, match=r"no stage of tiny on pytorch matches 'b\*'"):
        session.trace(noise(1.0), "b*", out=tmp_path / "other.safetensors")
    assert [file.name for file in tmp_path.glob("*.safetensors*")] == ["t.safetensors"]


def test_cancelled_trace_leaves_no_file(tmp_path: Path) -> None:
    session = open_session(tiny_sensevoice(tmp_path / "it"), "tiny", Settings())

    def cancel(fraction: float, activity: str) -> None:
        raise Cancelled(activity)

    with listening(cancel), pytest.raises(Cancelled, match=r"writing t\.safetensors"):
        session.trace(noise(1.0), out=tmp_path / "t.safetensors")
    assert not list(tmp_path.glob("*.safetensors*"))


def test_substituted_stages_are_read_lazily_from_a_file(tmp_path: Path) -> None:
    path = Trace({"a": np.ones(2), "b": np.zeros(3)}, {"input_digest": "d"}).save(tmp_path / "it.safetensors")
    for source in (path, str(path), Trace.load(path)):
        stages = substituted_stages(source, "d")
        assert stages is not None and list(stages) == ["a", "b"] and len(stages) == 2
        assert "a" in stages and "c" not in stages and not stages.used
        with pytest.raises(BadInput, match=r"has none of the stages of this pass \(it has a, b\); expected a trace of"):
            substitution_meta(stages)
        assert stages["b"].tolist() == [0, 0, 0] and substitution_meta(stages) == {
            "isolated": True,
            "given": {"b": stage_digest(np.zeros(3))},
        }
    assert substituted_stages(None, "d") is None and substitution_meta(None) == {}


def test_substituted_stages_of_another_input_are_refused(tmp_path: Path) -> None:
    assert substituted_stages(Trace({"a": np.ones(2)}, {}), "d") is not None
    with pytest.raises(BadInput, match=r"has another input \(digest e, of this one d\); expected a trace of the same"):
        substituted_stages(Trace({"a": np.ones(2)}, {"input_digest": "e"}), "d")
    with pytest.raises(BadInput, match="there is no trace"):
        substituted_stages(tmp_path / "none.safetensors", "d")
