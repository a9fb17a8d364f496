"""Progress of long work in a notebook: a bar below the cell, which disappears when the work ends.

Outside of a notebook nothing is shown. A bar appears after `PATIENCE` seconds, so that quick work shows none. This file
needs no package: where a notebook runs, IPython is loaded already.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from workbench.core.progress import OnProgress
from workbench.display.html import card, element

PATIENCE = 0.7  # seconds of work without a bar
INTERVAL = 0.25  # seconds between two updates


class Bar:
    """A bar below the running cell of a notebook.

    Args:
        display: IPython's.
        cell: names the running cell. All bars of a cell take the same place, so that many of them leave no gaps.
    """

    _place: tuple[Any, Any] = (None, None)  # the cell of the last bar that was taken away, and its place

    def __init__(self, title: str, display: Any, cell: Any = None, clock: Callable[[], float] = time.monotonic):
        self._title, self._display, self._cell, self._clock = title, display, cell, clock
        self._begun = clock()
        self._last = float("-inf")
        self._handle: Any = None

    def __call__(self, fraction: float, activity: str) -> None:
        """Shows the fraction of the work that is done, from 0 to 1, and the present activity."""
        now = self._clock()
        if now - self._begun < PATIENCE or now - self._last < INTERVAL:
            return
        self._last = now
        self._show(self._bar_html(min(max(fraction, 0.0), 1.0), activity), f"{self._title}: {activity}")

    def _bar_html(self, fraction: float, activity: str) -> str:
        bar = element("progress", value=f"{fraction:.3f}", max=1, aria_label=self._title)
        return card(self._title, element("p", bar, f" {fraction:.0%} ", element("span", activity, class_="quiet")))

    def _show(self, html: str, text: str) -> None:
        content = {"text/html": html, "text/plain": text}
        cell, place = Bar._place
        if self._handle is None and place is not None and cell == self._cell is not None:
            self._handle, Bar._place = place, (None, None)
        if self._handle is None:
            self._handle = self._display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def close(self) -> None:
        """Removes the bar."""
        if self._handle is not None:
            self._show("", "")
            Bar._place, self._handle = (self._cell, self._handle), None


@contextmanager
def notebook_bar(title: str) -> Iterator[OnProgress | None]:
    """Yields a bar for the work inside the block in a notebook, and None elsewhere."""
    found = _notebook()
    if found is None:
        yield None
        return
    bar = Bar(title, *found)
    try:
        yield bar
    finally:
        bar.close()


def _notebook() -> tuple[Any, Any] | None:
    """Returns IPython's `display` and the number of the running cell in a notebook; None elsewhere.

    A notebook is a shell with a kernel. A terminal with IPython has none.
    """
    shell = sys.modules.get("IPython.core.interactiveshell")
    known = sys.modules.get("IPython.core.display_functions")
    if shell is None or known is None or not shell.InteractiveShell.initialized():
        return None
    running = shell.InteractiveShell.instance()
    if getattr(running, "kernel", None) is None:
        return None
    return known.display, getattr(running, "execution_count", None)
