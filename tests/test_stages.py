"""What is kept of a pass, and in which order."""

from __future__ import annotations

import numpy as np

from workbench.session import StageFilter
from workbench.stages import Recorder


def test_wanted_stages_are_kept_as_they_are_and_in_order() -> None:
    recorder = Recorder(StageFilter("b,a*"))
    values = {name: np.arange(n) for n, name in enumerate(("b", "c", "a.2", "a.1"))}
    for name, value in values.items():
        recorder.put(name, value)
    assert list(recorder.stages) == ["b", "a.2", "a.1"]
    assert all(recorder.stages[name] is values[name] for name in recorder.stages)
    assert recorder.wanted("a.9") and not recorder.wanted("c")
