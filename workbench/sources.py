"""Where checkpoints come from: the shipped demos, local directories, hub repositories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.cards import Card
from workbench.errors import BadInput, Unavailable

HUB_FILES = ["*.yaml", "*.json", "*.mvn", "*.model", "model.pt", "seg_dict", "tokens.txt", "README.md"]

OnProgress = Callable[[float, str], None]
"""Called with a fraction 0..1 and what is going on."""


def assets() -> Path:
    """The folder of shipped demos and samples: beside the package in a checkout, inside it when installed."""
    package = Path(__file__).parent
    for folder in (package / "assets", package.parent / "assets"):
        if folder.is_dir():
            return folder
    raise Unavailable("the assets folder with the demo models is missing from this installation; install it again")


def local_directory(card: Card) -> Path | None:
    """The checkpoint's directory if it is on this machine already, else None."""
    kind, place = next(iter(card.source.items()))
    if kind == "demo":
        path = assets() / place
        return path if path.is_dir() else None
    if kind == "directory":
        return Path(place) if Path(place).is_dir() else None
    return _cached(place)


def why_not_here(card: Card) -> str | None:
    """Why the checkpoint is not on this machine, or None where it is."""
    if local_directory(card) is not None:
        return None
    kind, place = next(iter(card.source.items()))
    if kind == "hub":
        size = f" ({card.megabytes} MB)" if card.megabytes else ""
        return f"not downloaded yet: opening it fetches {place}{size} from the Hugging Face hub"
    return f"its checkpoint directory {place} is missing"


def fetch(card: Card, on_progress: OnProgress | None = None) -> Path:
    """The checkpoint's directory, downloaded first where needed.

    Raises `BadInput` for a missing local directory, `Unavailable` when the hub cannot be reached or has no such
    repository.
    """
    here = local_directory(card)
    if here is not None:
        return here
    kind, place = next(iter(card.source.items()))
    if kind != "hub":
        raise BadInput(f"{card.id}: {why_not_here(card)}")
    return _download(card, place, on_progress)


def _cached(repository: str) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        path = Path(snapshot_download(repository, local_files_only=True, allow_patterns=HUB_FILES))
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError, ValueError):
        return None
    # A download that was interrupted leaves a snapshot without its weights.
    return path if any(path.glob("*.pt")) else None


def _download(card: Card, repository: str, on_progress: OnProgress | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        found = snapshot_download(
            repository, allow_patterns=HUB_FILES, etag_timeout=5, tqdm_class=_progress_bar(on_progress, repository)
        )
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise Unavailable(f"{card.id}: the Hugging Face hub has no public repository {repository}") from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError, RuntimeError) as error:
        raise Unavailable(
            f"{card.id} is not on this machine and the Hugging Face hub cannot be reached; connect to the network once, "
            f"or copy {repository} here from elsewhere and give its directory instead"
        ) from error
    return Path(found)


def _progress_bar(on_progress: OnProgress | None, repository: str) -> type[Any]:
    """A tqdm class that reports bytes done to `on_progress` and prints nothing."""
    from tqdm.auto import tqdm

    class Reporting(tqdm):
        def __init__(self, *args: Any, **kwargs: Any):
            kwargs.pop("name", None)
            super().__init__(*args, **{**kwargs, "disable": True})
            self.seen = 0.0
            self.unit_of_bar = kwargs.get("unit", "")
            self.size = kwargs.get("total") or 0

        def update(self, n: float | None = 1) -> bool | None:
            self.seen += n or 0
            total = self.total or self.size
            if on_progress and total and self.unit_of_bar == "B":
                on_progress(
                    min(self.seen / total, 1.0),
                    f"downloading {repository}: {self.seen / 1e6:.0f} of {total / 1e6:.0f} MB",
                )
            return None

    return Reporting
