"""Progress bars: shown only in a notebook and only for long work, and removed at the end."""

from __future__ import annotations

import itertools
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support.html_fragments import HOSTILE, checked, text_of
from workbench.display.progress import Bar, notebook_bar


class Display:
    """Stands for IPython's `display`."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def __call__(self, content: dict[str, str], raw: bool, display_id: bool) -> Display:
        assert raw and display_id
        self.shown.append(content["text/html"])
        return self

    def update(self, content: dict[str, str], raw: bool) -> None:
        assert raw
        self.shown.append(content["text/html"])


def test_quick_work_shows_no_bar_and_long_work_few_updates() -> None:
    display, now = Display(), [0.0]
    bar = Bar("Opening", display, clock=lambda: now[0])
    for step in range(200):
        now[0] = step / 100
        bar(step / 200, HOSTILE)
    assert 4 <= len(display.shown) <= 7
    [drawn] = checked(display.shown[0]).iter("progress")
    assert 0.3 < float(drawn.attrib["value"]) < 0.5 and "Opening" in text_of(display.shown[0])
    bar.close()
    assert display.shown[-1] == ""
    bar.close()
    assert display.shown.count("") == 1


def test_all_bars_of_a_cell_take_the_same_place() -> None:
    displays = []

    def display(*content: Any, **how: Any) -> Display:
        displays.append(Display())
        return displays[-1]

    for cell in (7, 7, 8):
        bar = Bar("Transcribing", display, cell, clock=itertools.count().__next__)
        bar(0.5, "chunk 1")
        bar.close()
    assert len(displays) == 2 and displays[0].shown[0] == "" and len(displays[0].shown) == 3


def test_nothing_is_shown_outside_of_a_notebook() -> None:
    with notebook_bar("x") as bar:
        assert bar is None


@pytest.mark.parametrize("kernel", [object(), None])
def test_ipython_shell_counts_as_a_notebook_only_with_a_kernel(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    display = Display()
    shell, functions = ModuleType("shell"), ModuleType("functions")
    running = SimpleNamespace(kernel=kernel, execution_count=3)
    shell.InteractiveShell = SimpleNamespace(initialized=lambda: True, instance=lambda: running)  # type: ignore[attr-defined]
    functions.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.core.interactiveshell", shell)
    monkeypatch.setitem(sys.modules, "IPython.core.display_functions", functions)
    with notebook_bar("x") as bar:
        assert (bar is None) == (kernel is None)


def test_the_bar_goes_away_when_work_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    display = Display()
    monkeypatch.setattr("workbench.display.progress._notebook", lambda: (display, None))
    monkeypatch.setattr("workbench.display.progress.PATIENCE", 0.0)

    def fails() -> None:
        with notebook_bar("x") as bar:
            assert bar is not None
            bar(2.0, "far")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert len(display.shown) == 2 and "100%" in text_of(display.shown[0]) and display.shown[1] == ""
