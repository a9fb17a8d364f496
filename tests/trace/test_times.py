"""Row times of stages in a trace's metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping

from workbench.trace.times import META, RowTimes, row_times, times_meta


class Part:
    @property
    def row_times(self) -> Mapping[str, RowTimes]:
        return {
            "frontend.fbank": RowTimes(0.0, 0.01),
            "frontend.*": RowTimes(0, 0.06),
            "encoder.*": RowTimes(-0.24, 0.06),
        }


def test_row_times_use_the_first_matching_glob() -> None:
    meta = json.loads(json.dumps(times_meta(Part())))
    assert row_times(meta, "frontend.fbank") == (0.0, 0.01) and row_times(meta, "frontend.lfr") == (0.0, 0.06)
    assert row_times(meta, "encoder.layers.3.attention.weights") == RowTimes(-0.24, 0.06)
    assert row_times(meta, "llm.layers.3") is None


def test_missing_row_times_give_none() -> None:
    assert times_meta(object()) == {}
    assert row_times({}, "encoder.output") is None and row_times({META: "other"}, "encoder.output") is None
