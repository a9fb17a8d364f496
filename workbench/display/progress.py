"""Progress of long work in a notebook: a bar below the cell, which goes away when the work ends.

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
    """A bar below the running cell of a notebook."""

    def __init__(self, title: str, display: Any, clock: Callable[[], float] = time.monotonic):
        self._title, self._display, self._clock = title, display, clock
        self._begun = clock()
        self._last = float("-inf")
        self._handle: Any = None

    def __call__(self, fraction: float, activity: str) -> None:
        """Shows how far the work is, from 0 to 1, and what it does."""
        now = self._clock()
        if now - self._begun < PATIENCE or now - self._last < INTERVAL:
            return
        self._last = now
        self._show(self._drawn(min(max(fraction, 0.0), 1.0), activity), f"{self._title}: {activity}")

    def _drawn(self, fraction: float, activity: str) -> str:
        bar = element("progress", value=f"{fraction:.3f}", max=1, aria_label=self._title)
        return card(self._title, element("p", bar, f" {fraction:.0%} ", element("span", activity, class_="quiet")))

    def _show(self, html: str, text: str) -> None:
        content = {"text/html": html, "text/plain": text}
        if self._handle is None:
            self._handle = self._display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def close(self) -> None:
        """Takes the bar away."""
        if self._handle is not None:
            self._show("", "")
            self._handle = None


@contextmanager
def notebook_bar(title: str) -> Iterator[OnProgress | None]:
    """Gives a bar to a block of work where a notebook runs, and None elsewhere."""
    display = _notebook_display()
    if display is None:
        yield None
        return
    bar = Bar(title, display)
    try:
        yield bar
    finally:
        bar.close()


def _notebook_display() -> Any:
    """Returns IPython's `display` if this thread's work belongs to a notebook; None elsewhere.

    A notebook is a shell with a kernel. A terminal with IPython has none.
    """
    shell = sys.modules.get("IPython.core.interactiveshell")
    known = sys.modules.get("IPython.core.display_functions")
    if shell is None or known is None or not shell.InteractiveShell.initialized():
        return None
    running = shell.InteractiveShell.instance()
    return known.display if getattr(running, "kernel", None) is not None else None
