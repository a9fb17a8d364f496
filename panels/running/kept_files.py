"""The recordings and other files of a kept run: copied into the store, or only named if they are shipped samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from workbench.registry.sources import assets
from workbench.system.tempdirs import tempdir

LONGEST_NAME = 120  # characters of a stored file's name


def stored_files(paths: Iterable[str]) -> tuple[dict[str, dict[str, str]], dict[str, Path]]:
    """Returns the JSON of each path, and the files to copy by name, for `RunStore.keep`."""
    descriptions: dict[str, dict[str, str]] = {}
    files: dict[str, Path] = {}
    for number, path in enumerate(dict.fromkeys(paths)):
        name = Path(path).name
        sample = assets() / "samples" / name
        if sample.is_file() and Path(path).is_file() and sample.read_bytes() == Path(path).read_bytes():
            descriptions[path] = {"sample": name, "name": name}
        else:
            stored = f"{number}-{name}"[-LONGEST_NAME:]
            files[stored] = Path(path)
            descriptions[path] = {"file": stored, "name": name}
    return descriptions, files


def found_file(description: Mapping[str, Any], folder: Path) -> str:
    """Returns the path of a kept file in the page's folder of uploads; for a file that was not kept, a path without a
    file.

    Args:
        folder: the folder with the run's files.
    """
    name = Path(description["name"]).name
    source = assets() / "samples" / name if "sample" in description else folder / Path(description["file"]).name
    return uploaded(source, name) if source.is_file() else str(folder / name)


def uploaded(source: Path, name: str) -> str:
    """Returns the path of a copy of the file in the page's folder of uploads, from which file inputs accept files."""
    from gradio.processing_utils import save_file_to_cache
    from gradio.utils import get_upload_folder

    with tempdir() as folder:
        copy = folder / name
        copy.symlink_to(source.resolve())
        return str(save_file_to_cache(copy, cache_dir=get_upload_folder()))
