"""The plain causal language model (Qwen2, Qwen3, Llama, Mistral): what is the same on every runtime.

It reads a directory in Hugging Face's form, or the language model of a Fun-ASR-Nano checkpoint. It turns a prompt into
ids. This file opens no weights and computes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.core.characters import check_characters
from workbench.core.errors import BadInput, message_of
from workbench.core.options import option
from workbench.decoding.generation import WritingOptions
from workbench.embeddings import Embedding, check_embeddings
from workbench.embeddings.prompt import TokenPrompt, check_placeholders, injected, with_own_placeholder
from workbench.families.language.directory import (
    PLACEHOLDER,
    TURN_END,
    VLLM_SECTION,
    LanguageConfig,
    LanguageTokenizer,
    is_language_directory,
    read_language_config,
)
from workbench.families.speech_llm.funasr_nano import FunasrNanoModel, is_funasr_nano, read_funasr_nano
from workbench.formats.json_files import read_json_file
from workbench.session.values import Prompt

ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True)
class CausalLmOptions(WritingOptions):
    """The user's options for a language model."""

    system: str = option("", "the conversation's system message; empty for the default of the model's chat template")
    chat: bool = option(True, "put a plain text into the model's chat template, if it has one")
    thinking: bool = option(True, "let a model that can think do so before it answers (Qwen3)")


@dataclass(frozen=True)
class CausalLmModel:
    """A language model without its weights."""

    language: LanguageConfig
    tokenizer: LanguageTokenizer
    stop_ids: tuple[int, ...]
    speech: FunasrNanoModel | None = None  # the speech model whose file contains the weights


def is_causal_lm(directory: Path) -> bool:
    """Returns whether this is the directory of a language model."""
    return is_language_directory(directory)


def read_causal_lm(directory: Path, weights: Path | None = None) -> CausalLmModel:
    """Reads configuration and tokenizer.

    Args:
        weights: the weights' file of a speech model, if it is outside the directory. The directory of a plain language
            model is read without its weights.

    Raises `BadInput` if they are missing or inconsistent.
    """
    if is_funasr_nano(directory):
        speech = read_funasr_nano(directory, weights)
        return CausalLmModel(speech.language, speech.tokenizer, speech.stop_ids, speech)
    language = read_language_config(directory)
    tokenizer = LanguageTokenizer.read(directory)
    tokenizer.check_room(language)
    end = tokenizer.id_of(TURN_END)
    stops = (*language.stop_ids, *([] if end is None else [end]))
    return CausalLmModel(language, tokenizer, tuple(dict.fromkeys(stops)))


def token_prompt(
    model: CausalLmModel, prompt: Prompt, options: CausalLmOptions, embeddings: Sequence[Embedding] = ()
) -> TokenPrompt:
    """Returns a text or a conversation as the model's prompt, ready for generation.

    Args:
        embeddings: replace the placeholders in the prompt, in order. These are the model's own, or all the usual one.

    Raises `BadInput` for an empty or malformed prompt, a conversation that the model has no format for, a prompt that
    leaves no room for `max_new_tokens`, a different number of placeholders and embeddings, and embeddings of another
    width.
    """
    where = model.language.directory.name
    messages = conversation(prompt, options, model.tokenizer.has_chat_template, where)
    texts = [str(prompt)] if messages is None else [message["content"] for message in messages]
    texts = with_own_placeholder(texts, PLACEHOLDER, model.language.placeholder, len(embeddings))
    placeholder = _placeholder(model, texts, len(embeddings), where)
    if messages is None:
        ids = model.tokenizer.encode(texts[0], begin=True)
    else:
        placed = [{**message, "content": text} for message, text in zip(messages, texts, strict=True)]
        ids = model.tokenizer.encode(_chat_text(model, placed, options, where))
    if not ids:
        raise BadInput(f"the tokenizer of {where} has no token for any character of the prompt; expected another text")
    context = model.language.context
    if embeddings:
        count, token = ids.count(placeholder), model.language.placeholder
        if count != len(embeddings):
            raise BadInput(
                f"of {len(embeddings)} placeholders {token} in the prompt, {count} are tokens of what {where} reads; "
                "expected a prompt that its chat template does not shorten"
            )
        room = context - options.max_new_tokens - (len(ids) - len(embeddings))
        check_embeddings(embeddings, model.language.hidden_size, room, where)
        return injected(ids, placeholder, embeddings)
    if len(ids) + options.max_new_tokens > context:
        raise BadInput(
            f"the prompt is {len(ids)} tokens long and max_new_tokens is {options.max_new_tokens}; "
            f"expected at most {context} together, the context of {where}"
        )
    return TokenPrompt(ids)


