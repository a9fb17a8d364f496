"""`workbench decode`: JSON lines, table, and invalid input (exit status 2, one line, no result)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.support.bad_logits import BAD_LOGITS, LOGITS, text
from workbench.cli import commands
from workbench.cli.arguments.parser import parser
from workbench.cli.commands import main
from workbench.decoding.ctc_beam.logits import log_probabilities

pytestmark = [
    pytest.mark.filterwarnings("error"),  # a warning would be a line on stderr
    # What other tests of the process left for the garbage collector, such as Gradio's event loops.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
Capture = pytest.CaptureFixture[str]
TOKENS = ("<blk>", "a", "b", "▁c")
PARSER = parser()  # created once, as this takes longer than most of the commands


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "parser", lambda: PARSER)
    np.save("one.npy", LOGITS)
    np.save("two.npy", LOGITS[:3].astype(np.float32))
    Path("tokens.txt").write_text("".join(f"{token}\n" for token in TOKENS), encoding="utf-8")
    Path("lexicon.txt").write_text("ah\ta\nah(2)\tb\na\ta\nsea\t▁c a\n", encoding="utf-8")
    Path("words.txt").write_text("ah\ta\nsea\t▁c a\n", encoding="utf-8")
    Path("phrases.txt").write_text("a b\n", encoding="utf-8")
    Path("lm.arpa").write_text(ARPA, encoding="utf-8")


ARPA = """\\data\\
ngram 1=5
ngram 2=2

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.3
-0.5\t</s>
-0.6\ta\t-0.2
-0.9\tb

\\2-grams:
-0.1\t<s> a
-0.4\ta </s>

