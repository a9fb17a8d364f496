"""The language model of the demos: a small tokenizer in Qwen's layout, small text tasks, and batches of both.

The tasks train the language model without audio: counting, figures and words, order. This file knows neither features
nor encoders.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workbench.families.language.directory import LanguageTokenizer
from workbench.families.speech_llm.funasr_nano import LANGUAGES, SYSTEM, FunasrNanoOptions, instruction
from workbench.system.atomic_files import follow_umask
from workbench.training.data.digits import WORDS, words_of

MERGES = 200  # besides the 256 bytes
# Rows of the embedding table; the last ones are spare, as in the published models.
VOCABULARY = 512
QWEN2_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
QWEN3_SPECIAL = (
    *QWEN2_SPECIAL,
    *("<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>"),
    *("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
    *("<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"),
    *("<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>"),
)
SPOKEN_LIKE_TEXT = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
"""Added tokens that decoding does not leave out."""

SPLIT = (  # Qwen2's pre-tokenizer: contractions, words, single digits, punctuation, spaces
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = (
    "{%- if messages[0]['role'] != 'system' %}"
    "{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{%- endif %}"
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def write_tokenizer(directory: Path, special: Sequence[str]) -> None:
    """Writes tokenizer.json, vocab.json, merges.txt and tokenizer_config.json of a byte-level BPE like Qwen's."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=256 + MERGES, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_tokenizer_texts(), trainer)
    tokenizer.add_tokens(
        [AddedToken(token, special=token not in SPOKEN_LIKE_TEXT, normalized=False) for token in special]
    )
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    tokenizer.model.save(str(directory))
    added = {
        str(tokenizer.token_to_id(token)): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": token not in SPOKEN_LIKE_TEXT,
        }
        for token in special
    }
    settings = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "bos_token": None,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 32768,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n")


def make_tokenizer(special: Sequence[str]) -> LanguageTokenizer:
    """Returns the tokenizer that `write_tokenizer` writes, without writing a folder."""
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder), special)
        return LanguageTokenizer.read(Path(folder))


def _tokenizer_texts() -> Iterator[str]:
    """Yields the texts for learning the merges: the words of the tasks, repeated often, and the prompts."""
    for _ in range(50):
        for word in WORDS:
            yield f"{word} {word}"
        yield from ("system", "user", "assistant", "You are a helpful assistant.")
        yield from (task.partition("{")[0] for task in TASKS)
        yield from ("语音转写：", "语音转写成英文：", "，不进行文本规整：", "请转写音频为文字")
    yield from LANGUAGES.values()
    yield instruction(FunasrNanoOptions(hotwords=("zero",))).partition("zero")[0]


# --- text tasks -----------------------------------------------------------------------------------------------------

TASKS: Mapping[str, str] = {
    "Count from {first} to {last}.": "count",
    "Write in figures: {words}": "figures",
    "Write in words: {figures}": "words",
    "Repeat: {words}": "words",
    "Reverse: {words}": "reverse",
    "What comes after {first}?": "next",
}
"""A question, and the one of `_answers` that answers it."""


def draw_task(rng: np.random.Generator) -> tuple[str, str]:
    """Returns a question and its answer."""
    task = str(rng.choice(list(TASKS)))
    digits = [int(digit) for digit in rng.integers(0, 10, int(rng.integers(1, 8)))]
    first, last = sorted(int(digit) for digit in rng.choice(10, 2, replace=False))
    figures = "".join(map(str, digits))
    question = task.format(first=WORDS[first], last=WORDS[last], words=words_of(digits), figures=figures)
    answers = {
        "count": words_of(range(first, last + 1)),
        "figures": figures,
        "words": words_of(digits),
        "reverse": words_of(digits[::-1]),
        "next": WORDS[(first + 1) % 10],
    }
    return question, answers[TASKS[task]]


def chat_prompt(question: str) -> str:
    """Returns the question in the form of CHAT_TEMPLATE, ready for the answer."""
    return f"{SYSTEM}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def write_language_folder(directory: Path, network: Any, special: Sequence[str], weights: bool = False) -> None:
    """Writes configuration and tokenizer of the language model, and with `weights` its weights unchanged."""
    write_tokenizer(directory, special)
    tokenizer = LanguageTokenizer.read(directory)
    end, nothing = tokenizer.id_of("<|im_end|>"), tokenizer.id_of("<|endoftext|>")
    network.config.eos_token_id, network.config.pad_token_id, network.config.bos_token_id = end, nothing, nothing
    network.config.architectures = [type(network).__name__]
    if weights:
        network.save_pretrained(directory)
        follow_umask(directory)
    else:
        network.config.save_pretrained(directory)
    settings = {"bos_token_id": nothing, "do_sample": False, "eos_token_id": [end, nothing], "pad_token_id": nothing}
    (directory / "generation_config.json").write_text(json.dumps(settings, indent=2) + "\n")
