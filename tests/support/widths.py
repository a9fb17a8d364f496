"""Whether a page fits the widths of a phone and a desk."""

from __future__ import annotations

from typing import Any

DESK, PHONE = 1280, 390  # pixels


def no_sideways_scroll(page: Any) -> bool:
    """Returns whether everything on the page, or in a frame, is as wide as its window at most."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


def no_sideways_scroll_by_day_and_night(page: Any) -> bool:
    """Returns whether that holds for light and dark pages; the dark one stays."""
    fits = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        fits.append(no_sideways_scroll(page))
    return all(fits)


def fits_a_phone_and_a_desk(page: Any, *frames: Any) -> bool:
    """Returns whether a page and its frames fit both widths; the page keeps its own width."""
    before, fits = page.viewport_size, []
    for width in (PHONE, DESK):
        page.set_viewport_size({"width": width, "height": 844})
        fits += [no_sideways_scroll(each) for each in (page, *frames)]
    page.set_viewport_size(before)
    return all(fits)
