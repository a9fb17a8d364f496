"""Small pieces of HTML for several tabs, and the script that turns their buttons into events.

All text from outside goes through `text`. This file knows nothing of models or results.
"""

from __future__ import annotations

import json

from markupsafe import Markup, escape

from workbench.core.errors import BadInput


def text(value: object) -> Markup:
    """Returns the value as HTML text, also safe inside a quoted attribute."""
    return escape(str(value))


def element(tag: str, content: str, css: str = "", **attributes: object) -> Markup:
    """Returns an element around content that is HTML already; attribute names have `_` instead of `-`."""
    all_attributes = {"class": css} | {name.strip("_").replace("_", "-"): value for name, value in attributes.items()}
    attributes_html = "".join(
        f' {name}="{text(value)}"' for name, value in all_attributes.items() if value not in ("", None)
    )
    return Markup(f"<{tag}{attributes_html}>{content}</{tag}>")


def events_script(*events: str) -> str:
    """Returns the `js_on_load` of a `gr.HTML` whose buttons trigger these events, and whose copy buttons copy."""
    return f"const known = {json.dumps(events)};{_SCRIPT}"


_SCRIPT = """
const say = (pressed, word) => {
  const label = pressed.textContent;
  pressed.textContent = word;
  pressed.setAttribute('aria-live', 'polite');
  setTimeout(() => { pressed.textContent = label; }, 1500);
};
const copy = async (pressed) => {
  const source = pressed.closest('[data-copy-scope]').querySelector('[data-copy-source]');
  try {
    await navigator.clipboard.writeText(source.textContent);
  } catch (error) {  // a page that came over plain http has no clipboard
    const area = document.createElement('textarea');
    area.value = source.textContent;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
    pressed.focus();
  }
  say(pressed, 'Copied');
};
element.addEventListener('click', (event) => {
  const pressed = event.target.closest('button');
  if (!pressed || !element.contains(pressed)) return;
  if ('copy' in pressed.dataset) copy(pressed);
  else if (known.includes(pressed.dataset.event)) trigger(pressed.dataset.event, {...pressed.dataset});
});
"""


def datum(data: object, name: str) -> str:
    """Returns a pressed button's value of that name; raises `BadInput` for an event that did not come from the page."""
    if isinstance(data, dict) and isinstance(data.get(name), str):
        return str(data[name])
    raise BadInput(f"the event has no {name}; reload the page")
