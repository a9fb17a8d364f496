"""docs/visualise.md lists every view with its description and options, and its Python examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from workbench.visualise.views import VIEWS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "visualise.md").read_text(encoding="utf-8")


def test_documented_table_of_views_equals_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", PAGE, flags=re.MULTILINE)
    assert rows == [
        (view.name, view.sentence, ", ".join(f"`--{name}`" for name in view.options)) for view in VIEWS.values()
    ]


@pytest.mark.slow
def test_python_examples_in_the_visualise_docs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "assets").symlink_to(ROOT / "assets")
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        if "gradio_client" in block:  # it needs a running page
            continue
        exec(compile(block, "docs/visualise.md", "exec"), {})
    assert {path.name for path in tmp_path.iterdir()} == {"assets", "cif.png", "heads.svg", "mine.svg"}
