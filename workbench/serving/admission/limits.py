"""The limits of a server, for each visitor and for all visitors together. Each is documented where it is declared.

The owner changes them in a TOML file (`limits.toml` in the configuration folder, or `--limits FILE`), with a line such
as `audio_minutes = 20` for each. This module does not enforce them.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput
from workbench.core.options import MAX_TOKENS, build_options, option
from workbench.formats.text_files import read_text
from workbench.system.user_cache import user_config

FILE = "limits.toml"
LONGEST_FILE = 1 << 16  # bytes
DAY_MINUTES = 24 * 60.0


@dataclass(frozen=True)
class Limits:
    """What a server does for its visitors. The defaults are those of the local mode."""

    audio_minutes: float = option(DAY_MINUTES, "longest recording, in minutes", above=0.0, maximum=7 * DAY_MINUTES)
    file_mb: int = option(1024, "largest file that is uploaded, in MB", minimum=1, maximum=1 << 20)
    arrays_mb: int = option(
        1 << 15, "arrays in one file (a trace, logits), unpacked, in MB", minimum=1, maximum=1 << 20
    )
    body_mb: int = option(360, "largest request without files, in MB", minimum=1, maximum=1 << 12)
    header_kb: int = option(64, "largest address and header of a request, together, in kB", minimum=8, maximum=1 << 10)
    text_kb: int = option(1024, "longest text in one field of a request, in kB", minimum=1, maximum=1 << 16)
    json_depth: int = option(64, "deepest nesting of lists and objects in a request", minimum=8, maximum=500)
    new_tokens: int = option(MAX_TOKENS, "longest answer of a model, in tokens", minimum=16, maximum=MAX_TOKENS)
    beams: int = option(4096, "largest beam of a search", minimum=1, maximum=1 << 14)
    run_minutes: float = option(DAY_MINUTES, "longest time of one run, in minutes", above=0.0, maximum=7 * DAY_MINUTES)
    running_per_visitor: int = option(16, "calls of models that work for one visitor at once", minimum=1, maximum=1024)
    waiting_per_visitor: int = option(64, "calls of one visitor that wait", minimum=1, maximum=1 << 14)
    running: int = option(16, "calls of models that work at once, for all visitors", minimum=1, maximum=1024)
    waiting: int = option(256, "calls of all visitors that wait", minimum=1, maximum=1 << 16)
    live: int = option(64, "live recordings at once, for all visitors", minimum=1, maximum=1 << 14)
    live_per_visitor: int = option(16, "live recordings of one visitor at once", minimum=1, maximum=1024)
    live_idle_seconds: float = option(
        3600.0, "time without a sound or a message after which a live recording ends", above=0.0, maximum=86400.0
    )
    requests_per_minute: int = option(6000, "requests of one visitor in a minute", minimum=1, maximum=10**6)
    uploads_per_hour: int = option(10_000, "files that one visitor uploads in an hour", minimum=1, maximum=10**6)
    disk_mb_per_visitor: int = option(
        20_000, "files of one visitor that are kept, in MB; the oldest go first", minimum=1, maximum=10**7
    )
    disk_mb: int = option(
        50_000, "files of all visitors that are kept, in MB; the oldest go first", minimum=1, maximum=10**7
    )
    upload_hours: float = option(
        7 * 24.0, "time after which an uploaded file is removed, in hours", minimum=0.5, maximum=366 * 24.0
    )
    per_address: int = option(
        64, "how many visitors' shares one network address has, as a class behind one router", minimum=1, maximum=1024
    )
    sessions: int = option(1000, "open pages whose inputs are remembered", minimum=10, maximum=10_000)
    process_gb: float = option(
        0.0,
        "memory of a model's process beyond what the model needs to load, in GB; 0: as much as all sessions may have",
        smallest=0.1,
        maximum=10_000.0,
    )


LOCAL = Limits()
PUBLIC = Limits(
    audio_minutes=30.0,
    file_mb=200,
    arrays_mb=512,
    body_mb=16,
    text_kb=64,
    json_depth=32,
    new_tokens=2048,
    beams=32,
    run_minutes=10.0,
    running_per_visitor=2,
    waiting_per_visitor=8,
    running=8,
    waiting=96,
    live=64,
    live_per_visitor=2,
    live_idle_seconds=600.0,
    requests_per_minute=240,
    uploads_per_hour=120,
    disk_mb_per_visitor=500,
    disk_mb=5_000,
    upload_hours=24.0,
    per_address=16,
    sessions=200,
    process_gb=3.0,
)


def limits_path() -> Path:
    """Returns the path of the owner's limits if no file is named."""
    return user_config() / FILE


def read_limits(base: Limits, file: Path | None = None) -> Limits:
    """Returns the limits of a mode; limits in the owner's file replace them.

    Args:
        base: `LOCAL` or `PUBLIC`.
        file: the file; by default `limits_path`, if there is one.

    Raises `BadInput` for a file that cannot be read, an unknown limit, or a value beyond its bounds.
    """
    path = file or limits_path()
    if file is None and not path.exists():
        return base
    table = _table(path)
    return replace(base, **{name: getattr(build_options(Limits, table, f"the file {path}"), name) for name in table})


def _table(path: Path) -> dict[str, Any]:
    try:
        text = read_text(path, LONGEST_FILE)
    except BadInput as error:
        raise BadInput(f"the limits in {path} cannot be read: {error}") from error
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"the limits in {path} are not TOML ({error!s:.100}); expected lines like audio_minutes = 20"
        ) from error
