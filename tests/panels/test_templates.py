"""The page's templates: all values are escaped, and an undefined value raises an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from markupsafe import Markup, escape

from panels.widgets import templates
from panels.widgets.templates import FOLDER, render


def test_every_template_compiles() -> None:
    names = [path.relative_to(FOLDER).as_posix() for path in sorted(FOLDER.rglob("*.html"))]
    assert "transcribe/view.html" in names and "widgets/parts.html" in names
    for name in names:
        assert templates._macros(name)


@given(st.text())
def test_template_text_is_escaped_and_keeps_its_whitespace(text: str) -> None:
    html = render("widgets/parts.html", "progress", text, None, True)
    assert html == Markup(f'<div class="progress"><p role="status">{escape(text)}</p></div>')
    assert render("widgets/parts.html", "progress", Markup("<b>x</b>"), None, True).count("<b>x</b>") == 1


def test_undefined_template_value_raises_an_error_with_the_line_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.html").write_text("{% macro a(row) %}\n<p>\n  {{ row.absent }}</p>\n{% endmacro %}\n")
    monkeypatch.setattr(templates, "FOLDER", tmp_path)
    monkeypatch.setattr(templates, "_environment", templates._environment.__wrapped__)
    monkeypatch.setattr(templates, "_macros", templates._macros.__wrapped__)
    with pytest.raises(UndefinedError, match="absent") as caught:
        render("x.html", "a", "text")
    assert [entry.lineno + 1 for entry in caught.traceback if Path(entry.path).name == "x.html"] == [3]
