"""The output directory of a demo training: directories with other files are never overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tiny_checkpoints import tiny_sensevoice
from workbench.core.errors import BadInput
from workbench.training.demo import DemoOptions, train_demo


def test_a_folder_with_other_files_is_refused_before_any_training(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "README.md").write_text("mine")
    with pytest.raises(BadInput, match="home is a folder with other files in it; expected a new one, an empty one, or"):
        train_demo("sensevoice", tmp_path / "no-data", home, DemoOptions(), pytest.fail)
    assert (home / "README.md").read_text() == "mine"


@pytest.mark.parametrize("content", ["nothing", "an empty folder", "an earlier checkpoint"])
def test_new_folder_or_earlier_checkpoint_is_accepted_as_output(content: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    if content == "an earlier checkpoint":
        tiny_sensevoice(out)
    elif content == "an empty folder":
        out.mkdir()
    with pytest.raises(BadInput, match="no-data"):  # the next file that the function checks
        train_demo("sensevoice", tmp_path / "no-data", out, DemoOptions(), pytest.fail)