\\end\\
"""


def log_probability(symbols: list[str]) -> float:
    """Returns ln P of the symbols and the end of the sentence by the model above."""
    uni = {"<unk>": -1.0, "</s>": -0.5, "a": -0.6, "b": -0.9}
    total, previous = 0.0, "<s>"
    for symbol in (*(each if each in uni else "<unk>" for each in symbols), "</s>"):
        bigram = {("<s>", "a"): -0.1, ("a", "</s>"): -0.4}.get((previous, symbol))
        total += {"<s>": -0.3, "a": -0.2}.get(previous, 0.0) + uni[symbol] if bigram is None else bigram
        previous = symbol
    return total * float(np.log(10))


def run(capsys: Capture, *words: str) -> tuple[int, list[str], list[str]]:
    try:
        status = main(["decode", *words])
    except SystemExit as stop:
        status = int(stop.code or 0)
    out, err = capsys.readouterr()
    return status, out.splitlines(), err.splitlines()


def decode(capsys: Capture, *words: str) -> list[dict]:
    status, out, err = run(capsys, *words, "--tokens", "tokens.txt", "--json")
    assert status == 0 and err == []
    return [json.loads(line) for line in out]


# Results.


def test_json_lines_follow_the_order_of_files(capsys: Capture) -> None:
    results = decode(capsys, "two.npy", "one.npy", "two.npy", "--nbest", "4")
    assert [result["file"] for result in results] == ["two.npy", "one.npy", "two.npy"] and results[0] == results[2]
    for result in results:
        assert set(result) == {"file", "hypotheses"} and len(result["hypotheses"]) == 4
        for hypothesis in result["hypotheses"]:
            assert list(hypothesis) == ["text", "tokens", "score", "acoustic", "lm"]
            assert hypothesis["text"] == "".join(hypothesis["tokens"]).replace("▁", " ").strip()
            assert hypothesis["score"] == hypothesis["acoustic"] and hypothesis["lm"] == 0.0
        scores = [hypothesis["score"] for hypothesis in result["hypotheses"]]
        assert scores == sorted(scores, reverse=True) and len({tuple(h["tokens"]) for h in result["hypotheses"]}) == 4


def test_empty_hypothesis_score_equals_the_sum_of_blank_log_probabilities(capsys: Capture) -> None:
    [result] = decode(capsys, "two.npy", "--nbest", "100", "--beam-size", "1000")
    [empty] = [hypothesis for hypothesis in result["hypotheses"] if not hypothesis["tokens"]]
    blanks = log_probabilities(LOGITS[:3].astype(np.float32), 4)[:, 0].sum()
    assert empty["text"] == "" and empty["score"] == pytest.approx(blanks, abs=1e-12)
    assert sum(np.exp(hypothesis["acoustic"]) for hypothesis in result["hypotheses"]) == pytest.approx(1.0)


def test_every_file_format_and_dtype_gives_equal_hypotheses(capsys: Capture) -> None:
    half = LOGITS.astype(np.float16)
    np.save("half.npy", half)
    np.savez("packed.npz", it=half.astype(np.float32))
    np.savez_compressed("compressed.npz", half.astype(np.float64))
    np.save("transposed.npy", np.asfortranarray(half.astype(">f4")))
    save_file({"logits": half}, "half.safetensors")
    results = decode(
        capsys, "half.npy", "packed.npz", "compressed.npz", "transposed.npy", "half.safetensors", "--nbest", "3"
    )
    assert all(result["hypotheses"] == results[0]["hypotheses"] for result in results)


def test_infinite_and_huge_logits_are_decoded(capsys: Capture) -> None:
    rows = [[0.0, -np.inf, -np.inf, -np.inf], [-np.inf, 1e308, -1e308, 0.0]]
    np.save("odd.npy", np.array(rows))
    for options in ((), ("--lexicon", "lexicon.txt"), ("--recombination", "max", "--lm", "lm.arpa", "--alpha", "0")):
        [result] = decode(capsys, "odd.npy", "--nbest", "5", *options)
        best = result["hypotheses"][0]
        assert best["tokens"] == ["a"] and best["score"] == 0.0


def test_log_probabilities_give_the_same_score_as_logits(capsys: Capture) -> None:
    np.save("normalised.npy", log_probabilities(LOGITS, 4))
    logits, normalised = decode(capsys, "one.npy", "normalised.npy")
    assert logits["hypotheses"][0]["score"] == pytest.approx(normalised["hypotheses"][0]["score"], abs=1e-12)


def test_lexicon_homophones_and_variants_become_word_hypotheses(capsys: Capture) -> None:
    """Homophones are separate hypotheses with the same acoustic score; variants become one word."""
    [result] = decode(capsys, "one.npy", "--lexicon", "lexicon.txt", "--nbest", "500", "--beam-size", "5000")
    spelled = {"a": {("a",)}, "ah": {("a",), ("b",)}, "sea": {("▁c", "a")}}
    acoustic: dict[tuple[str, ...], set[float]] = {}
    for hypothesis in result["hypotheses"]:
        assert list(hypothesis) == ["text", "tokens", "words", "score", "acoustic", "lm"]
        assert hypothesis["text"] == " ".join(hypothesis["words"]) and set(hypothesis["words"]) <= set(spelled)
        acoustic.setdefault(tuple(hypothesis["tokens"]), set()).add(hypothesis["acoustic"])
    assert all(len(values) == 1 for values in acoustic.values())
    pairs = {(tuple(hypothesis["tokens"]), tuple(hypothesis["words"])) for hypothesis in result["hypotheses"]}
    assert {(("a",), ("a",)), (("a",), ("ah",)), (("b",), ("ah",)), ((), ())} <= pairs and len(pairs) < 500


def test_bonuses_and_boosted_phrases_change_only_the_total_score(capsys: Capture) -> None:
    options = ("--beta", "-1e-1", "--boost", "phrases.txt", "--boost-score", "1.5", "--nbest", "50")
    [result] = decode(capsys, "one.npy", *options)
    for hypothesis in result["hypotheses"]:
        boost = 3.0 * "".join(hypothesis["tokens"]).count("ab")
        assert hypothesis["score"] == pytest.approx(
            hypothesis["acoustic"] - 0.1 * len(hypothesis["tokens"]) + boost, abs=1e-9
        )


def test_token_and_word_language_model_scores_match_their_definition(capsys: Capture) -> None:
    """The models also score tokens and words outside their vocabularies."""
    wide = ("two.npy", "--nbest", "100", "--beam-size", "1000", "--alpha", "0.7", "--gamma", "1.3", "--beta", "0.25")
    [result] = decode(capsys, *wide, "--lm", "lm.arpa")
    for hypothesis in result["hypotheses"]:
        assert hypothesis["lm"] == pytest.approx(0.7 * log_probability(hypothesis["tokens"]), abs=1e-9)
        assert hypothesis["score"] == pytest.approx(
            hypothesis["acoustic"] + hypothesis["lm"] + 0.25 * len(hypothesis["tokens"]), abs=1e-9
        )
    [result] = decode(
        capsys, *wide, "--lm", "lm.arpa", "--lexicon", "lexicon.txt", "--word-lm", "lm.arpa", "--word-bonus", "2"
    )
    assert len({tuple(hypothesis["words"]) for hypothesis in result["hypotheses"]}) > 5
    for hypothesis in result["hypotheses"]:
        lm = 0.7 * log_probability(hypothesis["tokens"]) + 1.3 * log_probability(hypothesis["words"])
        assert hypothesis["lm"] == pytest.approx(lm, abs=1e-9)
        bonus = 0.25 * len(hypothesis["tokens"]) + 2 * len(hypothesis["words"])
        assert hypothesis["score"] == pytest.approx(hypothesis["acoustic"] + lm + bonus, abs=1e-9)


def test_missing_special_words_of_a_language_model_are_noted_on_stderr(capsys: Capture) -> None:
    Path("bare.arpa").write_text("\\data\\\nngram 1=2\n\\1-grams:\n-99\t<s>\n-0.5\ta\n\\end\\\n")
    status, out, err = run(capsys, "two.npy", "--tokens", "tokens.txt", "--lm", "bare.arpa", "--json")
    assert status == 0 and len(out) == 1
    assert [line.split(":")[0] for line in err] == ["bare.arpa has no <unk>", "bare.arpa has no </s>"]
    status, out, err = run(
        capsys, "two.npy", "--tokens", "tokens.txt", "--lexicon", "words.txt", "--word-lm", "lm.arpa"
    )
    assert status == 0 and len(out) == 3
    assert err == [
        "lm.arpa knows none of the 2 tokens or words that it scores here, such as 'sea': each of them counts as unknown"
    ]


def test_max_recombination_scores_the_best_alignment(capsys: Capture) -> None:
    [best] = decode(capsys, "one.npy", "--recombination", "max")
    log_probs = log_probabilities(LOGITS, 4)
    assert best["hypotheses"][0]["score"] == pytest.approx(log_probs.max(axis=1).sum(), abs=1e-12)


def test_token_file_accepts_ids_in_any_order_and_blank_by_name_or_id(capsys: Capture) -> None:
    order = [2, 0, 3, 1]
    np.save("moved.npy", LOGITS[:, order])
    lines = [f"{TOKENS[old_id]}\t{new_id}" for new_id, old_id in enumerate(order)]
    Path("moved.txt").write_text("\r\n".join(reversed([*lines, "#0 4"])), encoding="utf-8")
    [result] = decode(capsys, "one.npy", "--nbest", "5")
    for blank in ("<blk>", "1"):
        status, out, _ = run(capsys, "moved.npy", "--tokens", "moved.txt", "--blank", blank, "--json", "--nbest", "5")
        assert status == 0
        for hypothesis, moved in zip(result["hypotheses"], json.loads(out[0])["hypotheses"], strict=True):
            assert hypothesis["tokens"] == moved["tokens"] and hypothesis["score"] == pytest.approx(
                moved["score"], abs=1e-12
            )


def test_default_output_is_a_table_per_file(capsys: Capture) -> None:
    status, out, err = run(capsys, "one.npy", "two.npy", "--tokens", "tokens.txt", "--nbest", "2")
    assert status == 0 and err == []
    assert out[0] == "one.npy" and out[1].split() == ["score", "acoustic", "lm", "text"]
    assert len(out) == 9 and out[4:6] == ["", "two.npy"]
    Path("bytes.txt").write_text("<blk>\n<0x0A>\n<0x1B>\n▁c\n", encoding="utf-8")
    status, out, _ = run(capsys, "one.npy", "--tokens", "bytes.txt", "--nbest", "5")
    assert status == 0 and len(out) == 7 and "\x1b" not in "".join(out)
    Path("a\n\x1b[31mb").mkdir()
    Path("one.npy").rename("a\n\x1b[31mb/one.npy")
    assert run(capsys, "a\n\x1b[31mb/one.npy", "--tokens", "tokens.txt")[1][0] == "a \\x1b[31mb/one.npy"


# Bad input.


@pytest.mark.parametrize("case", BAD_LOGITS)
def test_bad_logits_raise_one_line_error_also_among_several_files(case: str, capsys: Capture) -> None:
    write, name, expected = BAD_LOGITS[case]
    write()
    for words in ((name,), ("one.npy", name, "two.npy")):
        status, out, err = run(capsys, *words, "--tokens", "tokens.txt", "--json")
        assert (status, out, len(err)) == (2, [], 1), err
        assert err[0].startswith("workbench: ") and expected in err[0]


BAD_FILES: dict[str, tuple[str, str | bytes | None, tuple[str, ...], str]] = {
    "no tokens": ("tokens.txt", None, (), "workbench: tokens.txt cannot be read"),
    "empty tokens": ("tokens.txt", "\n\n", (), "not a list of tokens"),
    "binary tokens": ("tokens.txt", b"\xff\xfe\x00", (), "not UTF-8 text"),
    "too few tokens": ("tokens.txt", "<blk>\na\n", (), "4 wide and tokens.txt has 2"),
    "token twice": ("tokens.txt", "<blk>\na\nb\na\n", (), "tokens 1 and 3 of tokens.txt are both 'a'"),
    "spaces in a token": ("tokens.txt", "<blk>\na b\nb\nc\n", (), "'a b'"),
    "empty token": ("tokens.txt", "<blk>\n\nb\nc\n", (), "token 1 of tokens.txt"),
    "id twice": ("tokens.txt", "<blk> 0\na 1\nb 1\nc 3\n", (), "0 to 3, each once"),
    "ids with a gap": ("tokens.txt", "<blk> 0\na 1\nb 2\nc 4\n", (), "0 to 3, each once"),
    "no ARPA": ("lm.arpa", None, ("--lm", "lm.arpa"), "lm.arpa"),
    "empty ARPA": ("lm.arpa", "", ("--lm", "lm.arpa"), "lm.arpa"),
    "truncated ARPA": ("lm.arpa", ARPA[:-20], ("--lm", "lm.arpa"), "lm.arpa"),
    "counts that lie": ("lm.arpa", ARPA.replace("2=2", "2=3"), ("--lm", "lm.arpa"), "lm.arpa"),
    "counts beyond memory": ("lm.arpa", ARPA.replace("2=2", "2=99999999999999"), ("--lm", "lm.arpa"), "lm.arpa"),
    "truncated gzip": ("lm.arpa", gzip.compress(ARPA.encode())[:60], ("--lm", "lm.arpa"), "lm.arpa"),
    "no word ARPA": ("lm.arpa", "abc", ("--lexicon", "lexicon.txt", "--word-lm", "lm.arpa"), "lm.arpa"),
    "no lexicon": ("lexicon.txt", None, ("--lexicon", "lexicon.txt"), "lexicon.txt cannot be read"),
    "empty lexicon": ("lexicon.txt", "", ("--lexicon", "lexicon.txt"), "lexicon.txt has no words"),
    "unknown token": ("lexicon.txt", "see\tz\n", ("--lexicon", "lexicon.txt"), "'z'"),
    "blank in a word": ("lexicon.txt", "see\ta <blk>\n", ("--lexicon", "lexicon.txt"), "'<blk>'"),
    "word without tokens": ("lexicon.txt", "see\t\n", ("--lexicon", "lexicon.txt"), "line 1"),
    "binary lexicon": ("lexicon.txt", b"\xff\ta\n", ("--lexicon", "lexicon.txt"), "UTF-8"),
    "no phrases": ("phrases.txt", "\n", ("--boost", "phrases.txt"), "phrases.txt has no phrases"),
    "unknown phrase": ("phrases.txt", "a z\n", ("--boost", "phrases.txt"), "'z'"),
    "phrase of no word": ("phrases.txt", "a b\n", ("--boost", "phrases.txt", "--lexicon", "lexicon.txt"), "'b'"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_auxiliary_files_raise_one_line_error(case: str, capsys: Capture) -> None:
    name, content, options, expected = BAD_FILES[case]
    if content is None:
        Path(name).unlink()
    else:
        text(name, content)()
    status, out, err = run(capsys, "one.npy", "--tokens", "tokens.txt", "--json", *options)
    assert (status, out, len(err)) == (2, [], 1), err
    assert expected in err[0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--beam-size", "0"), "1 to"),
        (("--beam-size", "-3"), "1 to"),
        (("--beam-size", "1e3"), "--beam-size"),
        (("--beam-size", "1" + "0" * 5000), "--beam-size"),
        (("--nbest", "0"), "1 to"),
        (("--alpha", "nan"), "finite"),
        (("--beta", "-inf"), "finite"),
        (("--gamma", "much"), "--gamma"),
        (("--recombination", "mean"), "sum, max"),
        (("--blank", "4"), "0 to 3"),
        (("--blank", "-1"), "0 to 3"),
        (("--blank", "<s>"), "none of the 4 tokens"),
        (("--word-lm", "words.arpa"), "lexicon"),
        (("--neural-lm", "demo/qwen3"), "lexicon"),
        (("--lexicon", "lexicon.txt", "--neural-lm", "demo/nothing"), "demo/nothing"),
        (("--threshold", "-1"), "expected 0 to 1000000"),
        (("--surprise", "1"), "--surprise"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else "",
)
def test_bad_options_raise_one_line_error(options: tuple[str, ...], expected: str, capsys: Capture) -> None:
    status, out, err = run(capsys, "one.npy", "--tokens", "tokens.txt", "--json", *options)
    assert (status, out, len(err)) == (2, [], 1), err
    assert expected in err[0]


def test_missing_logits_or_tokens_raise_one_line_error(capsys: Capture) -> None:
    for words in ((), ("one.npy",), ("--tokens", "tokens.txt")):
        status, out, err = run(capsys, *words)
        assert (status, out, len(err)) == (2, [], 1)
