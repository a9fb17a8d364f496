"""Renders HTML from templates beside the code that uses them.

`panels/<tab>/view.html` has the macros of a tab, `widgets/parts.html` those of several tabs. Templates escape every
value that is not `Markup`. An unknown name in a template is an error. The output has no line breaks of the template and
none of the spaces around them, so that templates can be indented.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from workbench.display.words import duration
from workbench.system.memory import size

FOLDER = Path(__file__).resolve().parents[1]  # names of templates are paths below it
_BREAK = re.compile(r"[ \t]*\n\s*")


class _Loader(FileSystemLoader):
    """Reads templates without their line breaks; errors still name the line."""

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        source, path, fresh = super().get_source(environment, template)
        return _BREAK.sub(lambda found: "{#" + "\n" * found[0].count("\n") + "#}", source), path, fresh


@cache
def _environment() -> Environment:
    environment = Environment(loader=_Loader(FOLDER), autoescape=True, undefined=StrictUndefined, auto_reload=False)
    environment.filters |= {"duration": duration, "size": size}
    return environment


@cache
def _macros(template: str) -> object:
    return _environment().get_template(template).module


def render(template: str, macro: str, *values: object) -> Markup:
    """Returns the HTML of a template's macro for some values: `render("inject/view.html", "answers", rows)`."""
    try:
        html: Markup = getattr(_macros(template), macro)(*values)
    except Exception:
        _environment().handle_exception()  # raises it again with the template's line in the traceback
    return html
