"""The recorder of a forward pass: which stages it stores, in which order, and substituted stages."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.core.errors import BadInput
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter


def test_wanted_stages_are_recorded_unchanged_and_in_order() -> None:
    recorder = Recorder(StageFilter("b,a*"))
    values = {name: np.arange(n) for n, name in enumerate(("b", "c", "a.2", "a.1"))}
    for name, value in values.items():
        recorder.put(name, value)
    assert list(recorder.stages) == ["b", "a.2", "a.1"]
    assert all(recorder.stages[name] is values[name] for name in recorder.stages)
    assert recorder.wanted("a.9") and not recorder.wanted("c")


def test_recorder_returns_substituted_stages_and_stores_its_own() -> None:
    own, other = np.zeros((3, 4), np.float32), np.ones((3, 4), np.float32)
    recorder = Recorder(StageFilter("a"), {"a": other, "b": other})
    assert recorder.put("a", own) is other and recorder.stages["a"] is own
    assert recorder.put("b", own) is other and "b" not in recorder.stages
    assert recorder.put("c", own) is own
    assert recorder.isolated and not Recorder(StageFilter("a")).isolated
    assert [recorder.needs(stage) for stage in ("a", "b", "c")] == [True, True, False]


def test_substituted_stage_of_wrong_shape_or_dtype_is_refused() -> None:
    recorder = Recorder(StageFilter("*"), {"a": np.zeros((3, 4), np.float32)})
    for shape in ((3, 5), (3,), (1, 3, 4), (2, 4)):
        with pytest.raises(BadInput, match=r"a of the trace to compute from is float32 of the shape \(3, 4\), of this"):
            recorder.put("a", np.zeros(shape, np.float32))
    words = Recorder(StageFilter("*"), {"a": np.full((3, 4), "a")})
    with pytest.raises(BadInput, match=r"expected a trace of the same model and input"):
        words.put("a", np.zeros((3, 4), np.float32))


@pytest.mark.parametrize("stage", ["frontend.lfr", "adaptor.output", "llm.embeddings"])
def test_substituted_frame_stages_may_have_other_row_counts(stage: str) -> None:
    other = np.ones((5, 4), np.float32)
    recorder = Recorder(StageFilter("*"), {stage: other})
    assert recorder.put(stage, np.zeros((3, 4), np.float32)) is other
    with pytest.raises(BadInput, match=stage):
        recorder.put(stage, np.zeros((5, 3), np.float32))
