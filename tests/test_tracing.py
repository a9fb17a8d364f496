"""The trace of a session: its stages and who computed them; none at all is told of."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.tiny_checkpoints import noise, tiny_sensevoice
from workbench.errors import BadInput
from workbench.opening import Settings
from workbench.runtimes.pytorch.sensevoice import open_session
from workbench.tracing import trace_of


def test_it_says_who_computed_what_of_what(tmp_path: Path) -> None:
    session = open_session(tiny_sensevoice(tmp_path / "it"), "tiny", Settings())
    trace = trace_of(session, {"a": np.ones(2)}, "*", "q8_0", {"itn": True}, input_digest="d", audio_seconds=1.5)
    assert list(trace) == ["a"]
    versions = trace.meta.pop("versions")
    assert trace.meta == {
        "model": "tiny", "runtime": "pytorch", "dtype": "q8_0", "options": {"itn": True}, "input_digest": "d",
        "audio_seconds": 1.5,
    }  # fmt: skip
    assert json.loads(json.dumps(versions)) == versions and versions["numpy"] == np.__version__
    with pytest.raises(BadInput, match=r"no stage of tiny on pytorch matches 'b\*'"):
        session.trace(noise(1.0), "b*")
