"""Fun-ASR-Nano's chat template: prompts equal the family's own, and conversations without speech are unchanged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers", reason="needs transformers")


from workbench.families.language.directory import AUDIO
from workbench.families.speech_llm.funasr_nano import (
    LANGUAGES,
    SPEECH,
    FunasrNanoModel,
    FunasrNanoOptions,
    instruction,
    prompt_ids,
    read_funasr_nano,
)
from workbench.families.speech_llm.funasr_nano_chat import chat_template
from workbench.families.speech_llm.instruction import Instruction

DEMO = Path(__file__).resolve().parents[3] / "assets" / "demo-funasr-nano"
WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8)
OPTIONS = st.builds(
    FunasrNanoOptions,
    language=st.sampled_from(["auto", *LANGUAGES]),
    itn=st.booleans(),
    hotwords=st.lists(WORDS, max_size=3).map(tuple),
)
CONTENTS: tuple[Any, ...] = (AUDIO, f"{AUDIO}\n", [{"type": "audio"}])


@pytest.fixture(scope="module")
def model() -> FunasrNanoModel:
    return read_funasr_nano(DEMO)


def render(model: FunasrNanoModel, messages: list[dict[str, Any]], **variables: Any) -> str:
    """Returns the prompt that transformers renders from the template."""
    prompt: str = model.tokenizer._tokenizer.apply_chat_template(
        messages, chat_template=chat_template(model), tokenize=False, add_generation_prompt=True, **variables
    )
    return prompt


@settings(deadline=None, max_examples=60)
@given(options=OPTIONS, content=st.sampled_from(CONTENTS), sys_prompt=st.booleans(), do_think=st.booleans())
def test_speech_only_message_gives_the_family_prompt(
    options: FunasrNanoOptions, content: Any, sys_prompt: bool, do_think: bool, model: FunasrNanoModel
) -> None:
    model = replace(model, sys_prompt=sys_prompt, do_think=do_think)
    variables = {"language": options.language, "itn": options.itn, "hotwords": list(options.hotwords)}
    system = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n" if sys_prompt else ""
    thought = "" if do_think else "<think>\n\n</think>\n\n"
    expected = f"{system}<|im_start|>user\n{instruction(options)}{AUDIO}<|im_end|>\n<|im_start|>assistant\n{thought}"
    assert render(model, [{"role": "user", "content": content}], **variables) == expected


def test_template_without_variables_gives_the_default_prompt(model: FunasrNanoModel) -> None:
    assert f"user\n{instruction(FunasrNanoOptions())}{AUDIO}<|im_end|>" in render(
        model, [{"role": "user", "content": AUDIO}]
    )


@pytest.mark.parametrize(
    "content",
    [
        f"{AUDIO}\nWhat is said?",
        f"What is said?{AUDIO}",
        [{"type": "audio"}, {"type": "text", "text": "What is said?"}],
    ],
)
def test_text_beside_speech_replaces_the_default_instruction(content: Any, model: FunasrNanoModel) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]
    assert render(model, messages) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        f"<|im_start|>user\nWhat is said?{AUDIO}<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("sys_prompt", [True, False])
@pytest.mark.parametrize("own", [Instruction("Say it backwards."), Instruction("", "Be brief."), Instruction("a", "b")])
def test_user_instruction_prompt_matches_the_chat_template(
    own: Instruction, sys_prompt: bool, model: FunasrNanoModel
) -> None:
    model = replace(model, sys_prompt=sys_prompt)
    system = [{"role": "system", "content": own.system}] if own.system else []
    beside = [{"type": "text", "text": own.text}] if own.text else []
    expected = render(model, [*system, {"role": "user", "content": [{"type": "audio"}, *beside]}])
    before, after = map(model.tokenizer.encode, expected.split(AUDIO))
    assert prompt_ids(model, FunasrNanoOptions(), own).tolist() == [*before, SPEECH, *after]


def test_conversation_without_speech_uses_the_language_model_template(model: FunasrNanoModel) -> None:
    messages = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    expected = model.tokenizer.chat(messages)
    assert render(model, messages) == expected
    model.tokenizer._tokenizer.chat_template, own = None, model.tokenizer._tokenizer.chat_template
    try:
        assert "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\ntwo<|im_end|>" in render(model, messages)
    finally:
        model.tokenizer._tokenizer.chat_template = own


def test_unknown_language_variable_is_refused(model: FunasrNanoModel) -> None:
    with pytest.raises(Exception, match="language is xx; expected auto, zh, en"):
        render(model, [{"role": "user", "content": AUDIO}], language="xx")
