"""Small pieces of HTML that several tabs use, and the one script that turns buttons in it into events.

All text from outside goes through `text`. This file knows nothing of models or results.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable

from workbench.core.errors import BadInput


def text(value: object) -> str:
    """The value as HTML text, also safe inside a quoted attribute."""
    return html.escape(str(value), quote=True)


def element(tag: str, content: str, css: str = "", **attributes: object) -> str:
    """An element around content that is HTML already; attribute names are written with `_` for `-`."""
    given = {"class": css} | {name.strip("_").replace("_", "-"): value for name, value in attributes.items()}
    written = "".join(f' {name}="{text(value)}"' for name, value in given.items() if value not in ("", None))
    return f"<{tag}{written}>{content}</{tag}>"


def failure(sentence: str) -> str:
    """What is shown in place of a result that could not be had."""
    return element("p", element("span", "Failed", "label") + " " + text(sentence), "fault")


def button(label: str, event: str, css: str = "quiet", *, pressed: bool | None = None, **data: object) -> str:
    """A button that triggers the event with `data`, in a component that has `events_script`; one of several of which
    some are pressed says whether it is."""
    sent: dict[str, object] = {f"data_{name}": value for name, value in data.items()}
    if pressed is not None:
        sent["aria_pressed"] = "true" if pressed else "false"
    return element("button", text(label), css, type="button", data_event=event, **sent)


def events_script(*events: str) -> str:
    """The `js_on_load` of a `gr.HTML` whose buttons trigger these events, and whose copy buttons copy."""
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


def copy_button(label: str) -> str:
    """A button that copies the text of `[data-copy-source]` within the nearest `[data-copy-scope]` around it."""
    return element("button", text(label), "quiet", type="button", data_copy="yes")


def chips(labels: Iterable[tuple[str, str, str]]) -> str:
    """A list of small labels (picture, word, what it means)."""
    items = [
        element("li", f'<span aria-hidden="true">{text(picture)}</span> {text(word)}', title=meaning)
        for picture, word, meaning in labels
    ]
    return element("ul", "".join(items), "chips") if items else ""


def figures(values: Iterable[tuple[str, str, str]]) -> str:
    """Numbers with their names (name, value, what it means), in a row that wraps."""
    items = [
        element("div", element("dt", text(name)) + element("dd", text(value)), title=meaning)
        for name, value, meaning in values
    ]
    return element("dl", "".join(items), "figures")


def seconds(value: float) -> str:
    """`0.42 s`, `12.3 s`, `2 min 05 s`: two or three digits that matter."""
    if value < 9.995:
        return f"{value:.2f} s"
    if value < 99.95:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole // 60 % 60:02d} min"


def datum(data: object, name: str) -> str:
    """What a pressed button carried under that name; raises `BadInput` for an event that did not come from the page."""
    if isinstance(data, dict) and isinstance(data.get(name), str):
        return str(data[name])
    raise BadInput(f"the event carries no {name}; reload the page")
