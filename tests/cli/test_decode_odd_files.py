"""`workbench decode` with pipes, devices, folders, odd names and encodings: exit 2, one line, no waiting."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from panels.decode.knowledge import check_file
from workbench.cli.commands import main
from workbench.families.vocabularies.ctc_layouts import LogitsLayout

pytestmark = [
    pytest.mark.filterwarnings("error"),  # a warning would be a line on stderr
    # What other tests of the process left for the garbage collector, such as Gradio's event loops.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
TOKENS = ("<blk>", "a", "b", "▁c")
TEXT = "".join(f"{token}\n" for token in TOKENS)
OPTIONS = {"--tokens": "", "--lm": "lm", "--lexicon": "lexicon", "--boost": "boost"}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("one.npy", np.random.default_rng(7).normal(scale=2.0, size=(5, 4)))
    Path("tokens.txt").write_text(TEXT, encoding="utf-8")
    os.mkfifo("pipe")
    Path("folder").mkdir()
    Path("loop").symlink_to("loop")


def error_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Returns the one line on stderr of a refused command."""
    assert main(["decode", *words, "--json"]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and err.startswith("workbench: "), err
    return err


@pytest.mark.parametrize("name", ["pipe", "folder", "loop", "none", "/dev/zero", "a\0b", "a" * 5000, "a\nb"])
@pytest.mark.parametrize("option", OPTIONS)
def test_non_regular_auxiliary_files_are_refused_without_waiting(
    option: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = () if option == "--tokens" else ("--tokens", "tokens.txt")
    error = error_of(capsys, "one.npy", *tokens, option, name)
    assert "cannot be read" in error
    if name in ("pipe", "/dev/zero"):
        assert error.endswith("it is a pipe or a device; expected a file\n")
        if OPTIONS[option]:  # the page reports the same
            check = check_file(OPTIONS[option], name, LogitsLayout(TOKENS, 0), None)
            assert check is not None and check.wrong and error == f"workbench: {check.message}\n"


@pytest.mark.parametrize("name", ["pipe", "folder", "loop", "none", "a" * 5000])
def test_non_regular_logits_files_are_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    place = Path(f"{name}.npy")
    if name in ("pipe", "folder", "loop"):
        Path(name).rename(place)
    error_of(capsys, str(place), "--tokens", "tokens.txt")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.txt", TEXT.encode("utf-16"), "as in UTF-16 text or a binary file"),
        ("t.txt", TEXT.encode("utf-16-le"), "as in UTF-16 text or a binary file"),
        ("t.txt", b"<blk>\na\0\nb\nc\n", "at byte 7, which is 0"),
        ("t.json", b'["<blk>", "\\ud800", "b", "c"]', "a character that no text has"),
        ("t.json", b'["<blk>", "\\u0000", "b", "c"]', "a character that no text has"),
        ("t.json", b"[" * 100_000, "its lists are nested too deeply"),
    ],
)
def test_token_file_that_is_not_utf8_text_is_refused(
    name: str, content: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_bytes(content)
    assert message in error_of(capsys, "one.npy", "--tokens", name)


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_byte_order_mark_and_other_line_ends_are_accepted_in_the_token_file(
    end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["decode", "one.npy", "--tokens", "tokens.txt", "--json"]) == 0
    expected = capsys.readouterr().out
    Path("t.txt").write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", end).encode())
    assert main(["decode", "one.npy", "--tokens", "t.txt", "--json"]) == 0
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("header", ["__import__('os').getpid()", "{'descr': " + "(" * 5000 + ")" * 5000 + "}"])
def test_invalid_npy_header_raises_one_line_error(header: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
    error = error_of(capsys, "bad.npy", "--tokens", "tokens.txt")
    assert error == "workbench: bad.npy is truncated or not an .npy array; expected a file that numpy.save wrote\n"
