"""The line is bounded and fair: whoever sends much waits behind whoever sends little."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.waits import until
from workbench.core.errors import Busy, Cancelled, WorkbenchError
from workbench.core.visitors import Visitor, Work
from workbench.serving.limits import LOCAL
from workbench.serving.line import Line

PATIENCE = 20.0


def visitor(name: str) -> Visitor:
    return Visitor(f"10.0.0.{ord(name)}", name)


def order_of(line: Line, asked: list[tuple[str, str]]) -> list[str]:
    """Returns the visitors in the order in which they are served, after one call that holds everybody up."""
    served: list[str] = []
    first = Work(visitor("*"))

    def ask(name: str, resource: str) -> None:
        with line.turn(Work(visitor(name)), resource):
            served.append(name)

    threads = []
    with line.turn(first, "model"):
        for count, (name, resource) in enumerate(asked, 1):
            threads.append(threading.Thread(target=ask, args=(name, resource)))
            threads[-1].start()
            until(lambda count=count: line.waiting == count)  # type: ignore[misc]
    for thread in threads:
        thread.join(PATIENCE)
    return served


def test_a_visitor_with_many_calls_waits_behind_one_with_one() -> None:
    line = Line(LOCAL)
    assert order_of(line, [("a", "model")] * 5 + [("b", "model")])[:2] == ["a", "b"]
    assert line.running == line.waiting == 0


def test_a_busy_model_does_not_hold_up_another() -> None:
    line = Line(replace(LOCAL, running=2))
    with line.turn(Work(visitor("a")), "model"), line.turn(Work(visitor("b")), "other"):
        assert line.running == 2


def test_full_lines_are_refused_with_a_sentence_and_a_time() -> None:
    line = Line(replace(LOCAL, waiting_per_visitor=1, waiting=2, per_address=1))
    stop = threading.Event()
    with line.turn(Work(visitor("a")), "model"):
        threads = []
        for count, name in enumerate("bc", 1):
            work = Work(visitor(name), stop)

            def wait(work: Work = work) -> None:
                with pytest.raises(Cancelled), line.turn(work, "model"):
                    pass

            threads.append(threading.Thread(target=wait))
            threads[-1].start()
            until(lambda count=count: line.waiting == count)  # type: ignore[misc]
        with pytest.raises(Busy, match="1 of your calls wait already"), line.turn(Work(visitor("b")), "model"):
            pass
        with pytest.raises(Busy, match="2 calls wait on this server") as full, line.turn(Work(visitor("d")), "model"):
            pass
        assert full.value.retry_seconds > 0
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert line.waiting == 0


def test_a_wait_tells_the_place_and_the_time_and_ends_at_its_deadline() -> None:
    line, told = Line(LOCAL), []
    work = Work(visitor("b"), deadline=0.0, allowed_seconds=600.0)
    with line.turn(Work(visitor("a")), "model"):
        with pytest.raises(WorkbenchError, match="longer than the 10 min"), line.turn(work, "model"):
            pass

        def tell(_: float, sentence: str) -> None:
            told.append(sentence)
            raise Cancelled("enough")

        with pytest.raises(Cancelled), line.turn(Work(visitor("b")), "model", tell=tell):
            pass
    assert told == ["waiting in the line: you are next, about 2 s"]


def test_a_call_inside_a_call_does_not_wait_for_a_place() -> None:
    line, work = Line(replace(LOCAL, running=1)), Work(visitor("a"))
    with line.turn(work, "model"), line.turn(work, "other"):
        assert line.running == 1


def test_a_long_call_lets_others_go_between_its_stretches() -> None:
    line, happened = Line(LOCAL), []
    long, short = Work(visitor("a")), Work(visitor("b"))

    def ask() -> None:
        with line.turn(short, "model"):
            happened.append("short")

    with line.turn(long, "model") as turn:
        thread = threading.Thread(target=ask)
        thread.start()
        until(lambda: turn.wanted)
        happened.append("first stretch")
        turn.let_go()
        turn.take_back(long)
        happened.append("second stretch")
        assert not turn.wanted
        thread.join(PATIENCE)
    assert happened == ["first stretch", "short", "second stretch"]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=9))
def test_between_two_calls_of_a_visitor_every_other_that_waits_has_one(names: list[str]) -> None:
    served = order_of(Line(LOCAL), [(name, "model") for name in names])
    assert sorted(served) == sorted(names)
    for place, name in enumerate(served):
        later = served.index(name, place + 1) if name in served[place + 1 :] else None
        if later is not None:
            assert set(served[later:]) - {name} <= set(served[place + 1 : later])
