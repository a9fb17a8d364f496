"""Every notebook runs from top to bottom as it is committed: without outputs, anywhere, with no network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbformat and nbclient: pip install .[notebooks]")

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path: Path, kind: str) -> list[Any]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind]


def test_there_are_notebooks() -> None:
    assert "parity" in [path.stem for path in NOTEBOOKS]


@each_notebook
def test_it_is_committed_without_outputs_and_paths_of_a_machine(path: Path) -> None:
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids) > 5
    for cell in cells(path, "code"):
        assert (cell.outputs, cell.execution_count) == ([], None)
        assert not re.search(r"/(home|Users|root|work|tmp)/", cell.source), cell.source


@each_notebook
def test_it_explains_and_checks_what_it_says(path: Path) -> None:
    """Text between the code, and asserts that fail where the text would no longer be true."""
    assert len(cells(path, "markdown")) >= len(cells(path, "code")) / 2
    assert sum(cell.source.count("\nassert ") for cell in cells(path, "code")) >= 5


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("shared_cache")
@each_notebook
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = pytest.importorskip("nbclient", reason="needs nbclient: pip install .[notebooks]")
    pytest.importorskip("ipykernel", reason="needs ipykernel: pip install .[notebooks]")
    monkeypatch.setenv("PYTHONPATH", str(path.parents[1]))  # for whoever has not installed the checkout
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    client.NotebookClient(notebook, timeout=600, kernel_name="python3", resources=place).execute()
    made = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert [each for each in made if each.output_type == "error"] == []
    assert sum("image/png" in each.get("data", {}) for each in made) >= 5
    assert list((tmp_path / "TMPDIR").glob("*notebook*")) == [], "its own folder stays behind"
