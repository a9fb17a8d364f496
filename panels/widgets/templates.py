"""HTML from templates beside the code that uses them: `panels/<tab>/view.html` has a tab's macros, `widgets/parts.html`
those that several use.

What a template is given is escaped, but for what is `Markup` already. A name that it does not have is an error. A line
break in a template, with the blanks around it, is no part of what it makes, so that its lines can be indented.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from panels.widgets.markup import seconds
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
    made = Environment(loader=_Loader(FOLDER), autoescape=True, undefined=StrictUndefined, auto_reload=False)
    made.filters |= {"seconds": seconds, "size": size}
    return made


@cache
def _macros(template: str) -> object:
    return _environment().get_template(template).module


def render(template: str, macro: str, *values: object) -> Markup:
    """The HTML that a macro of a template makes of values, such as `render("inject/view.html", "answers", rows)`."""
    try:
        made: Markup = getattr(_macros(template), macro)(*values)
    except Exception:
        _environment().handle_exception()  # raises it again with the template's line in the traceback
    return made
