"""The summary of one model: error rates exist only where a recording was scored."""

from __future__ import annotations

from workbench.evaluation.rows import Result, scores_of
from workbench.evaluation.summary import summary_of
from workbench.text.rates import score


def test_summary_has_no_error_rate_if_every_recording_failed() -> None:
    failed = [Result(id=name, model="m", text="", error="it is no sound file") for name in "ab"]
    summary = summary_of("m", failed)
    assert (summary.recordings, summary.failed, summary.wer, summary.cer) == (2, 2, None, None)


def test_speed_counts_scored_recordings_only() -> None:
    """Ten seconds of sound take four of computing, which include the time of the failed recording."""
    scores = scores_of(score("one two", "one too"))
    scored = Result("a", "m", "one too", audio_seconds=10.0, scores=scores, measured={"compute_seconds": 3.0})
    failed = Result("b", "m", "", error="no sound", measured={"compute_seconds": 1.0, "memory_bytes": 7})
    summary = summary_of("m", [scored, failed])
    assert (summary.rtfx, summary.audio_seconds, summary.compute_seconds) == (2.5, 10.0, 4.0)
    assert (summary.wer, summary.memory_bytes, summary.cpu_seconds) == (0.5, 7, None)
    assert summary_of("m", []).rtfx is None
