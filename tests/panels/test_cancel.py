"""Runs that their users can stop."""

from __future__ import annotations

import pytest

from panels.running.cancel import ActiveRuns


def test_only_the_run_of_that_user_is_stopped() -> None:
    runs = ActiveRuns()
    with runs.run("one") as one, runs.run("other") as other:
        runs.stop("one")
        assert one.is_set() and not other.is_set()
    assert other.is_set(), "a run that ended needs no more work"
    runs.stop("one")  # none is left


def test_of_two_runs_the_later_is_stopped_and_an_end_of_the_earlier_leaves_it() -> None:
    runs = ActiveRuns()
    with runs.run("one") as earlier:
        later = runs.run("one")
        second = later.__enter__()
    assert earlier.is_set() and not second.is_set()
    runs.stop("one")
    assert second.is_set()
    later.__exit__(None, None, None)


def test_a_run_that_fails_is_over() -> None:
    runs = ActiveRuns()
    with pytest.raises(ZeroDivisionError), runs.run("one") as stop:
        raise ZeroDivisionError
    assert stop.is_set()
