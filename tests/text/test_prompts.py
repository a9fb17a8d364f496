"""Text prompts, and the detection of recording names given instead of a prompt."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.errors import BadInput
from workbench.registry.sources import assets
from workbench.text.prompts import SUFFIXES, check_prompt, check_typed, messages_of

SAMPLE = assets() / "samples" / "three_seven_one.wav"
REFUSED = r"^'.*' is the name of a recording, and m continues a text; expected the text itself, such as "


@pytest.mark.parametrize("name", ["x.wav", " talks/x.FLAC\n", "https://here.example/x.mp3", SAMPLE, Path("notes.txt")])
def test_recording_name_as_a_prompt_is_refused(name: str | Path) -> None:
    with pytest.raises(BadInput, match=REFUSED):
        check_prompt(name, "m")


@pytest.mark.parametrize(
    "text",
    ["", ".", "Count from two to six.", "Who speaks in talk.wav", "notes.txt", "wav", "x.wav is short", "a" * 999],
)
def test_ordinary_text_is_accepted_as_a_prompt(text: str) -> None:
    check_prompt(text, "m")
    check_typed(text, "m")


def test_conversation_with_any_text_is_accepted() -> None:
    check_prompt([{"role": "user", "content": "x.wav"}], "m")


@given(st.text())
def test_arbitrary_text_without_an_audio_suffix_is_accepted(text: str) -> None:
    if not any(text.lower().strip().endswith(suffix) for suffix in SUFFIXES):
        check_prompt(text, "m")
        check_typed(text, "m")


def test_typed_prompt_that_names_an_existing_sound_file_is_refused(tmp_path: Path) -> None:
    with_extension, without_extension, text = tmp_path / "my talk.wav", tmp_path / "talk", tmp_path / "talk.txt"
    with_extension.touch()
    without_extension.write_bytes(SAMPLE.read_bytes())
    text.write_text("three seven one")
    for path in (with_extension, without_extension):
        check_prompt(str(path), "m")
        with pytest.raises(BadInput, match=REFUSED):
            check_typed(str(path), "m")
    check_typed(str(text), "m")


def test_recording_is_passed_to_an_audio_model_as_a_message(tmp_path: Path) -> None:
    def audio_message(audio: object) -> object:
        return [{"role": "user", "content": [{"type": "audio", "audio": audio}]}]

    assert messages_of("say x.wav twice") == "say x.wav twice"
    assert messages_of("talk.wav") == audio_message(str(Path("talk.wav").absolute()))
    assert messages_of(tmp_path / "talk") == audio_message(str(tmp_path / "talk"))
    (tmp_path / "talk").write_bytes(b"RIFF....WAVE")
    assert messages_of(str(tmp_path / "talk")) == str(tmp_path / "talk"), "only for who types on this machine"
    assert messages_of(str(tmp_path / "talk"), typed=True) == audio_message(str(tmp_path / "talk"))
    assert messages_of(("samples", 16000)) == audio_message(("samples", 16000))
