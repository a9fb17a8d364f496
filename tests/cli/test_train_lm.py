"""`workbench train-lm`: the ARPA file, the printed lines, and refused input."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import pytest

from workbench.cli.commands import main
from workbench.decoding.ngram.arpa_reading import read_arpa
from workbench.registry.sources import assets

TEXT = "three seven one\n\nnine nine  two\r\nthree oh seven\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, newline="")
    return path


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main(["train-lm", *map(str, words)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_word_ngram_model_is_trained_from_a_text(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: Path
) -> None:
    out, real = tmp_path / "lm.arpa", tmp_path / "real.arpa"
    out.symlink_to(real)
    status, stdout, stderr = run(capsys, text, "--order", 2, "--out", out)
    tables = read_arpa(real)
    assert out.is_symlink(), "a link stays a link"
    assert status == 0 and tables.order == 2
    assert tables.words == ("<unk>", "<s>", "</s>", "three", "seven", "one", "nine", "two", "oh")
    assert stdout.splitlines()[0] == f"{out}\t{out.stat().st_size}"
    assert stdout.splitlines()[1:] == [f"{n}-grams\t{len(ngrams)}" for n, ngrams in enumerate(tables.orders, 1)]
    assert f"{text}: 3 sentences, 9 tokens\n" in stderr


def test_carriage_returns_are_accepted_as_line_ends(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: Path
) -> None:
    text.write_text(TEXT.replace("\r\n", "\n").replace("\n", "\r"), newline="")
    status, _, stderr = run(capsys, text, "--out", tmp_path / "lm.arpa")
    assert status == 0 and "3 sentences, 9 tokens" in stderr


def test_one_sentence_on_standard_input_is_counted_in_words_of_english(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"six"))))  # type: ignore[arg-type]
    status, _, stderr = run(capsys, "-", "--out", tmp_path / "lm.arpa")
    assert status == 0 and stderr.startswith("standard input: 1 sentence, 1 token\n")


def test_plain_gzip_and_standard_input_texts_are_combined(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zipped = tmp_path / "more.gz"
    zipped.write_bytes(gzip.compress("好 的".encode()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"six"))))  # type: ignore[arg-type]
    status, _, stderr = run(capsys, text, zipped, "-", "--out", tmp_path / "lm.arpa.gz")
    assert status == 0 and "the texts: 5 sentences, 12 tokens" in stderr
    assert read_arpa(tmp_path / "lm.arpa.gz").words[-3:] == ("好", "的", "six")
    assert gzip.decompress((tmp_path / "lm.arpa.gz").read_bytes()).startswith(b"\\data\\")


def test_token_ngram_model_uses_the_vocabulary_of_a_speech_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: Path
) -> None:
    for model in ("demo/sensevoice", assets() / "demo-sensevoice"):
        status, _, stderr = run(capsys, text, "--model", model, "--out", tmp_path / "lm.arpa")
        tables = read_arpa(tmp_path / "lm.arpa")
        assert status == 0 and "1 token is not in the vocabulary, counted as <unk>" in stderr
        assert {"▁zero", "▁nine", "▁", "0"} < set(tables.words) and not {"oh", "<|en|>"} & set(tables.words)


def test_vocabulary_file_limits_the_tokens(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: Path) -> None:
    (tmp_path / "tokens.txt").write_text("<blk> 0\nthree 1\nseven 2\n  3\n")
    status, _, stderr = run(
        capsys, text, "--vocabulary", tmp_path / "tokens.txt", "--out", tmp_path / "lm.arpa", "--order", 1
    )
    assert status == 0 and "5 tokens are not in the vocabulary" in stderr
    assert read_arpa(tmp_path / "lm.arpa").words == ("<unk>", "<s>", "</s>", "<blk>", "three", "seven")


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ("none.txt --out lm.arpa", "none.txt cannot be read: No such file"),
        ("empty.txt --out lm.arpa", "empty.txt has no words; expected sentences, one a line"),
        ("latin.txt --out lm.arpa", "line 2 of latin.txt is not text in UTF-8"),
        ("marked.txt --out lm.arpa", "sentence 1 of marked.txt contains <s> or </s>"),
        ("text.txt --out lm.arpa --order 7", "the order is 7; expected 1 to 6"),
        ("text.txt --out no/lm.arpa", "there is no folder no"),
        ("text.txt --out lm.arpa --model demo/paraformer", "demo/paraformer cannot spell a text in tokens"),
        ("text.txt --out lm.arpa --model nobody", "nobody"),
        ("text.txt --out lm.arpa --model demo/sensevoice --vocabulary text.txt", "--model and --vocabulary both say"),
        ("text.txt --out lm.arpa --vocabulary none.txt", "none.txt cannot be read"),
        ("text.txt text.txt --out ./text.txt", "--out names text.txt, which the same command uses"),
        ("text.txt --out lm.arpa --vocabulary .", ". cannot be read as a list of tokens"),
    ],
)
def test_bad_input_raises_one_line_error_and_writes_no_file(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    text: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").write_text("\n \n")
    Path("latin.txt").write_bytes(b"one\n\xe9t\xe9\n")
    Path("marked.txt").write_text("<s> one </s>\n")
    files_before = sorted(tmp_path.iterdir())
    status, stdout, stderr = run(capsys, *arguments.split())
    assert status == 2 and stdout == "" and stderr.count("\n") == 1 and sentence in stderr
    assert sorted(tmp_path.iterdir()) == files_before and text.read_bytes() == TEXT.encode()
