"""A walk through all tabs: console errors, accessible names, focus rings, overlapping labels and dark colours."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.panels.conftest import Served
from tests.panels.test_transcribe_page import expect, open_page
from tests.support.widths import DESK, PHONE

TABS = ("Transcribe", "Parity", "Chat", "Decode", "Visualise", "Evaluate", "Inject", "Models")

# Lists the elements that the keyboard reaches and whose focus ring is missing or cut off. A label may have the ring.
RINGS = """() => {
  const found = new Set();
  const pressable = 'button, input, textarea, a[href], summary, [tabindex="0"]';
  for (const each of document.querySelectorAll(pressable)) {
    const seen = each.checkVisibility({visibilityProperty: true, opacityProperty: true});
    if (!seen || each.disabled || each.closest('.visually-hidden')) continue;
    each.scrollIntoView({block: 'center'});
    document.activeElement?.blur();  // one that was pressed with the mouse has no ring
    each.focus({focusVisible: true});
    if (document.activeElement !== each) continue;
    const name = `${each.tagName} ${each.getAttribute('aria-label') || each.textContent.trim().slice(0, 30)}`;
    let ringed = each;
    while (ringed && getComputedStyle(ringed).outlineStyle === 'none') ringed = ringed.parentElement;
    if (!ringed) { found.add(`${name} has none`); continue; }
    const style = getComputedStyle(ringed);
    const room = parseFloat(style.outlineWidth) + parseFloat(style.outlineOffset) - 0.5;
    const box = ringed.getBoundingClientRect();
    for (let up = ringed.parentElement; up !== document.documentElement; up = up.parentElement) {
      const {overflowX, overflowY} = getComputedStyle(up);
      const edge = up.getBoundingClientRect();
      const aside = overflowX !== 'visible' && (box.left - room < edge.left || box.right + room > edge.right);
      const above = overflowY !== 'visible' && (box.top - room < edge.top || box.bottom + room > edge.bottom);
      if (aside || above) { found.add(`${name} is cut off by ${up.tagName}.${up.className}`); break; }
    }
  }
  return [...found];
}"""
# The accessible names of all elements that a user can press or write in.
NAMES = """() => [...document.querySelectorAll('button, input, textarea, summary')]
  .filter((each) => each.checkVisibility({visibilityProperty: true}) && !each.closest('[aria-hidden=true]'))
  .map((each) => each.getAttribute('aria-label') || each.textContent.trim() || each.title
    || [...(each.labels || [])].map((label) => label.textContent.trim()).join(' '))"""
# The labels in the corner of a box that overlap other content.
OVERLAPS = """() => [...document.querySelectorAll('label[data-testid="block-label"]')].filter((label) => {
  if (!label.checkVisibility()) return false;
  const box = label.getBoundingClientRect();
  const crosses = (other) => other.width && other.left < box.right && other.right > box.left
    && other.top < box.bottom - 1 && other.bottom > box.top + 1;
  const range = document.createRange();
  return [...label.parentElement.querySelectorAll('svg, .wrap, .wrap *')].some((each) => {
    if (label.contains(each) || !each.checkVisibility()) return false;
    if (each.tagName === 'svg') return crosses(each.getBoundingClientRect());
    return [...each.childNodes].filter((node) => node.nodeType === 3 && node.textContent.trim()).some((node) => {
      range.selectNodeContents(node);
      return [...range.getClientRects()].some(crosses);
    });
  });
}).map((label) => label.textContent.trim())"""

# The borders of the empty boxes for files.
BORDERS = """() => [...document.querySelectorAll('.block:is(#recordings, .boxed):has(.upload-container)')]
  .filter((each) => each.checkVisibility() && !each.querySelector('table')).map((each) => getComputedStyle(each))
  .map((style) => `${style.borderTopStyle} ${style.borderTopColor}`)"""

# The element with the focus, if the button that starts a run covers a part of it.
COVERED = """() => {
  const each = document.activeElement, box = each.getBoundingClientRect();
  const bar = document.querySelector('.go').getBoundingClientRect();
  const isCovered = !each.closest('.go') && box.left < bar.right && box.bottom > bar.top && box.top < bar.bottom;
  return isCovered ? [each.outerHTML.slice(0, 80)] : [];
}"""


def open_all(page: Any) -> None:
    """Opens all collapsed parts of the tab."""
    page.evaluate("""document.querySelectorAll('.label-wrap:not(.open), details:not([open]) > summary')
      .forEach((each) => { if (each.checkVisibility()) each.click(); })""")
    expect(page.locator(".label-wrap:not(.open):visible")).to_have_count(0)


@pytest.mark.browser
def test_all_tabs_have_no_console_errors_and_complete_names_and_focus_rings(served: Served, page: Any) -> None:
    errors: list[str] = []
    refusals: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on(
        "response", lambda answer: refusals.append(f"{answer.status} {answer.url}") if answer.status > 399 else None
    )
    open_page(page, served)
    tabs = page.get_by_role("tab")
    problems: dict[str, list[str]] = {}
    borders: set[str] = set()

    def look(tab: str) -> None:
        names = page.evaluate(NAMES)
        problems[tab] = [f"called {name!r}" for name in names if not name or re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", name)]
        for width in (PHONE, DESK):
            page.set_viewport_size({"width": width, "height": 844})
            open_all(page)
            borders.update(page.evaluate(BORDERS))
            labels, rings = page.evaluate(OVERLAPS), page.evaluate(RINGS)
            problems[tab] += [f"at {width} pixels the label {label} stands on something" for label in labels]
            problems[tab] += [f"at {width} pixels the ring of {each}" for each in rings]

    for tab in TABS:
        tabs.filter(has_text=tab).first.click()
        look(tab)
    tabs.filter(has_text="Transcribe").first.click()
    page.locator("button.sample").first.click()
    expect(page.locator("#recordings")).to_contain_text("three_seven_one")
    page.locator("#run").click()
    for row in (1, 0):
        page.locator(".result.done").nth(row).get_by_role("button", name="Segments and export").click()
        expect(page.locator(".timeline:visible canvas").first).to_be_visible()
    look("Transcribe, after a run")
    assert not any(problems.values()), problems
    assert len(borders) == 1, borders
    expect(page.get_by_label("Model of the live microphone")).to_contain_text("SenseVoice · PyTorch")
    expect(page.get_by_role("button", name="Add files")).to_be_visible()
    assert not errors and not refusals, (errors, refusals)


@pytest.mark.browser
def test_checkboxes_follow_the_dark_colour_scheme(served: Served, page: Any) -> None:
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        open_page(page, served)
        for box in page.locator("#models input[type=checkbox]").all():
            assert box.evaluate("(each) => getComputedStyle(each).colorScheme.includes('dark')") == (scheme == "dark")


@pytest.mark.browser
@pytest.mark.tabs("transcribe")
def test_page_in_a_chinese_browser_says_that_it_is_in_english(served: Served, chromium: Any) -> None:
    page = chromium.new_page(locale="zh-CN")
    open_page(page, served)
    language = page.evaluate("[navigator.language, document.documentElement.lang]")
    page.close()
    assert language == ["zh-CN", "en"]


@pytest.mark.browser
@pytest.mark.tabs("transcribe,parity")
def test_chosen_items_and_data_colours_remain_with_forced_colours(served: Served, page: Any) -> None:
    page.emulate_media(forced_colors="active")
    page.goto(f"{served.url}#parity")
    expect(page.locator(".heat .h6").first).to_be_visible()
    outline = "each => getComputedStyle(each).outlineStyle"
    chosen = page.locator("#tabs button[role=tab][aria-selected=true], .toggle[aria-pressed=true]").all()
    others = page.locator("#tabs button[role=tab][aria-selected=false], .toggle[aria-pressed=false]").all()
    assert {each.evaluate(outline) for each in chosen} == {"solid"}
    assert {each.evaluate(outline) for each in others} == {"none"}
    background = "each => getComputedStyle(each).backgroundColor"
    assert page.locator(".heat .h6").first.evaluate(background) != page.locator(".heat .h0").first.evaluate(background)


@pytest.mark.browser
@pytest.mark.tabs("transcribe")
def test_run_button_covers_nothing_that_has_the_keyboard_focus(served: Served, page: Any) -> None:
    page.set_viewport_size({"width": 1280, "height": 500})  # the inputs are longer than the window
    open_page(page, served)
    page.locator("button.sample").first.focus()
    covered = []
    while not page.locator("#run:focus").count():
        page.keyboard.press("Tab")
        covered += page.evaluate(COVERED)
    assert covered == []
