"""Sentences as visitors of a public server may read them: without its folders, and without addresses of its models."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePath

from workbench.core.errors import DiskFull, NoRoom, WorkbenchError

FULL = "the disk of this server is full, so the work could not be finished; try again later"
PACKAGE = Path(__file__).parents[3]  # the folder that the workbench is installed in
# The environment variables that name folders of caches, settings, models and uploads.
VARIABLES = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME", "HF_HUB_CACHE", "GRADIO_TEMP_DIR")


def for_visitors(error: WorkbenchError, places: Iterable[str] = ()) -> WorkbenchError:
    """Returns the error with a sentence for visitors.

    Args:
        places: as for `discreet`.
    """
    if isinstance(error, DiskFull):
        return NoRoom(FULL)
    message = str(error)
    if (told := discreet(message, places)) != message:
        error.args = (told, *error.args[1:])
    return error


def discreet(text: str, places: Iterable[str] = ()) -> str:
    """Returns a text that names files of this server by their last names, and no address of a model.

    Args:
        places: further folders and files of this server, and addresses of servers that run its models.
    """
    listed = [*places]
    for address in (each for each in listed if "://" in each):
        text = text.replace(f" {address}", "").replace(address, "the model's server")
    return without_folders(text, [*_folders(), *(each for each in listed if "://" not in each)])


def _folders() -> set[str]:
    """Returns the folders in which this server keeps files and programs."""
    named = [os.environ[name] for name in VARIABLES if os.environ.get(name)]
    places = [PACKAGE, *map(Path, (tempfile.gettempdir(), "/tmp", sys.prefix, *named))]
    return {str(each) for place in places for each in (place.absolute(), place.resolve())}


def without_folders(text: str, folders: Iterable[str]) -> str:
    """Returns the text with each path that is, or begins with, one of the folders cut to the path's last name."""
    roots = "|".join(re.escape(each) for each in sorted(folders, key=len, reverse=True) if PurePath(each).name)
    path = rf"(?<![\w/.-])(?:{roots})(?:/[^\s'\",;:()<>]*)?(?![\w-])"
    return re.sub(path, lambda found: PurePath(found[0]).name, text) if roots else text
