"""The ARPA reader: the files it accepts, and the error message for each fault."""

from __future__ import annotations

import bz2
import gzip
import math
import random
import re
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.decoding.ngram.test_model import tables_of
from tests.support.slow_ngram import arpa_text, entries_of_models
from workbench.core.errors import BadInput
from workbench.decoding.ngram import line_blocks
from workbench.decoding.ngram.arpa_reading import read_arpa

GOOD = """\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-99\t<s>\t-0.5
-1\t</s>
-0.5\ta\t-0.25
-0.75\tb

\\2-grams:
-0.25\t<s> a
-0.5\ta b

\\end\\
"""


def write_model(folder: Path, text: str | bytes, name: str = "lm.arpa") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def assert_good(path: Path) -> None:
    tables = read_arpa(path)
    assert tables.words == ("<s>", "</s>", "a", "b")
    ones, twos, *rest = tables.orders
    assert not any(map(len, rest))
    assert ones.log10.tolist() == [-99.0, -1.0, -0.5, -0.75]
    assert ones.backoff.tolist() == [-0.5, 0.0, -0.25, 0.0]
    assert twos.words.tolist() == [[0, 2], [2, 3]] and twos.log10.tolist() == [-0.25, -0.5]


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        GOOD.replace("\n", "\r\n"),
        GOOD.replace("\n", "\r"),
        GOOD.replace("\t", " "),
        GOOD.replace("\t", "  "),
        GOOD.replace("\n", "\n\n"),
        GOOD.replace("\n\n", "\n"),
        "# a comment\nngram 3=5\n\n" + GOOD,
        GOOD.replace("1=4", "1 =   4"),
        GOOD.replace("ngram 2=2", "ngram 2=2\nngram 3=0"),
        GOOD.replace("ngram 2=2", "ngram 2=2\nngram 3=0").replace("\\end\\", "\\3-grams:\n\n\\end\\"),
        GOOD.removesuffix("\n"),
        GOOD + "what stands here belongs to no model\n",
        GOOD.replace("<s> a", "<s> a\t0"),  # a back-off weight of the highest order is never used
        GOOD.replace("-0.75", "-7.5e-1"),
    ],
    ids=range(15),
)
def test_arpa_variants_of_other_programs_are_read(tmp_path: Path, text: str):
    assert_good(write_model(tmp_path, text))
    assert_good(write_model(tmp_path, gzip.compress(text.encode()), "lm.arpa.gz"))


@pytest.mark.parametrize("size", [1, 7, 64])
def test_block_boundary_at_any_position_does_not_affect_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
):
    monkeypatch.setattr(line_blocks, "BLOCK", size)
    for end in ("\n", "\r\n", "\r"):
        assert_good(write_model(tmp_path, GOOD.replace("\n", end)))
        with pytest.raises(BadInput, match=r"line 9 of lm\.arpa has 1 field"):
            read_arpa(write_model(tmp_path, GOOD.replace("-0.75\tb", "-0.75").replace("\n", end)))


def test_words_are_split_at_ascii_blanks_only(tmp_path: Path):
    text = (
        GOOD.replace("a", "a\u3000b\u00a0").replace("\\d\u0061t", "").replace("da\u3000b\u00a0ta\u3000b\u00a0", "data")
    )
    text = text.replace("gra\u3000b\u00a0m", "gram")
    assert read_arpa(write_model(tmp_path, text)).words == ("<s>", "</s>", "a\u3000b\u00a0", "b")


@given(entries_of_models(), st.sampled_from(["\n", "\r\n", "\n \n"]), st.sampled_from(["\t", " "]))
@settings(max_examples=30, deadline=None)
def test_random_arpa_file_is_read_with_exact_numbers(tmp_path_factory, entries, newline, blank):
    path = tmp_path_factory.mktemp("drawn") / "drawn.arpa"
    path.write_text(arpa_text(entries, newline, blank), newline="")
    read, expected = read_arpa(path), tables_of(entries)
    assert read.words == expected.words and read.order == expected.order
    for order, expected_order in zip(read.orders, expected.orders, strict=True):
        np.testing.assert_array_equal(order.words, expected_order.words)
        np.testing.assert_array_equal(order.log10, expected_order.log10)
        np.testing.assert_array_equal(order.backoff, expected_order.backoff)
    assert math.isfinite(read.orders[0].backoff.sum())


