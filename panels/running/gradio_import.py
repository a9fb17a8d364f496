"""Imports Gradio without the interface files that it writes for editors at each import.

For every class of a component, Gradio parses its own source and compares a file of types beside it. That takes two
fifths of the import.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

METACLASS = "ComponentMeta"  # of Gradio's components


def import_gradio() -> None:
    """Imports Gradio, if nothing has imported it yet.

    Gradio writes no interface file for a class that has no source file, so its components have none meanwhile.
    """
    if "gradio" in sys.modules:
        return
    original = inspect.getfile

    def getfile(described: Any) -> str:
        if type(described).__name__ == METACLASS:
            raise FileNotFoundError(f"{described.__name__} has no file while Gradio is imported")
        return original(described)

    vars(inspect)["getfile"] = getfile
    try:
        import gradio  # noqa: F401
    finally:
        vars(inspect)["getfile"] = original
