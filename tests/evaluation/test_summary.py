"""The summary of one model: error rates exist only where a recording was scored."""

from __future__ import annotations

from workbench.evaluation.rows import Result, scores_of
from workbench.evaluation.summary import summary_of
from workbench.text.rates import score


def test_summary_has_no_error_rate_if_every_recording_failed() -> None:
    failed = [Result(id=name, model="m", text="", error="it is no sound file") for name in "ab"]
    found = summary_of("m", failed)
    assert (found.recordings, found.failed, found.wer, found.cer) == (2, 2, None, None)


def test_speed_counts_scored_recordings_only() -> None:
    """Ten seconds of sound in four of computing; what failed took time too."""
    scores = scores_of(score("one two", "one too"))
    done = Result("a", "m", "one too", audio_seconds=10.0, scores=scores, measured={"compute_seconds": 3.0})
    failed = Result("b", "m", "", error="no sound", measured={"compute_seconds": 1.0, "memory_bytes": 7})
    found = summary_of("m", [done, failed])
    assert (found.rtfx, found.audio_seconds, found.compute_seconds) == (2.5, 10.0, 4.0)
    assert (found.wer, found.memory_bytes, found.cpu_seconds) == (0.5, 7, None)
    assert summary_of("m", []).rtfx is None
