"""Where checkpoints come from: the shipped demos, local directories and GGUF files, hub repositories.

A model on a server has no checkpoint here.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput, Unavailable
from workbench.core.paths import status_of
from workbench.core.progress import OnProgress
from workbench.families import FAMILIES
from workbench.formats.json_files import read_json_file
from workbench.registry.cards import Card
from workbench.system.memory import size

# Patterns of a repository's paths; * also matches folders, such as that of a tokenizer.
HUB_FILES = ["*.yaml", "*.json", "*.jinja", "*.mvn", "*.model", "*.tiktoken", "*.txt", "seg_dict", "README.md"]
SHARDS = "model.safetensors.index.json"  # names the file of each tensor

ANSWER_SECONDS = 5.0  # how long the hub may take to answer a question
MAX_PATH_CHARACTERS = 200  # characters of a path in a message
DISK_FULL = {errno.ENOSPC, errno.EDQUOT}


def assets() -> Path:
    """Returns the folder of shipped demos and samples: beside the package in a checkout, inside it when installed."""
    package = Path(__file__).parents[1]
    for folder in (package / "assets", package.parent / "assets"):
        if folder.is_dir():
            return folder
    raise Unavailable("the assets folder with the demo models is missing from this installation; install it again")


def on_disk(model: str | Path) -> tuple[Path, str | None]:
    """Returns a model's name as a path, and "directory", "file" or None for what is there. Accepts any name."""
    path = Path(model)
    try:
        path = path.expanduser()
        if str(model) == "":  # an empty name does not mean the current folder
            return path, None
        return path, "directory" if path.is_dir() else "file" if path.is_file() else None
    except (OSError, RuntimeError, ValueError):  # a path too long, of an unknown user, or with a null
        return path, None


def why_unreachable(model: str | Path) -> str | None:
    """Returns why the system refuses to look at a model's name as a path; None if it looks.

    It refuses a path below a folder that may not be read, and a link to itself. A name too long for a path gives None.
    """
    try:
        status_of(Path(model).expanduser())
    except (RuntimeError, ValueError):  # an unknown user, a null
        return None
    except OSError as error:
        return None if error.errno == errno.ENAMETOOLONG else os.strerror(error.errno or 0)
    return None


def local_checkpoint(card: Card) -> Path | None:
    """Returns the checkpoint's directory or the GGUF file if it is on this machine, else None."""
    if card.kind == "server":
        return None
    if card.kind == "demo":
        path = assets() / card.place
        return path if on_disk(path)[1] == "directory" else None
    if card.kind == "directory":
        return Path(card.place) if on_disk(card.place)[1] == "directory" else None
    if card.kind == "gguf":
        return Path(card.place) if all(on_disk(place)[1] == "file" for place in card.source.values()) else None
    return _cached(card, card.place)


def why_unreadable(card: Card) -> str | None:
    """Returns why a card's local checkpoint cannot be read; None if it can be read, or if it is missing.

    It looks into directories and opens files, because only that shows what is permitted.
    """
    if card.kind == "directory":
        name = card.place.encode("utf-8", "backslashreplace").decode()
        if name != card.place:
            return f"the path {_clipped(name)} is not UTF-8, and torch cannot open files under it; rename the folder"
        return _trouble("its checkpoint directory", card.place, lambda: os.scandir(card.place).close())
    if card.kind == "gguf":
        reasons = (_trouble("its GGUF file", place, partial(_open_once, place)) for place in card.source.values())
        return next(filter(None, reasons), None)
    return None


def _trouble(kind: str, place: str, look: Callable[[], None]) -> str | None:
    """Returns the system's error on a look at the place, as a sentence; None without an error or if it is missing."""
    try:
        look()
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return f"{kind} {_clipped(place)} is not a directory" if os.path.lexists(place) else None
    except OSError as error:
        return f"{kind} {_clipped(place)} cannot be read: {error.strerror or error}"
    return None


def _open_once(place: str) -> None:
    if not stat.S_ISREG(Path(place).stat().st_mode):  # opening a FIFO would wait forever
        raise OSError(errno.EINVAL, "it is not an ordinary file")
    Path(place).open("rb").close()


def _clipped(place: str) -> str:
    """Returns a path, shortened to fit into a sentence."""
    return place if len(place) <= MAX_PATH_CHARACTERS else f"{place[:MAX_PATH_CHARACTERS]}... ({len(place)} characters)"


def why_not_here(card: Card) -> str | None:
    """Returns why the checkpoint is not on this machine, or None if it is. It does not ask a model's server."""
    if card.server is not None:
        if card.server.key and not os.environ.get(card.server.key):
            return (
                f"the key for the server {card.place} is expected in the environment variable {card.server.key}, "
                "which is not set"
            )
        return None
    if local_checkpoint(card) is not None:
        return None
    if card.kind == "hub":
        large = f" ({size(card.megabytes * 10**6)})" if card.megabytes else ""
        return f"not downloaded yet: opening it fetches {card.place}{large} from the Hugging Face hub"
    if card.kind == "gguf":
        missing = next(place for place in card.source.values() if on_disk(place)[1] != "file")
        return why_unreadable(card) or f"its GGUF file {missing} is missing"
    return why_unreadable(card) or f"its checkpoint directory {_clipped(card.place)} is missing"