def _placeholder(model: CausalLmModel, texts: Sequence[str], count: int, where: str) -> int:
    """Returns the id of the placeholder for embeddings; raises `BadInput` unless the texts contain it `count` times."""
    placeholder = model.language.placeholder
    number = model.tokenizer.id_of(placeholder)
    if number is not None:
        check_placeholders(texts, placeholder, count)
        return number
    if count:
        remedy = f'name one that it has in config.json, as "{VLLM_SECTION}": {{"placeholder": ...}}'
        if model.language.directory.is_file():  # a GGUF file of another program
            remedy = f"a file names no other; open the model's directory on another runtime, and {remedy}"
        raise BadInput(
            f"the tokenizer of {where} has no token {placeholder}, which stands for an embedding in a prompt; {remedy}"
        )
    return -1


def conversation(
    prompt: Any, options: CausalLmOptions, has_template: bool, where: str
) -> Sequence[Mapping[str, str]] | None:
    """Returns the messages of a prompt; None for a plain text that is to be continued directly.

    Args:
        has_template: whether the model has a format for conversations.
        where: the model's name in messages.

    Raises `BadInput` for an empty or malformed prompt, and a conversation that the model has no format for.
    """
    if isinstance(prompt, str):
        if not prompt.strip():
            raise BadInput("the prompt is empty; expected a text")
        check_characters(prompt, "the prompt")
        if options.chat and has_template:
            return _with_system([{"role": "user", "content": prompt}], options.system)
        if options.system:
            reason = "option chat is off" if has_template else f"{where} has no chat template"
            raise BadInput(f"there is a system message and {reason}; expected a plain text alone")
        return None
    if not isinstance(prompt, (list, tuple)):
        raise BadInput(f"the prompt is of type {type(prompt).__name__}; expected a text or a list of messages")
    if not prompt:
        raise BadInput("the prompt has no messages; expected at least one")
    for number, message in enumerate(prompt, 1):
        _check_message(message, number)
    if not any(message["content"].strip() for message in prompt):
        raise BadInput("all messages of the prompt are empty; expected a text in one of them")
    if not has_template:
        raise BadInput(f"{where} has no chat template; give the prompt as one text")
    return _with_system(prompt, options.system)


def _check_message(message: Any, number: int) -> None:
    if not isinstance(message, Mapping):
        kind = type(message).__name__
        raise BadInput(f"message {number} is of type {kind}; expected a mapping with role and content")
    for key in ("role", "content"):
        if key not in message:
            raise BadInput(f"message {number} has no {key}; expected role and content")
        if not isinstance(message[key], str):
            raise BadInput(f"the {key} of message {number} is of type {type(message[key]).__name__}; expected a text")
        check_characters(message[key], f"the {key} of message {number}")
    if message["role"] not in ROLES:
        raise BadInput(f"the role of message {number} is {message['role']!r:.80}; expected one of {', '.join(ROLES)}")


def _with_system(messages: Sequence[Mapping[str, str]], system: str) -> Sequence[Mapping[str, str]]:
    if not system:
        return messages
    if messages[0]["role"] == "system":
        raise BadInput("the prompt begins with a system message and option system gives another; expected one of them")
    return [{"role": "system", "content": system}, *messages]


def _chat_text(
    model: CausalLmModel, messages: Sequence[Mapping[str, str]], options: CausalLmOptions, where: str
) -> str:
    try:
        # Templates that know nothing of thinking ignore the variable.
        return model.tokenizer.chat(messages, enable_thinking=options.thinking)
    except Exception as error:  # a template raises its own errors for messages that its model was not trained on
        raise BadInput(f"the chat template of {where} does not take these messages: {message_of(error)}") from error


def loads_unconverted(directory: Path, family: str) -> bool:
    """Returns whether vLLM loads the directory without conversion: an ordinary language model with safetensors.

    It must hold nothing that vLLM would load and transformers not: vLLM loads every safetensors file in a directory, or
    those of its index.
    """
    if family != "causal_lm" or (directory / "config.yaml").is_file():
        return False
    try:
        config = read_json_file(directory / "config.json")
    except BadInput:  # its reader reports what is wrong
        return False
    if not config.get("architectures"):
        return False
    single_file, has_index = "model.safetensors", (directory / "model.safetensors.index.json").is_file()
    if (directory / single_file).is_file():  # transformers loads this file alone
        return not has_index and [path.name for path in directory.glob("*.safetensors")] == [single_file]
    return has_index
