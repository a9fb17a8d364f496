"""Recordings and weights that lie beside a development checkout; tests that need them skip where they are missing."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def shared(relative: str) -> Path:
    """The path of a file or folder below the shared data; skips the calling test if it is missing, saying so."""
    path = SHARED / relative
    if not path.exists():
        pytest.skip(f"needs the shared development data: {relative} is not beside this checkout")
    return path
