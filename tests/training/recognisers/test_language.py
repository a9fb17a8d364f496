import json

import numpy as np
import pytest

from workbench.families.language.directory import LanguageTokenizer
from workbench.training.data.digits import WORDS, words_of
from workbench.training.recognisers.language import (
    QWEN2_SPECIAL,
    QWEN3_SPECIAL,
    TASKS,
    VOCABULARY,
    chat_prompt,
    draw_task,
    write_tokenizer,
)


@pytest.fixture(scope="module", params=[QWEN2_SPECIAL, QWEN3_SPECIAL], ids=["qwen2", "qwen3"])
def folder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder, request.param)
    return folder, request.param


def test_written_tokenizer_has_the_qwen_files_and_special_tokens(folder):
    directory, special = folder
    tokenizer = LanguageTokenizer.read(directory)
    assert {path.name for path in directory.iterdir()} == {
        "tokenizer.json",
        "vocab.json",
        "merges.txt",
        "tokenizer_config.json",
    }
    assert len(tokenizer) <= VOCABULARY
    assert [tokenizer.id_of(token) for token in special] == list(range(len(tokenizer) - len(special), len(tokenizer)))
    assert all(len(tokenizer.encode(token)) == 1 for token in special)


def test_digit_word_is_a_single_token_at_any_position(folder):
    tokenizer = LanguageTokenizer.read(folder[0])
    for word in WORDS:
        assert len(tokenizer.encode(word)) == len(tokenizer.encode(f" {word}")) == 1
    assert tokenizer.decode(tokenizer.encode("zero ninety 42 你好")) == "zero ninety 42 你好"


def test_tokenizer_files_are_byte_identical_on_every_write(folder, tmp_path):
    directory, special = folder
    write_tokenizer(tmp_path, special)
    for name in ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json"):
        assert (tmp_path / name).read_bytes() == (directory / name).read_bytes()


def test_chat_template_produces_the_training_prompt(folder):
    tokenizer = LanguageTokenizer.read(folder[0])
    assert tokenizer.chat([{"role": "user", "content": "Repeat: one"}]) == chat_prompt("Repeat: one")
    assert json.loads((folder[0] / "tokenizer_config.json").read_text())["tokenizer_class"] == "Qwen2Tokenizer"


def test_drawn_text_tasks_have_correct_answers():
    rng = np.random.default_rng(0)
    kinds = set()
    for _ in range(400):
        question, answer = draw_task(rng)
        kind = next(task for task in TASKS if question.startswith(task.partition("{")[0]))
        kinds.add(kind)
        argument = question.removeprefix(kind.partition("{")[0]).rstrip(".?")
        if kind.startswith("Count"):
            first, last = (WORDS.index(word) for word in argument.split(" to "))
            assert answer == words_of(range(first, last + 1)) and first < last
        elif kind.startswith("Write in figures"):
            assert words_of([int(figure) for figure in answer]) == argument
        elif kind.startswith("Write in words"):
            assert words_of([int(figure) for figure in argument]) == answer
        elif kind.startswith("Repeat"):
            assert answer == argument
        elif kind.startswith("Reverse"):
            assert answer.split()[::-1] == argument.split()
        else:
            assert WORDS[(WORDS.index(argument) + 1) % 10] == answer
    assert kinds == set(TASKS)
