"""The tokenizer in a GGUF file against transformers' of the same vocabulary: ids, text, chat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from tests.support.tiny_gguf import tiny_gguf
from workbench.core.errors import BadInput
from workbench.families.language.directory import LanguageTokenizer
from workbench.formats.gguf_file import read_gguf
from workbench.runtimes.gguf.files.language_file import language_config
from workbench.runtimes.gguf.llama_cpp.chat_templates import compiled
from workbench.runtimes.gguf.llama_cpp.llama import open_plain
from workbench.runtimes.gguf.llama_cpp.llama_tokenizer import LlamaTokenizer

KINDS = ("qwen3", "qwen2")
CHATS = (
    [{"role": "user", "content": "Count from one to three."}],
    [
        {"role": "system", "content": 'Be <brief> & "exact".'},
        {"role": "user", "content": "seven\n"},
        {"role": "assistant", "content": "<think>\n7\n</think>\n\nseven"},
        {"role": "user", "content": "数字 é"},
    ],
)
TEXTS = (
    "",
    " ",
    "seven three one",
    "It's  I'LL we've\tdon't\n\n \r\n end ",
    "1234567 3.14 ½ ²",
    "你好，世界。数字 七",
    "e\u0301 \u1100\u1161 \ufb01 \u212b",  # not in the composed form
    "<|im_start|>user\nhi<|im_end|>\n<think>a</think><|endoftext|>",
    "<|im_end|>\u0338 >\u0338",  # a mark behind a special token
    "🤦🏽‍♀️ \u200b\ufeff \x00 \x7f",
    "<|im_star|><|im_start|",
)


def pair(folder: Path, kind: str) -> tuple[LlamaTokenizer, LanguageTokenizer]:
    tiny_gguf(folder / f"{kind}.gguf", kind)
    file = read_gguf(folder / f"{kind}.gguf")
    reference = LanguageTokenizer(AutoTokenizer.from_pretrained(folder / f"{kind}.tokenizer"))
    return LlamaTokenizer(open_plain(file), file), reference


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[LlamaTokenizer, LanguageTokenizer]]:
    """The tokenizer of a GGUF file and that of transformers, by the kind of the model."""
    folder = tmp_path_factory.mktemp("tokenizers")
    return {kind: pair(folder, kind) for kind in KINDS}


def assert_same(tokenizer: LanguageTokenizer, reference: LanguageTokenizer, text: str) -> None:
    ids = reference.encode(text)
    assert tokenizer.encode(text) == ids
    assert tokenizer.encode(text, begin=True) == reference.encode(text, begin=True)
    for special in (False, True):
        assert tokenizer.decode(ids, special) == reference.decode(ids, special)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_special_texts_have_the_ids_of_transformers(tokenizers: Any, kind: str, text: str) -> None:
    assert_same(*tokenizers[kind], text)


@given(
    text=st.lists(
        st.one_of(
            st.text(st.characters(exclude_categories=("Cs",)), max_size=12),
            st.sampled_from(["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "\n", " ", "'s", "七", "seven"]),
        ),
        max_size=8,
    ).map("".join)
)
@settings(max_examples=400, deadline=None)
def test_random_texts_have_the_ids_of_transformers(tokenizers: Any, text: str) -> None:
    assert_same(*tokenizers["qwen3"], text)


@given(ids=st.lists(st.integers(-2, 520), max_size=12), special=st.booleans())
@settings(max_examples=300, deadline=None)
def test_random_ids_have_the_text_of_transformers(tokenizers: Any, ids: list[int], special: bool) -> None:
    """The ids include parts of characters and ids outside the vocabulary."""
    tokenizer, reference = tokenizers["qwen3"]
    assert tokenizer.decode(ids, special) == reference.decode(ids, special)


def test_pieces_and_token_ids_equal_transformers(tokenizers: Any) -> None:
    tokenizer, reference = tokenizers["qwen3"]
    for number in range(512):
        assert tokenizer.piece(number) == reference.piece(number)
    for token in ("<|im_end|>", "<think>", "Ġ", "no such token", "[PAD500]"):
        assert tokenizer.id_of(token) == reference.id_of(token)
    assert len(tokenizer) == 512  # spare rows have names in the file


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("messages", CHATS)
@pytest.mark.parametrize("variables", [{}, {"enable_thinking": False}], ids=str)
def test_chat_prompt_equals_that_of_transformers(
    tokenizers: Any, kind: str, messages: Any, variables: dict[str, Any]
) -> None:
    tokenizer, reference = tokenizers[kind]
    assert tokenizer.has_chat_template
    assert tokenizer.chat(messages, **variables) == reference.chat(messages, **variables)


def with_template(tokenizers: Any, template: str) -> LlamaTokenizer:
    original = tokenizers["qwen3"][0]
    tokenizer = LlamaTokenizer(original.model, original.file)
    tokenizer.__dict__["_template"] = compiled(template)
    return tokenizer


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{% generation %}\n{{ m.content }}!\n{% endgeneration %}{{ m.role }}{% endfor %}",
        "{% set n = 1 %}{% generation %}{% set n = 2 %}{{ n }}{% endgeneration %}{{ n }}",
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m | tojson(indent=2) }}{% endfor %}",
    ],
)
def test_tags_of_chat_templates_work_as_with_transformers(tokenizers: Any, template: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    messages = [dict(message) for message in CHATS[1]]
    [expected], _ = render_jinja_template([messages], chat_template=template)
    assert with_template(tokenizers, template).chat(messages) == expected


def test_chat_template_can_use_json_and_raise_errors(tokenizers: Any) -> None:
    messages = [{"role": "user", "content": "<é>"}]
    assert with_template(tokenizers, "{{ messages | tojson }}{{ eos_token }}").chat(messages) == (
        '[{"role": "user", "content": "<é>"}]<|im_end|>'
    )
    with pytest.raises(ValueError, match=r"^only one$"):
        with_template(tokenizers, "{{ raise_exception('only one') }}").chat(messages)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{% for i in range(999999999) %}{% endfor %}",
    ],
)
def test_unsafe_chat_template_is_refused_by_the_sandbox(tokenizers: Any, template: str) -> None:
    from jinja2.exceptions import SecurityError

    with pytest.raises((SecurityError, OverflowError)):
        with_template(tokenizers, template).chat(CHATS[0])


def test_tokenizer_of_a_closed_model_raises_one_line_error(tmp_path: Path) -> None:
    tokenizer, _ = pair(tmp_path, "qwen3")
    tokenizer.model.close()
    with pytest.raises(BadInput, match=r"^qwen3\.gguf is closed; open it again$"):
        tokenizer.encode("seven")


def test_lone_surrogate_is_refused_by_both_tokenizers(tokenizers: Any) -> None:
    for tokenizer in tokenizers["qwen3"]:
        for encode in (tokenizer.encode, tokenizer.encode_plain):
            with pytest.raises(BadInput, match=r"^the text for the model holds half a character; expected a text that"):
                encode("one \ud83d two")


def test_embedding_table_smaller_than_the_vocabulary_is_refused(tokenizers: Any) -> None:
    from dataclasses import replace

    tokenizer = tokenizers["qwen3"][0]
    config = language_config(tokenizer.file)
    tokenizer.check_room(config)
    with pytest.raises(BadInput, match=r"^qwen3\.gguf has 512 tokens; its table of embeddings has room for 511$"):
        tokenizer.check_room(replace(config, vocabulary=511))
