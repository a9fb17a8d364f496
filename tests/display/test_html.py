"""HTML fragments: any text is displayed, escaped, and never run as markup."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.html_fragments import HOSTILE, checked, text_of
from workbench.display.html import (
    MAX_ROWS,
    MAX_TEXT_CHARACTERS,
    TableCell,
    card,
    direction,
    element,
    escaped_text,
    facts,
    folded,
    notes,
    table,
)
from workbench.display.words import clipped, duration, speed

ANY_TEXT = st.one_of(st.text(), st.just(HOSTILE), st.text(st.characters(categories=["Cc", "Cs", "Cf", "Lo"])))


@given(ANY_TEXT)
def test_any_text_is_escaped_and_displayed(text: str) -> None:
    parts = [element("p", text, title=text), table(("a", text), [(text, 1), (TableCell(text, "bad"), text)])]
    found = card(text, *parts, facts(text, None, ""), notes([text]), folded(text, element("p", text)))
    assert checked(found).find(".//script") is None
    kept = "".join(char for char in text if char.isalnum())
    assert kept in "".join(char for char in text_of(found) if char.isalnum())


def test_html_elements_are_not_escaped_twice() -> None:
    assert element("p", element("b", "1 < 2"), " & ") == "<p><b>1 &lt; 2</b> &amp; </p>"


def test_right_to_left_text_is_isolated_in_a_bdi_element() -> None:
    assert escaped_text("abc") == "abc" and escaped_text("语音") == "语音"
    assert escaped_text("\u202eabc") == "<bdi>\u202eabc</bdi>" and escaped_text("שלום").startswith("<bdi>")


def test_long_texts_and_tables_are_cut_with_a_note_of_the_rest() -> None:
    assert "and 10 more characters" in escaped_text("x" * (MAX_TEXT_CHARACTERS + 10))
    long = table(("n",), [(n,) for n in range(MAX_ROWS + 7)])
    assert "and 7 more rows" in long and long.count("<tr>") == MAX_ROWS + 1


def test_attributes_that_are_none_are_left_out() -> None:
    assert element("img", alt="a", width=None, class_="b") == '<img alt="a" class="b"/>'


def test_a_card_follows_light_and_dark_themes() -> None:
    found = card("title")
    for theme in ("prefers-color-scheme: dark", "data-jp-theme-light=false", "vscode-dark", "html[theme=dark]"):
        assert theme in found


def test_durations_speeds_and_clipped_texts_are_formatted() -> None:
    assert [duration(each) for each in (0, 0.0344, 2.14, 99.6)] == ["0 ms", "34 ms", "2.1 s", "100 s"]
    assert duration(200.2) == "3 min 20 s"
    assert [duration(each) for each in (3599.4, 3599.6, 3900.0)] == ["59 min 59 s", "1 h 00 min", "1 h 05 min"]
    assert [speed(1, 2.5), speed(1, 12.2), speed(0, 1), speed(1, 0)] == ["2.5 × real time", "12 × real time", "", ""]
    assert clipped(" a\n b ") == "a b" and clipped("x" * 61) == "x" * 59 + "…"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", None), ("123 …", None), ("one שלום", None), ("1. שלום one", "rtl"), ("ذهب", "rtl"), ("你好", None)],
)
def test_direction_is_that_of_the_first_letter(text: str, expected: str | None) -> None:
    assert direction(text) == expected
