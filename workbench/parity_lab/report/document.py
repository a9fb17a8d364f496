"""One self-contained HTML file of a report: no network, no script, no web font.

The element `data` holds the JSON of the report, for programs. The file's content security policy forbids it to load or
run anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput
from workbench.core.paths import is_directory
from workbench.parity_lab.report.style import STYLE
from workbench.system.atomic_files import write_whole

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def document(title: str, parts: Iterable[str], data: dict[str, Any]) -> str:
    """Returns the whole document.

    Args:
        parts: the HTML under the title; empty ones are left out.
        data: plain JSON values.
    """
    json_text = json.dumps(data, ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")
    lines = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<title>{escape(title)}</title><style>{STYLE}</style></head><body class="lab">',
        f"<h1>{escape(title)}</h1>",
        *(part for part in parts if part),
        f'<script type="application/json" id="data">{json_text}</script>',
        "</body></html>",
    ]
    return "\n".join(lines) + "\n"


def write_document(path: str | Path, make: Callable[[], str]) -> Path:
    """Makes a document, writes it to a file and returns the path.

    Raises an error of `write_whole` if the file cannot be written; for a wrong place before the document is made,
    which takes seconds.
    """
    path = report_place(path)
    write_whole(path, make().encode())
    return path


def report_place(path: str | Path) -> Path:
    """Returns the path of a report; raises `BadInput` if no file can be made there."""
    path = Path(path)
    try:
        if not is_directory(path) and path.parent.is_dir():
            return path
    except OSError as error:
        raise BadInput(f"the report cannot be written to {path}: {error.strerror or error}") from error
    raise BadInput(f"{path} is not a place for a report; expected the name of a file in a folder that exists")
