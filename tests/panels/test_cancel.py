"""The stop flags of active runs, one per user."""

from __future__ import annotations

import pytest

from panels.running.cancel import ActiveRuns


def test_stop_affects_only_the_run_of_that_user() -> None:
    runs = ActiveRuns()
    with runs.run("one") as stop, runs.run("other") as other_stop:
        runs.stop("one")
        assert stop.is_set() and not other_stop.is_set()
    assert other_stop.is_set(), "a run that ended needs no more work"
    runs.stop("one")  # no run is left


def test_later_run_can_be_stopped_after_the_earlier_run_has_ended() -> None:
    runs = ActiveRuns()
    with runs.run("one") as earlier:
        later = runs.run("one")
        second = later.__enter__()
    assert earlier.is_set() and not second.is_set()
    runs.stop("one")
    assert second.is_set()
    later.__exit__(None, None, None)


def test_failed_run_is_marked_as_stopped() -> None:
    runs = ActiveRuns()
    with pytest.raises(ZeroDivisionError), runs.run("one") as stop:
        raise ZeroDivisionError
    assert stop.is_set()


def test_earlier_run_is_not_the_latest_after_the_later_run_has_ended() -> None:
    runs = ActiveRuns()
    with runs.run("one") as earlier:
        assert runs.is_latest("one", earlier)
        with runs.run("one") as later:
            assert runs.is_latest("one", later)
        assert not runs.is_latest("one", earlier)
