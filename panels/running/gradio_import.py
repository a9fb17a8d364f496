"""Imports Gradio and stops it from writing interface files (`.pyi`) for editors, which it does at each import.

For every class of a component, Gradio parses its own source and compares it with such a file. That takes two fifths of
the import.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

METACLASS = "ComponentMeta"  # the metaclass of Gradio's components


def import_gradio() -> None:
    """Imports Gradio, if nothing has imported it yet.

    Gradio writes no interface file for a class without a source file. So this function hides the source files of
    components during the import.
    """
    if "gradio" in sys.modules:
        return
    original = inspect.getfile

    def getfile(described: Any) -> str:
        if type(described).__name__ == METACLASS:
            raise FileNotFoundError(f"{described.__name__} has no source file during the import")
        return original(described)

    vars(inspect)["getfile"] = getfile
    try:
        import gradio  # noqa: F401
    finally:
        vars(inspect)["getfile"] = original
