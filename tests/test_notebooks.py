"""Every notebook runs from top to bottom as it is committed: without outputs, in any folder, with no network.

Each notebook runs in a separate kernel, as for its reader. Its HTML output is checked.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.html_fragments import checked

nbformat = pytest.importorskip("nbformat", reason="needs nbformat and nbclient: pip install .[notebooks]")

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
NAMES = [
    "1_sound_to_text",
    "2_hearing_language_model",
    "3_parity",
    "4_speaking_machine",
    "5_language_model_helps",
]
EXERCISES = 3
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path: Path, kind: str) -> list[Any]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind]


def tagged(path: Path, tag: str) -> list[Any]:
    return [cell for cell in cells(path, "code") if tag in cell.metadata.get("tags", [])]


def test_five_notebooks_exist_and_the_course_page_links_them() -> None:
    assert [path.stem for path in NOTEBOOKS] == NAMES
    course = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"]({name}.ipynb)" in course for name in NAMES)


@each_notebook
def test_notebook_is_committed_without_outputs_or_local_paths(path: Path) -> None:
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids) > 5
    for cell in cells(path, "code"):
        assert (cell.outputs, cell.execution_count) == ([], None)
        assert not re.search(r"/(home|Users|root|work|tmp)/", cell.source), cell.source


@each_notebook
def test_notebook_has_enough_explanations_and_asserts(path: Path) -> None:
    """Text between the code, and asserts that fail where the text would no longer be true."""
    assert len(cells(path, "markdown")) >= len(cells(path, "code")) / 2
    assert sum(len(re.findall(r"^assert ", cell.source, re.M)) for cell in cells(path, "code")) >= 8


@each_notebook
def test_notebook_begins_with_a_question_and_ends_with_the_readers_model(path: Path) -> None:
    first, *others = (cell.source for cell in cells(path, "markdown"))
    assert first.splitlines()[0].endswith("?") and "You will learn" in first
    assert "## Run it on your own model" in others[-1]
    assert any("my_model" in cell.source for cell in cells(path, "code")[-2:])


@each_notebook
def test_notebook_exercises_have_folded_solutions_with_asserts(path: Path) -> None:
    exercises, solutions = tagged(path, "exercise"), tagged(path, "solution")
    assert len(exercises) == len(solutions) == EXERCISES
    every = nbformat.read(path, as_version=4).cells
    for number, (exercise, solution) in enumerate(zip(exercises, solutions), 1):
        assert "= ..." in exercise.source
        assert "\nassert " in f"\n{solution.source}" and solution.metadata.jupyter.source_hidden
        [asked, place] = [every.index(next(c for c in every if c.id == each.id)) for each in (exercise, solution)]
        assert place == asked + 1 and f"**Exercise {number}.**" in every[asked - 1].source


@each_notebook
def test_exercises_can_be_tried_before_their_solutions_which_judge_the_answer(path: Path) -> None:
    """A reader runs the cells in order, so an exercise must not need what the cell below it defines."""
    every = nbformat.read(path, as_version=4).cells
    for number, (exercise, solution) in enumerate(zip(tagged(path, "exercise"), tagged(path, "solution")), 1):
        place = next(place for place, cell in enumerate(every) if cell.id == exercise.id)
        assert "below" not in every[place - 1].source.partition(f"**Exercise {number}.**")[2]
        assert '"Your answer:"' in solution.source


@each_notebook
def test_cell_for_the_readers_model_has_no_assert(path: Path) -> None:
    """An assert would end in an error without a sentence, such as for a port that is not within tolerance yet."""
    [cell] = [cell for cell in cells(path, "code")[-2:] if "my_model" in cell.source]
    assert "assert" not in cell.source


@each_notebook
def test_notebook_cells_can_run_twice_in_one_folder(path: Path) -> None:
    """A cell that makes a folder also runs where the folder is there already."""
    for cell in cells(path, "code"):
        assert not re.search(r"mkdir\(\)|copytree\((?!.*dirs_exist_ok=True)", cell.source), cell.source


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("shared_cache")
@each_notebook
def test_notebook_runs_and_shows_well_formed_html(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = pytest.importorskip("nbclient", reason="needs nbclient: pip install .[notebooks]")
    pytest.importorskip("ipykernel", reason="needs ipykernel: pip install .[notebooks]")
    monkeypatch.setenv("PYTHONPATH", str(path.parents[1]))  # for whoever has not installed the checkout
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr(tempfile, "tempdir", None)
    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    client.NotebookClient(notebook, timeout=600, kernel_name="python3", resources=place).execute()
    made = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert [each for each in made if each.output_type == "error" or each.get("name") == "stderr"] == []
    shown = [each.data["text/html"] for each in made if "text/html" in each.get("data", {})]
    images = sum(len(list(checked(html).iter("img"))) for html in shown)
    assert images >= 5
    said = "".join(each.text for each in made if each.output_type == "stream")
    assert said.count("not tried yet") >= EXERCISES
    assert list((tmp_path / "TMPDIR").glob("*notebook*")) == [], "its own folder stays behind"
