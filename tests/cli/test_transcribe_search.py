"""CTC beam search in `workbench transcribe`: files given by relative paths, and n-best hypotheses in the JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.processes import ROOT
from workbench.cli.commands import main

pytestmark = pytest.mark.usefixtures("lasting_sessions")
Capture = pytest.CaptureFixture[str]
SAMPLE = str(ROOT / "assets" / "samples" / "three_seven_one.wav")


def transcribe(capsys: Capture, *options: str, runtime: str = "pytorch") -> tuple[int, str, list[str]]:
    status = main(["transcribe", SAMPLE, "--model", "demo/sensevoice", "--runtime", runtime, *options])
    out, err = capsys.readouterr()
    return status, out, err.splitlines()


@pytest.mark.parametrize("runtime", ["pytorch", "gguf"])
def test_language_models_and_lexicon_are_read_from_relative_paths(
    runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("digit_words.arpa", "digit_words.txt", "telephone.arpa.gz"):
        Path(name).write_bytes((ROOT / "assets" / "decoding" / name).read_bytes())
    options = ("--lm", "telephone.arpa.gz", "--lexicon", "digit_words.txt", "--word-lm", "digit_words.arpa")
    status, out, err = transcribe(capsys, *options, "--nbest", "3", "--format", "json", runtime=runtime)
    result = json.loads(out)
    assert (status, err) == (0, []) and result["runtime"] == runtime
    assert len(result["hypotheses"]) == 3 and result["hypotheses"][0]["text"] == result["text"]
    best = result["hypotheses"][0]
    assert best["lm"] < 0 and abs(best["score"] - best["acoustic"] - best["lm"]) < 1e-9
    assert [word["text"] for word in best["words"]] == result["text"].split()
    assert result["segments"][0]["text"] == result["text"] and result["language"] == "en"
    assert all(0 < word["start"] < word["end"] < result["audio_seconds"] for word in best["words"])


def test_default_decoding_is_greedy_without_hypotheses(capsys: Capture) -> None:
    status, out, _ = transcribe(capsys, "--format", "json")
    assert status == 0 and "hypotheses" not in json.loads(out)
    assert transcribe(capsys, "--beam-size", "4")[:2] == (0, "three seven one\n")


def test_telephone_number_language_model_corrects_the_noisy_sample(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample's readme and the page's example promise these texts."""
    monkeypatch.setattr(f"{__name__}.SAMPLE", str(ROOT / "assets" / "samples" / "telephone_noisy.wav"))
    number = "zero {} six two nine two four zero six three\n"
    assert transcribe(capsys)[1] == number.format("five")
    grammar = str(ROOT / "assets" / "decoding" / "telephone.arpa.gz")
    assert transcribe(capsys, "--lm", grammar)[1] == number.format("nine")


def test_missing_special_words_of_a_language_model_are_noted_on_stderr(tmp_path: Path, capsys: Capture) -> None:
    grammar = tmp_path / "one.arpa"
    grammar.write_text("\\data\\\nngram 1=2\n\n\\1-grams:\n-0.5\t▁one\n-0.5\t</s>\n\n\\end\\\n", encoding="utf-8")
    status, _, err = transcribe(capsys, "--lm", str(grammar))
    assert status == 0
    assert [line.partition(": one.arpa")[2] for line in err] == [
        " has no <unk>: an unknown word has the probability 10^-100",
        " has no <s>: the first word follows no history",
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--lm", "nothing.arpa"), "nothing.arpa"),
        (("--word-lm", "nothing.arpa"), "needs a lexicon"),
        (("--beam-size", "-1"), "0, or 1 to"),
        (("--lexicon", "nothing.txt", "--neural-lm", "demo/sensevoice"), "family sensevoice"),
    ],
)
def test_bad_options_raise_one_line_error(options: tuple[str, ...], expected: str, capsys: Capture) -> None:
    status, out, err = transcribe(capsys, *options)
    assert (status, out, len(err)) == (2, "", 1) and expected in err[0]
