"""Checks a fragment of HTML: it is well-formed, runs nothing, and loads nothing from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(2)>&amp;<!--</style></svg>\u202e\x00\x1b'
"""A text that a page must show and not obey."""


def checked(fragment: str) -> ElementTree.Element:
    """Returns the fragment as a tree, after the checks. It must be well-formed as XML, which is stricter."""
    tree = ElementTree.fromstring(f"<div>{fragment}</div>")
    for each in tree.iter():
        name = each.tag.rpartition("}")[2]
        assert name not in {"script", "iframe", "object", "embed", "link", "base", "form", "meta"}, name
        for attribute, value in each.attrib.items():
            assert not attribute.lower().startswith("on"), attribute
            if attribute in ("src", "href", "action", "poster"):
                assert re.match(r"data:(audio/wav|image/png);base64,[A-Za-z0-9+/=]+$", value), value[:60]
    _Balanced().check(fragment)
    return tree


class _Balanced(HTMLParser):
    """A second opinion by another parser: every element that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def check(self, fragment: str) -> None:
        self.feed(fragment)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag != "script"
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag == "img", tag

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def text_of(fragment: str) -> str:
    """Returns what a reader sees, without the style sheet."""
    tree = checked(fragment)
    for style in tree.findall("style"):
        style.text = ""
    return "".join(tree.itertext())