def fetch(card: Card, on_progress: OnProgress | None = None) -> Path:
    """Returns the checkpoint's directory or the GGUF file; downloads the directory first if needed.

    Raises `BadInput` for a missing local directory or file and for a model on a server, and `Unavailable` if the hub
    cannot be reached or has no such repository.
    """
    if card.kind == "server":
        raise BadInput(f"{card.id} runs on the server {card.place}; its checkpoint is not on this machine")
    path = local_checkpoint(card)
    if path is not None:
        return path
    if card.kind != "hub":
        raise BadInput(f"{card.id}: {why_not_here(card)}")
    return _download(card, card.place, on_progress)


def _hub_files(card: Card) -> list[str]:
    hub = FAMILIES[card.family].hub
    return [*HUB_FILES, *hub.weights, *hub.optional]


def _cached(card: Card, repository: str) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        path = Path(snapshot_download(repository, local_files_only=True, allow_patterns=_hub_files(card)))
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError, ValueError):
        return None
    # A download that was interrupted leaves a snapshot without its weights.
    weights = FAMILIES[card.family].hub.weights
    complete = all(any(path.glob(pattern)) for pattern in weights) and _has_every_shard(path)
    return path if complete else None


def _has_every_shard(directory: Path) -> bool:
    """Returns whether all files in the index of a safetensors checkpoint are there; True without an index."""
    if not (directory / SHARDS).is_file():
        return True
    try:
        shard_names = set(read_json_file(directory / SHARDS)["weight_map"].values())
        return all((directory / name).is_file() for name in shard_names)
    except (BadInput, OSError, ValueError, TypeError, KeyError, AttributeError):
        return False  # a damaged index: the download repairs it


def _download(card: Card, repository: str, on_progress: OnProgress | None) -> Path:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError, RepositoryNotFoundError

    instead = f"or copy {repository} here from elsewhere and give its directory instead"
    try:
        # snapshot_download asks this too, but waits forever if a firewall drops the question.
        HfApi().model_info(repository, timeout=ANSWER_SECONDS)
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise Unavailable(f"{card.id}: the Hugging Face hub has no public repository {repository}") from error
    except (HTTPError, OSError) as error:
        status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
        trouble = f"answers with error {status}" if status else "cannot be reached"
        absent = f"{card.id} is not on this machine, and the Hugging Face hub {trouble}"
        raise Unavailable(f"{absent}; connect to the network once, {instead}") from error
    bars = _progress_bar(on_progress, repository)
    try:
        directory = snapshot_download(
            repository, allow_patterns=_hub_files(card), etag_timeout=ANSWER_SECONDS, tqdm_class=bars
        )
    except (HTTPError, OSError, RuntimeError) as error:  # hf_xet, which fetches large files, raises RuntimeError
        if isinstance(error, OSError) and (error.filename is not None or error.errno in DISK_FULL):
            raise Unavailable(
                f"{card.id} cannot be stored on this machine: {error.strerror} ({_hub_cache()})"
            ) from error
        raise Unavailable(
            f"{card.id}: the download of {repository} broke off; open it again to go on from there, {instead}"
        ) from error
    return Path(directory)


def _hub_cache() -> str:
    from huggingface_hub import constants

    return str(constants.HF_HUB_CACHE)


def _progress_bar(on_progress: OnProgress | None, repository: str) -> type[Any]:
    """Returns a tqdm class that reports the bytes done to `on_progress` and prints nothing.

    The hub makes several bars: one counts files, one the bytes received, and one the bytes that are there, including
    those of an earlier attempt. This class reports the byte bar that is furthest.
    """
    from tqdm.auto import tqdm

    furthest = 0.0

    class Reporting(tqdm):
        def __init__(self, *args: Any, **kwargs: Any):
            kwargs.pop("name", None)  # older versions of the hub's client pass one, which tqdm does not take
            super().__init__(*args, **{**kwargs, "disable": True})
            self.seen = float(kwargs.get("initial") or 0)
            self.counts_bytes = kwargs.get("unit") == "B"

        def update(self, n: float | None = 1) -> bool | None:
            nonlocal furthest
            self.seen += n or 0
            if on_progress and self.counts_bytes and self.total and self.seen >= furthest:
                furthest = self.seen
                megabytes, total_megabytes = self.seen / 1e6, self.total / 1e6
                on_progress(
                    min(megabytes / total_megabytes, 1.0),
                    f"downloading {repository}: {megabytes:.0f} of {total_megabytes:.0f} MB",
                )
            return None

    return Reporting
