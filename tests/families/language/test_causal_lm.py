"""Prompts of a text language model: texts and conversations become token ids, and invalid prompts are refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_checkpoints import tiny_sensevoice
from tests.support.tiny_funasr_nano import tiny_funasr_nano
from tests.support.tiny_language import CONTEXT, change_json, tiny_language
from workbench.core.errors import BadInput
from workbench.families import FAMILIES, family_of
from workbench.families.language.causal_lm import (
    CausalLmModel,
    CausalLmOptions,
    is_causal_lm,
    read_causal_lm,
    token_prompt,
)
from workbench.session.values import PROMPT

USER = {"role": "user", "content": "Count from one to three."}
ASSISTANT = {"role": "assistant", "content": "one two three"}
SYSTEM = {"role": "system", "content": "Be brief."}
DEFAULT_SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"  # of the tiny model's template
USER_TURN = "<|im_start|>user\nCount from one to three.<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_language(tmp_path_factory.mktemp("language") / "it")


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> CausalLmModel:
    return read_causal_lm(checkpoint)


@pytest.fixture
def directory(checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint that the test may change."""
    return shutil.copytree(checkpoint, tmp_path / "it")


def prompt_of(model: CausalLmModel, prompt: Any, **options: Any) -> str:
    """Returns the prompt as the model receives it."""
    ids = token_prompt(model, prompt, CausalLmOptions(**{"max_new_tokens": 10, **options})).ids
    return model.tokenizer.decode(ids, special=True)


# Whose directory it is.


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama", "mistral"])
def test_supported_model_types_are_recognised(tmp_path: Path, kind: str) -> None:
    assert family_of(tiny_language(tmp_path / kind, kind)).name == "causal_lm"


def test_speech_model_directory_can_be_read_as_a_language_model(tmp_path: Path) -> None:
    directory = tiny_funasr_nano(tmp_path / "nano")
    assert family_of(directory).name == "funasr_nano" and not is_causal_lm(directory)
    model = read_causal_lm(directory)
    assert model.speech is not None and model.language.directory.parent == directory
    assert model.stop_ids == model.speech.stop_ids


def test_other_model_directories_are_not_recognised_as_causal_lm(tmp_path: Path) -> None:
    assert not is_causal_lm(tiny_sensevoice(tmp_path / "sense"))
    assert not is_causal_lm(tmp_path / "nowhere")


def test_unsupported_model_type_is_refused_with_the_supported_types(directory: Path) -> None:
    change_json(directory / "config.json", model_type="bert")
    with pytest.raises(BadInput, match=r"^it/config\.json is of model type 'bert'; expected qwen2, "):
        family_of(directory)


def test_causal_lm_is_the_only_family_with_prompt_input() -> None:
    assert [name for name, family in FAMILIES.items() if family.input == PROMPT] == ["causal_lm"]
    assert list(FAMILIES)[-1] == "causal_lm", "a speech model's directory may also be that of a language model"


# Reading.


def test_end_of_turn_token_is_a_stop_token_without_generation_config(directory: Path) -> None:
    (directory / "generation_config.json").unlink(missing_ok=True)
    change_json(directory / "config.json", eos_token_id=456)
    assert read_causal_lm(directory).stop_ids == (456, 458)


def test_tokenizer_larger_than_vocab_size_is_refused(directory: Path) -> None:
    change_json(directory / "config.json", vocab_size=400)
    with pytest.raises(BadInput, match=r"^the tokenizer in it has ids up to \d+; its config\.json has room for 400$"):
        read_causal_lm(directory)


# Prompts.


def test_plain_text_becomes_a_user_turn(model: CausalLmModel) -> None:
    assert prompt_of(model, USER["content"]) == DEFAULT_SYSTEM + USER_TURN
    assert prompt_of(model, USER["content"], system="Be brief.") == (
        "<|im_start|>system\nBe brief.<|im_end|>\n" + USER_TURN
    )
    assert prompt_of(model, USER["content"], chat=False) == USER["content"]


def test_list_of_messages_is_written_by_the_chat_template(model: CausalLmModel) -> None:
    brief = "<|im_start|>system\nBe brief.<|im_end|>\n"
    assert prompt_of(model, [SYSTEM, USER]) == brief + USER_TURN == prompt_of(model, (USER,), system="Be brief.")
    assert prompt_of(model, [USER, ASSISTANT, USER], chat=False) == (
        DEFAULT_SYSTEM + USER_TURN + "one two three<|im_end|>\n" + USER_TURN
    )


