"""A language model's GGUF file as a checkpoint directory: its tokenizer gives the ids of the original tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtimes.gguf.files.test_funasr_files import changed_copy
from tests.support.tiny_gguf import tiny_gguf
from tests.support.tiny_language import CONTEXT, VOCABULARY, put_tokenizer
from workbench.core.errors import BadInput
from workbench.families.language.causal_lm import CausalLmModel, read_causal_lm
from workbench.families.language.directory import LanguageTokenizer
from workbench.formats.gguf_file import read_gguf
from workbench.runtimes.gguf.files.language_files import language_files
from workbench.runtimes.gguf.files.unpacking import unpacked


@pytest.fixture(scope="module")
def language_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("language") / "qwen.gguf"
    tiny_gguf(path)
    return path


@pytest.fixture(scope="module")
def model(language_file: Path) -> CausalLmModel:
    with unpacked(read_gguf(language_file)) as directory:
        return read_causal_lm(directory)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> LanguageTokenizer:
    directory = tmp_path_factory.mktemp("tokenizer")
    put_tokenizer(directory)
    return LanguageTokenizer.read(directory)


def test_unpacked_configuration_equals_that_of_the_network(model: CausalLmModel, original: LanguageTokenizer) -> None:
    language = model.language
    assert (language.model_type, language.hidden_size, language.layers) == ("qwen3", 32, 3)
    assert (language.vocabulary, language.context) == (VOCABULARY, CONTEXT)
    assert set(model.stop_ids) == {original.id_of("<|im_end|>"), original.id_of("<|endoftext|>")}
    assert len(model.tokenizer) == len(original)


TEXTS = [
    "three seven one",
    "语音转写成英文：",
    "<|im_start|>user\nWrite in figures: one two<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "don't 12345 ½ é e\u0301 \t\r\n  x  ",
    "",
]


@pytest.mark.parametrize("text", TEXTS)
def test_ids_and_texts_equal_those_of_the_original_tokenizer(
    model: CausalLmModel, original: LanguageTokenizer, text: str
) -> None:
    ids = original.encode(text)
    assert model.tokenizer.encode(text) == ids
    for special in (False, True):
        assert model.tokenizer.decode(ids, special) == original.decode(ids, special)


@given(text=st.text(max_size=30))
def test_random_texts_have_the_ids_of_the_original_tokenizer(
    model: CausalLmModel, original: LanguageTokenizer, text: str
) -> None:
    assert model.tokenizer.encode(text) == original.encode(text)


def test_chat_template_is_retained(model: CausalLmModel, original: LanguageTokenizer) -> None:
    messages = [{"role": "user", "content": "Repeat: one"}]
    assert model.tokenizer.has_chat_template
    assert model.tokenizer.chat(messages) == original.chat(messages)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"tokenizer.ggml.model": "llama"}, r"the tokenizer of bad.gguf is 'llama' with 'qwen2'; expected 'gpt2' with"),
        ({"tokenizer.ggml.pre": "llama-bpe"}, r"the tokenizer of bad.gguf is 'gpt2' with 'llama-bpe'; expected 'gpt2'"),
        ({"tokenizer.ggml.model": None}, r"bad.gguf has no metadata key tokenizer.ggml.model"),
        ({"tokenizer.ggml.merges": None}, r"bad.gguf has no tokenizer.ggml.merges"),
        ({"tokenizer.ggml.tokens": ["a", "b"]}, r"bad.gguf has 2 tokens \(.*\) and 512 types of them"),
        ({"tokenizer.ggml.token_type": None}, r"bad.gguf has 512 tokens \(.*\) and 0 types of them"),
        ({"tokenizer.ggml.eos_token_id": 512}, r"tokenizer.ggml.eos_token_id in bad.gguf is 512; expected a whole"),
        (
            {"tokenizer.ggml.tokens": [str(n) for n in range(600)], "tokenizer.ggml.token_type": [1] * 600},
            r"bad.gguf has 600 tokens, and tensor token_embd.weight has 512 rows",
        ),
    ],
)
def test_invalid_vocabularies_are_refused(
    language_file: Path, tmp_path: Path, keys: Mapping[str, Any], reason: str
) -> None:
    with pytest.raises(BadInput, match=reason):
        language_files(changed_copy(language_file, tmp_path / "bad.gguf", keys))
