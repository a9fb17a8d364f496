"""The shipped demo SpeechLM does what its model card says: it speaks, writes, counts and recognises digits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from workbench.core.settings import SessionSpec
from workbench.isolation.loader import open_here
from workbench.registry.sources import assets

SAMPLE = assets() / "samples" / "three_seven_one.wav"


@pytest.fixture(scope="module")
def demo() -> Iterator[Any]:
    session = open_here(SessionSpec("demo/speechlm", "speechlm", "pytorch", assets() / "demo-speechlm"))
    yield session
    session.close()


@pytest.fixture(scope="module")
def recogniser() -> Iterator[Any]:
    """An independent model that transcribes the speech of the demo."""
    session = open_here(SessionSpec("demo/sensevoice", "sensevoice", "pytorch", assets() / "demo-sensevoice"))
    yield session
    session.close()


def ask(demo: Any, content: Any, **options: Any) -> Any:
    return demo.converse([{"role": "user", "content": content}], temperature=0, **options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("say three seven one", "three seven one"),
        ("say 4 0 9 in the voice of lucas", "four zero nine"),
        ("count from two to five", "two three four five"),
    ],
)
def test_spoken_digits_are_recognised_by_another_model(demo: Any, recogniser: Any, text: str, expected: str) -> None:
    answer = ask(demo, text, modalities="text_audio")
    assert answer.finish == "stop" and answer.text == expected
    assert recogniser.transcribe((answer.audio, answer.sample_rate)).text == expected


def test_demo_transcribes_and_repeats_a_recording(demo: Any, recogniser: Any) -> None:
    recording = {"type": "audio", "audio": str(SAMPLE)}
    assert ask(demo, [recording]).text == "three seven one"
    answer = ask(demo, [recording, {"type": "text", "text": "repeat"}], modalities="audio")
    assert recogniser.transcribe((answer.audio, answer.sample_rate)).text == "three seven one"


def test_auto_modalities_follow_the_request(demo: Any) -> None:
    text_answer = ask(demo, "write 371", modalities="auto")
    assert (text_answer.text, text_answer.audio) == ("three seven one", None)
    speech_answer = ask(demo, "say 371", modalities="auto")
    assert speech_answer.audio is not None and np.abs(speech_answer.audio).max() > 0.1
