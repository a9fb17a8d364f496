"""Evaluation workers: words made from a transcript, and missing recordings on the worker's machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.core.errors import Unavailable
from workbench.evaluation.worker import Worker, _words
from workbench.session.values import Segment, Token


def test_words_have_times_and_lowest_confidence_of_their_tokens() -> None:
    def token(text: str, start: float, end: float, confidence: float | None = None) -> Token:
        return Token(1, text, start, end, confidence)

    german = (
        token("▁gr", 0.1, 0.2, 0.9),
        token("üß", 0.2, 0.3, 0.5),
        token("e", 0.3, 0.4, 0.8),
        token("▁an", 0.5, 0.6),
    )
    chinese = (token("今", 2.1, 2.2, 0.25), token("天", 2.3, 2.4), token("▁ok", 3.3, 3.9))
    segments = (Segment(0.0, 2.0, "Grüße, an", german), Segment(2.0, 4.0, "今天 ok", chinese), Segment(4.0, 5.0, "so"))
    assert list(_words(segments)) == [
        {"text": "Grüße,", "start": 0.1, "end": 0.4, "confidence": 0.5},
        {"text": "an", "start": 0.5, "end": 0.6},
        {"text": "今", "start": 2.1, "end": 2.2, "confidence": 0.25},
        {"text": "天", "start": 2.3, "end": 2.4},
        {"text": "ok", "start": 3.3, "end": 3.9},
    ]


def test_worker_without_access_to_the_recordings_raises_an_error(tmp_path: Path) -> None:
    long = "a" * 300 + ".wav"  # no file system takes the name
    for root, sample, missing in (
        (str(tmp_path), "a.wav", tmp_path / "a.wav"),
        (str(tmp_path), long, tmp_path / long),
        (str(tmp_path / "none"), "a.wav", tmp_path / "none"),
        ("", str(tmp_path / long / "a.wav"), tmp_path / long / "a.wav"),
    ):
        job: Any = SimpleNamespace(root=root, sample=sample, spec=None)
        with pytest.raises(Unavailable) as caught:
            Worker(job, "ray-1@far", elsewhere=True)
        assert str(caught.value).startswith(f"ray-1@far has no {missing}; put the recordings at the same path")