FAULTS = [
    ("", "lm.arpa is empty"),
    ("\n\n", "lm.arpa is not an ARPA file: no \\data\\ stands in its first lines"),
    ("hello\nworld\n", "lm.arpa is not an ARPA file: no"),
    (bytes(random.Random(1).randbytes(100_000)), "lm.arpa is not an ARPA file"),
    (
        bz2.compress(GOOD.encode()),
        "no \\data\\ stands in its first lines; expected a language model in the ARPA format, plain or gzipped",
    ),
    (b"\0" * 3_000_000, "line 1 of lm.arpa is longer than 1048576 bytes"),
    ("iARPA\n\n" + GOOD, "lm.arpa is in IRSTLM's format iARPA; expected the ARPA format: compile-lm --text=yes writes"),
    ("qARPA 2 256 256\n\n" + GOOD, "lm.arpa is in IRSTLM's format qARPA; expected the ARPA format: quantize-lm read"),
    (GOOD.replace("1=4", "1=5"), "line 11 of lm.arpa is '\\\\2-grams:' after 4 1-grams; expected 5 of them"),
    (GOOD.replace("1=4", "1=3"), "line 9 of lm.arpa holds one 1-gram more than the head promises; expected 3"),
    (
        GOOD.replace("2=2", "2=999999999999"),
        "line 15 of lm.arpa is '\\\\end\\\\' after 2 2-grams; expected 9999",
    ),
    (GOOD.replace("2=2", "2=1"), "line 13 of lm.arpa holds one 2-gram more"),
    (GOOD.replace("ngram 2=2", "ngram 2=x"), "line 3 of lm.arpa is 'ngram 2=x'; expected a count"),
    (GOOD.replace("ngram 2=2", "ngram 2=-2"), "line 3 of lm.arpa is 'ngram 2=-2'; expected a count"),
    (GOOD.replace("ngram 2=2", "ngram 3=2"), "line 3 of lm.arpa counts the 3-grams; expected the 2-grams"),
    (GOOD.replace("ngram 1=4\nngram 2=2\n", ""), "line 3 of lm.arpa ends the head of a model of order 0"),
    (GOOD.replace("ngram 1=4", "ngram 1=0"), "line 5 of lm.arpa ends the head of a model without 1-grams"),
    (
        GOOD.replace("ngram 2=2", "\n".join(f"ngram {n}=2" for n in range(2, 22))),
        "line 24 of lm.arpa ends the head of a model of order 21; expected order 1 to 20",
    ),
    (GOOD.replace("\\2-grams:", "\\3-grams:"), "line 11 of lm.arpa is '\\\\3-grams:'; expected \\2-grams:"),
    (GOOD.replace("\\1-grams:", "\\2-grams:"), "line 5 of lm.arpa is '\\\\2-grams:'; expected \\1-grams:"),
    (GOOD.replace("\\end\\", "\\3-grams:"), "line 15 of lm.arpa is '\\\\3-grams:'; expected \\end\\"),
    (GOOD.removesuffix("\\end\\\n"), "lm.arpa is cut off: it ends after line 14"),
    (GOOD[:100], "line 12 of lm.arpa has 2 fields"),
    (GOOD.replace("-0.5\ta\t", "-O.5\ta\t"), "line 8 of lm.arpa has the log-probability '-O.5'; expected a finite"),
    (GOOD.replace("-0.5\ta\t", "nan\ta\t"), "line 8 of lm.arpa has the log-probability 'nan'"),
    (GOOD.replace("-0.5\ta\t", "inf\ta\t"), "line 8 of lm.arpa has the log-probability 'inf'"),
    (GOOD.replace("-0.5\ta\t", "-1_0\ta\t"), "line 8 of lm.arpa has the log-probability '-1_0'"),
    (GOOD.replace("-0.5\ta\t", "0.5\ta\t"), "line 8 of lm.arpa has the log-probability 0.5; expected 0 or less"),
    (GOOD.replace("-0.25\n", "nan\n", 1), "line 8 of lm.arpa has the back-off weight 'nan'"),
    (GOOD.replace("-0.25\n", "x\n", 1), "line 8 of lm.arpa has the back-off weight 'x'"),
    (GOOD.replace("a b", "a c"), "line 13 of lm.arpa has the word 'c'; expected a word of the 1-grams"),
    (GOOD.replace("a b", "a"), "line 13 of lm.arpa has 2 fields; expected a log-probability, 2 words and perhaps"),
    (GOOD.replace("a b", "a b a b"), "line 13 of lm.arpa has 5 fields"),
    (GOOD.replace("-0.75\tb", "-0.75\ta"), "line 9 of lm.arpa repeats the word 'a'"),
    (GOOD.replace("<s> a", "a b"), "line 13 of lm.arpa repeats a 2-gram"),
    (GOOD.encode().replace(b"\tb\n", b"\t\xff\n"), "line 9 of lm.arpa has the word '�'; expected text in UTF-8"),
    (gzip.compress(GOOD.encode())[:60], "the compressed data of lm.arpa are damaged or cut off after line"),
    (gzip.compress(GOOD.encode())[:40] + b"rubbish" * 9, "the compressed data of lm.arpa are damaged"),
]


