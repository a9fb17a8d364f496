"""Brings results into view when a run begins: on a phone they are below the visible part."""

from __future__ import annotations


def show_results(element: str, runs: str = "() => true") -> str:
    """Returns the JavaScript of an event that scrolls to an element, unless it is in view, and passes its values on.

    Args:
        element: its id.
        runs: a JavaScript function of the event's values that returns whether a run begins. If no run begins, the page
            says what is missing, and does not scroll.
    """
    return f"""(...values) => {{
  const results = document.querySelector('#{element}');
  const top = results.getBoundingClientRect().top;
  const away = top < 0 || top > innerHeight / 2;
  if (away && ({runs})(...values)) results.scrollIntoView({{behavior: workbenchScrolling.behavior(), block: 'start'}});
  return values;
}}"""
