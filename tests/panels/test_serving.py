"""What a server sets up around the page and takes away when it ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from panels.serving import UPLOADS, own_uploads


def test_uploads_have_a_folder_that_goes_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(UPLOADS)
    with own_uploads():
        first = Path(os.environ[UPLOADS])
        first.mkdir()  # as Gradio makes it
        (first / "talk.wav").write_bytes(b"RIFF")
    assert not first.exists() and not first.parent.exists() and UPLOADS not in os.environ


def test_a_folder_that_the_environment_names_is_used_and_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(UPLOADS, str(tmp_path))
    with own_uploads():
        assert os.environ[UPLOADS] == str(tmp_path)
    assert tmp_path.exists()