@pytest.mark.parametrize("text, sentence", FAULTS, ids=range(len(FAULTS)))
def test_arpa_fault_raises_one_line_error_with_its_line_number(tmp_path: Path, text: str | bytes, sentence: str):
    with pytest.raises(BadInput) as caught:
        read_arpa(write_model(tmp_path, text))
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_truncated_gzip_raises_an_error_with_the_last_whole_line(tmp_path: Path):
    lines = "".join(f"-1.5\tw{number}\n" for number in range(20_000))
    text = f"\\data\\\nngram 1=20000\n\\1-grams:\n{lines}\\end\\\n"
    compressed = gzip.compress(text.encode())
    with pytest.raises(BadInput) as caught:
        read_arpa(write_model(tmp_path, compressed[: len(compressed) // 2]))
    match = re.search(r"of lm\.arpa are damaged or cut off after line (\d+);", str(caught.value))
    assert match and 5_000 < int(match[1]) < 15_000
    damaged = compressed[:-8] + b"\0\0\0\0" + compressed[-4:]  # the checksum
    with pytest.raises(BadInput, match="compressed data of"):
        read_arpa(write_model(tmp_path, damaged))


def test_missing_arpa_file_and_directory_raise_an_error(tmp_path: Path):
    for path in (tmp_path / "none.arpa", tmp_path):
        with pytest.raises(BadInput, match="cannot be read"):
            read_arpa(path)


@given(st.integers(0, len(GOOD) - 1), st.integers(0, len(GOOD) - 1), st.binary(max_size=3))
@settings(max_examples=80, deadline=None)
def test_damaged_arpa_gives_a_model_or_a_one_line_error(tmp_path_factory, start, end, inserted):
    raw = GOOD.encode()
    path = write_model(tmp_path_factory.getbasetemp(), raw[:start] + inserted + raw[max(start, end) :], "damaged.arpa")
    message = "a model in damaged.arpa"
    try:
        read_arpa(path)
    except BadInput as error:
        message = str(error)
    assert "damaged.arpa" in message and "\n" not in message


def test_ninety_thousand_ngrams_are_read_within_3_seconds(tmp_path: Path):
    lines = [f"-1.5\tw{number % 300} w{number // 300}\t-0.25" for number in range(90_000)]
    words = "\n".join(f"-2.5\tw{number}\t-0.5" for number in range(300))
    text = "\n".join(["\\data\\\nngram 1=300\nngram 2=90000\n\\1-grams:", words, "\\2-grams:", *lines, "\\end\\"])
    path = write_model(tmp_path, text)
    before = time.process_time()
    assert len(read_arpa(path).orders[1]) == 90_000
    assert time.process_time() - before < 3.0  # a fifth of a second on an idle machine