def test_model_without_a_chat_template_continues_plain_text(directory: Path) -> None:
    change_json(directory / "tokenizer_config.json", chat_template=None)
    model = read_causal_lm(directory)
    assert prompt_of(model, "seven") == "seven"
    with pytest.raises(BadInput, match=r"^it has no chat template; give the prompt as one text$"):
        prompt_of(model, [USER])
    with pytest.raises(
        BadInput, match=r"^there is a system message and it has no chat template; expected a plain text"
    ):
        prompt_of(model, "seven", system="Be brief.")


def test_thinking_option_is_passed_to_the_chat_template(directory: Path) -> None:
    template = "{{ messages[0]['content'] }}{% if enable_thinking is false %}<think></think>{% endif %}"
    change_json(directory / "tokenizer_config.json", chat_template=template)
    (directory / "chat_template.jinja").unlink(missing_ok=True)
    model = read_causal_lm(directory)
    assert prompt_of(model, "seven") == "seven"
    assert prompt_of(model, "seven", thinking=False) == "seven<think></think>"


def test_chat_template_exception_raises_one_line_error(directory: Path) -> None:
    template = "{{ raise_exception('roles must\\nalternate') }}"
    change_json(directory / "tokenizer_config.json", chat_template=template)
    with pytest.raises(BadInput, match=r"^the chat template of it does not take these messages: roles must alternate$"):
        prompt_of(read_causal_lm(directory), [USER])


@pytest.mark.parametrize(
    ("prompt", "sentence"),
    [
        ("", "the prompt is empty; expected a text"),
        (" \n\t", "the prompt is empty; expected a text"),
        ("one \ud83d", "the prompt holds half a character; expected a text that can be written as UTF-8"),
        (
            [{"role": "user", "content": "\udc00"}],
            "the content of message 1 holds half a character; expected a text that can be written as UTF-8",
        ),
        (None, "the prompt is of type NoneType; expected a text or a list of messages"),
        (7, "the prompt is of type int; expected a text or a list of messages"),
        (b"seven", "the prompt is of type bytes; expected a text or a list of messages"),
        (USER, "the prompt is of type dict; expected a text or a list of messages"),
        ([], "the prompt has no messages; expected at least one"),
        (["seven"], "message 1 is of type str; expected a mapping with role and content"),
        ([USER, {"role": "user"}], "message 2 has no content; expected role and content"),
        ([{"content": "seven"}], "message 1 has no role; expected role and content"),
        ([USER, {"role": "user", "content": 7}], "the content of message 2 is of type int; expected a text"),
        ([{"role": 1, "content": "seven"}], "the role of message 1 is of type int; expected a text"),
        (
            [{"role": "speaker", "content": "seven"}],
            "the role of message 1 is 'speaker'; expected one of system, user, assistant, tool",
        ),
        ([{"role": "user", "content": " "}], "all messages of the prompt are empty; expected a text in one of them"),
    ],
)
def test_invalid_prompt_raises_one_line_error(model: CausalLmModel, prompt: Any, sentence: str) -> None:
    with pytest.raises(BadInput) as caught:
        prompt_of(model, prompt)
    assert str(caught.value) == sentence


def test_prompt_without_a_token_is_refused(model: CausalLmModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model.tokenizer, "encode", lambda text, begin=False: [])  # a vocabulary of other characters
    with pytest.raises(
        BadInput, match=r"^the tokenizer of it has no token for any character of the prompt; expected an"
    ):
        prompt_of(model, "seven")


def test_conflicting_system_messages_are_refused(model: CausalLmModel) -> None:
    with pytest.raises(BadInput, match=r"^the prompt begins with a system message and option system gives another; "):
        prompt_of(model, [SYSTEM, USER], system="Be long.")
    with pytest.raises(
        BadInput, match=r"^there is a system message and option chat is off; expected a plain text alone$"
    ):
        prompt_of(model, "seven", system="Be brief.", chat=False)


def test_prompt_and_max_new_tokens_beyond_the_context_are_refused(model: CausalLmModel) -> None:
    length = len(token_prompt(model, "seven", CausalLmOptions(max_new_tokens=1, chat=False)).ids)
    fits = CausalLmOptions(max_new_tokens=CONTEXT - length, chat=False)
    assert token_prompt(model, "seven", fits).ids
    with pytest.raises(BadInput) as caught:
        token_prompt(model, "seven", CausalLmOptions(max_new_tokens=CONTEXT - length + 1, chat=False))
    assert str(caught.value) == (
        f"the prompt is {length} tokens long and max_new_tokens is {CONTEXT - length + 1}; "
        f"expected at most {CONTEXT} together, the context of it"
    )
