"""FireRedASR's chat template: prompts equal the family's own, and conversations without speech are unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs transformers")

import jinja2

from tests.support.tiny_fireredasr import ARGUMENTS, ENCODER_ARGUMENTS, write_language, write_statistics
from tests.support.tiny_language import change_json
from workbench.core.errors import BadInput
from workbench.families.language.directory import AUDIO
from workbench.families.speech_llm.fireredasr import (
    CMVN,
    FILES,
    LANGUAGE_DIRECTORY,
    PROMPT,
    SPEECH,
    FireRedAsrModel,
    prompt_ids,
    read_fireredasr,
)
from workbench.families.speech_llm.fireredasr_chat import chat_template
from workbench.families.speech_llm.instruction import Instruction

EXPECTED_PROMPT = PROMPT.replace(SPEECH, AUDIO)
TEXT = [{"role": "user", "content": "good day"}, {"role": "assistant", "content": "good day"}]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).touch()
    write_statistics(tmp_path / CMVN)
    write_language(tmp_path / LANGUAGE_DIRECTORY)
    return tmp_path


def model_of(directory: Path) -> FireRedAsrModel:
    return read_fireredasr(directory, ARGUMENTS, ENCODER_ARGUMENTS)


def render(model: FireRedAsrModel, messages: list[dict[str, Any]]) -> str:
    """Returns the prompt that transformers renders from the template."""
    prompt: str = model.tokenizer._tokenizer.apply_chat_template(
        messages, chat_template=chat_template(model), tokenize=False, add_generation_prompt=True
    )
    return prompt


@pytest.mark.parametrize("content", [AUDIO, f"{AUDIO}\n", [{"type": "audio"}], [{"type": "audio", "audio": "..."}]])
def test_speech_only_message_gives_the_family_prompt(content: Any, directory: Path) -> None:
    assert render(model_of(directory), [{"role": "user", "content": content}]) == EXPECTED_PROMPT


@pytest.mark.parametrize(
    "content",
    [
        f"{AUDIO}what is said?",
        f"{AUDIO}\nwhat is said?",
        [{"type": "audio"}, {"type": "text", "text": "what is said?"}],
        [{"type": "text", "text": "what is said?"}, {"type": "audio"}],
    ],
)
def test_text_beside_speech_replaces_the_default_instruction(content: Any, directory: Path) -> None:
    prompt = render(model_of(directory), [{"role": "user", "content": content}])
    assert prompt == f"<|im_start|>user\n{AUDIO}what is said?<|im_end|>\n<|im_start|>assistant\n"


def test_speech_inside_text_keeps_its_place_and_other_messages_are_kept(directory: Path) -> None:
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": f"this: {AUDIO}."},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": [{"type": "text", "text": "and"}, {"type": "text", "text": "then?"}]},
    ]
    assert render(model_of(directory), messages) == (
        f"<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nthis: {AUDIO}.<|im_end|>\n"
        "<|im_start|>assistant\none<|im_end|>\n<|im_start|>user\nand\nthen?<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("own", [Instruction("Say it backwards."), Instruction("", "Be brief."), Instruction("a", "b")])
def test_user_instruction_prompt_matches_the_chat_template(own: Instruction, directory: Path) -> None:
    model = model_of(directory)
    system = [{"role": "system", "content": own.system}] if own.system else []
    beside = [{"type": "text", "text": own.text}] if own.text else []
    expected = render(model, [*system, {"role": "user", "content": [{"type": "audio"}, *beside]}])
    assert prompt_ids(model, own).tolist() == model.tokenizer.encode(expected.replace(AUDIO, SPEECH))
    with pytest.raises(BadInput, match="the instruction contains <speech>, which marks the recording"):
        prompt_ids(model, Instruction(f"what is {SPEECH}?"))


def test_conversation_without_speech_uses_the_language_model_template(directory: Path) -> None:
    model = model_of(directory)
    assert render(model, TEXT) == model.tokenizer.chat(TEXT)


def test_language_model_without_a_template_accepts_speech_messages_only(directory: Path) -> None:
    change_json(directory / LANGUAGE_DIRECTORY / "tokenizer_config.json", chat_template=None)
    model = model_of(directory)
    assert render(model, [{"role": "user", "content": AUDIO}]) == EXPECTED_PROMPT
    with pytest.raises(jinja2.TemplateError, match="has no chat template"):
        render(model, TEXT)
