"""The numbers of one model: rates only where something was scored."""

from __future__ import annotations

from workbench.evaluation.rows import Result
from workbench.evaluation.summary import summary_of


def test_there_is_no_rate_where_every_recording_failed() -> None:
    failed = [Result(id=name, model="m", text="", error="it is no sound file") for name in "ab"]
    found = summary_of("m", failed)
    assert (found.recordings, found.failed, found.wer, found.cer) == (2, 2, None, None)
