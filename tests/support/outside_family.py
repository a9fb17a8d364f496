"""The package of docs/families.md, made on the spot where Python finds it, without pip and without a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from workbench.families import FAMILIES, Families

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "families.md"


def page_files() -> dict[str, str]:
    """The files that the page shows, by name."""
    found = re.findall(r"`([\w./]+\.py)`:\n\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    return dict(found)


def page_project() -> Mapping[str, object]:
    """The `[project]` table that the page shows."""
    [block] = re.findall(r"```ini\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    project: Mapping[str, object] = tomllib.loads(block)["project"]
    return project


def add_package(site: Path, name: str, files: Mapping[str, str], points: Mapping[str, str]) -> None:
    """Puts files into a folder, and beside them what an installer would write of their package."""
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text, encoding="utf-8")
    about = site / f"{name.replace('-', '_')}-0.1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    lines = [f"{key} = {value}\n" for key, value in points.items()]
    (about / "entry_points.txt").write_text("[speech_workbench.families]\n" + "".join(lines))


def tiny_ctc(site: Path) -> None:
    """The package of the page."""
    files = {path: text for path, text in page_files().items() if path.startswith("tiny_ctc/")}
    project = page_project()
    points = project["entry-points"]["speech_workbench.families"]  # type: ignore[index]
    add_package(site, str(project["name"]), files, points)


def checkpoint(site: Path, folder: Path) -> Path:
    """The checkpoint that the program of the page writes into the folder."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, site)))}
    code = page_files()["make_checkpoint.py"]
    subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, check=True)
    return folder / "tiny-checkpoint"


@contextmanager
def on_the_path(site: Path) -> Iterator[None]:
    """Within the block, this process and those that it starts find the packages in the folder."""
    packages = {path.stem for path in site.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH")))))
        for name, value in vars(Families()).items():  # as in a process that has just started
            patch.setattr(FAMILIES, name, value)
        try:
            yield
        finally:
            for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
                del sys.modules[name]
