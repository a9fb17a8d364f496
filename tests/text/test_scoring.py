"""Error rates: worked examples, jiwer's results, and a slow edit distance as independent definition."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from itertools import combinations_with_replacement

import jiwer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.errors import BadInput
from workbench.text.normalisers import NORMALISERS, basic, digits
from workbench.text.rates import pool_scores, score
from workbench.text.scripts import characters, display_width, is_unspaced, join_units, mixed_units

# --- helpers ------------------------------------------------------------------------------------------------------

words = st.lists(st.sampled_from(["a", "bb", "ccc", "don't", "zero", "7", "naïve"]), max_size=9).map(" ".join)
chinese = st.text("今天气很好不是", max_size=9)
mixed = st.lists(st.sampled_from(["今", "天", "好", "app", "my", " ", "7"]), max_size=9).map("".join)
any_text = st.one_of(words, chinese, mixed, st.text(max_size=12))


def slow_distance(reference: list[str], hypothesis: list[str]) -> int:
    """Returns the edit distance by Levenshtein's recurrence over the full table."""
    table = [[i + j if i * j == 0 else 0 for j in range(len(hypothesis) + 1)] for i in range(len(reference) + 1)]
    for i, one in enumerate(reference, 1):
        for j, other in enumerate(hypothesis, 1):
            table[i][j] = min(table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (one != other))
    return table[-1][-1]


def units_of(name: str, text: str) -> list[str]:
    return {"WER": str.split, "CER": characters, "MER": mixed_units}[name](text)


# --- normalisers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("Ｈello,  WORLD！\n", "hello world"),
        ("It’s 'fine', the dogs' rock'n'roll", "it's fine the dogs rock'n'roll"),
        ("well-known — 3.5 % of $20", "well known 3 5 of 20"),
        ("今天，天气《很好》。", "今天 天气 很好"),
        ("hap\u200bpy\ufeff 😊🎼", "happy"),
        ("I ❤️ it ☺️ 1️⃣", "i it 1"),  # an emoji leaves nothing, nor does its variation selector
        ("wie geht´s, don`t ´ ¨ ‾ a", "wie geht's don't a"),
        ("=\u0338 \U0001d15f 葛\U000e0100城", "葛城"),
        ("ŒUVRE ÉTÉ e\u0301te\u0301 İ", "œuvre été été i\u0307"),
        ("", ""),
        ("?!", ""),
    ],
)
def test_basic_normaliser_gives_the_expected_text(raw: str, expected: str) -> None:
    assert basic(raw) == expected


@pytest.mark.parametrize("spelling", ["3 7 1", "371", "Three, seven, one.", "3 seven 1", "three 71", "３７１"])
def test_digits_normaliser_unifies_number_spellings(spelling: str) -> None:
    assert digits(spelling) == "three seven one"


def test_oh_is_normalised_to_zero_only_as_a_word() -> None:
    assert digits("oh 0 Zero") == "zero zero zero"
    assert digits("Ohio") == "ohio"


def test_apostrophe_after_a_digit_is_removed_with_the_digit() -> None:
    assert digits("the 80's") == digits("the 80s") == "the eight zero s"


@given(st.text())
def test_basic_normaliser_removes_case_punctuation_and_outer_spaces(text: str) -> None:
    result = basic(text)
    assert result == " ".join(result.split())
    assert not set(result) & set('.,;:!?-–—()[]{}"«»。，！？、%&/<>|\\*#@')
    assert basic(result.upper()) == basic(text.upper()) or not text.isascii()


def test_unknown_normaliser_raises_an_error_with_the_known_names() -> None:
    with pytest.raises(BadInput, match=r"'whisper'.*none, basic, digits"):
        score("a", "b", normaliser="whisper")


# --- units --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("打开 my app吧", ["打", "开", "my", "app", "吧"]),
        ("私はJohnです", ["私", "は", "John", "で", "す"]),
        ("안녕 hello", ["안", "녕", "hello"]),
        ("น้ำ ok", ["น้", "ำ", "ok"]),  # a tone mark stays with its consonant
        ("plain words", ["plain", "words"]),
        ("你好，world", ["你", "好", "，", "world"]),
    ],
)
def test_mixed_text_is_split_into_words_and_characters(text: str, expected: list[str]) -> None:
    assert mixed_units(text) == expected


@given(any_text)
def test_mixed_units_round_trip_through_joining(text: str) -> None:
    assert mixed_units(join_units(mixed_units(text))) == mixed_units(text)


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("abc", 3), ("今a", 3), ("e\u0301", 1), ("ｶﾅ", 2), ("ＡＢ", 4), ("", 0), ("a\tb\0", 4),
        ("👨\u200d👩\u200d👧", 2), ("❤\ufe0f", 2), ("하\u1112\u1161", 4), ("नि", 2),
    ],
)  # fmt: skip
def test_display_width_counts_wide_characters_twice(text: str, width: int) -> None:
    assert display_width(text) == width


@pytest.mark.parametrize("char", "今々〇ー。，가ก𠀀ｶ")
def test_characters_of_unspaced_scripts_are_detected(char: str) -> None:
    assert is_unspaced(char)


@pytest.mark.parametrize("char", "aéяα 7.Ａ０ا")
def test_characters_of_spaced_scripts_are_detected(char: str) -> None:
    assert not is_unspaced(char)


# --- rates --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "hypothesis", "name", "rate"),
    [
        ("three seven one", "three eleven one", "WER", 1 / 3),
        ("a", "a b c", "WER", 2.0),
        ("今天天气很好", "今天气很好啊", "CER", 2 / 6),
        ("今天 天气", "今天天气", "CER", 0.0),  # spaces between CJK characters are no characters
        ("我有3个", "我有4个", "CER", 1 / 4),  # digits do not make a Chinese sentence bilingual
        ("打开 my app 吧", "打开my ap", "MER", 2 / 5),
        ("three", "三", "WER", 1.0),  # the reference decides the units
        ("371", "37", "WER", 1.0),
    ],
)
def test_primary_rate_is_wer_cer_or_mer_by_script(reference: str, hypothesis: str, name: str, rate: float) -> None:
    result = score(reference, hypothesis)
    assert (result.name, result.rate) == (name, pytest.approx(rate))


@given(words, words)
def test_word_and_character_error_rates_of_spaced_text_equal_jiwer(reference: str, hypothesis: str) -> None:
    if not reference:
        return
    result = score(reference, hypothesis, normaliser="none")
    assert result.wer == pytest.approx(jiwer.wer(reference, hypothesis))
    assert result.cer == pytest.approx(jiwer.cer(reference, hypothesis))


@given(any_text, st.sampled_from(list(NORMALISERS)))
def test_equal_texts_score_zero(text: str, normaliser: str) -> None:
    result = score(text, text, normaliser)
    assert (result.rate, result.wer, result.cer) == (0.0, 0.0, 0.0)
    assert {piece.kind for piece in result.differences} <= {"equal"}


@given(any_text, any_text, st.sampled_from(list(NORMALISERS)))
def test_error_counts_equal_the_slow_edit_distance(reference: str, hypothesis: str, normaliser: str) -> None:
    result = score(reference, hypothesis, normaliser)
    for name, counts in ((result.name, result.counts), ("WER", result.words), ("CER", result.characters)):
        reference_units, hypothesis_units = units_of(name, result.reference), units_of(name, result.hypothesis)
        if (
            name == "WER" and result.name != "WER"
        ):  # joined by the primary units; words are those of the normalised text
            reference_units, hypothesis_units = (
                NORMALISERS[normaliser].function(text).split() for text in (reference, hypothesis)
            )
        assert counts.errors == slow_distance(reference_units, hypothesis_units)
        assert counts.reference_units == len(reference_units)
        assert counts.hits + counts.substitutions + counts.insertions == len(hypothesis_units)


@given(any_text, any_text)
def test_alignment_pieces_join_to_reference_and_hypothesis(reference: str, hypothesis: str) -> None:
    result = score(reference, hypothesis)
    for pieces in (result.alignment, result.differences):
        reference_pieces = [piece.reference for piece in pieces if piece.reference]
        hypothesis_pieces = [piece.hypothesis for piece in pieces if piece.hypothesis]
        join = {"WER": " ".join, "CER": "".join, "MER": join_units}[result.name]
        assert (join(reference_pieces), join(hypothesis_pieces)) == (result.reference, result.hypothesis)
        for piece in pieces:
            assert (piece.reference == piece.hypothesis) == (piece.kind == "equal")
            assert (not piece.reference) == (piece.kind == "insert")
            assert (not piece.hypothesis) == (piece.kind == "delete")
    kinds = [piece.kind for piece in result.alignment]
    counts = result.counts
    assert [kinds.count(kind) for kind in ("equal", "substitute", "delete", "insert")] == [
        counts.hits,
        counts.substitutions,
        counts.deletions,
        counts.insertions,
    ]


def test_merged_differences_and_separators_reproduce_the_texts() -> None:
    result = score("one two three four five six", "one two tree five six seven eight")
    assert [(piece.kind, piece.reference, piece.hypothesis) for piece in result.differences] == [
        ("equal", "one two", "one two"),
        ("substitute", "three", "tree"),
        ("delete", "four", ""),
        ("equal", "five six", "five six"),
        ("insert", "", "seven eight"),
    ]
    assert (
        "".join(piece.separator + piece.reference for piece in result.differences if piece.reference)
        == result.reference
    )
    bilingual = score("打开my app吧", "打开my ap吧")
    assert "".join(piece.separator + piece.hypothesis for piece in bilingual.differences) == "打开my ap吧"


@pytest.mark.parametrize(
    ("reference", "hypothesis", "pairs"),
    [
        (
            "the big elephant",
            "so thy pig an elegant",
            [("", "so"), ("the", "thy"), ("big", "pig"), ("", "an"), ("elephant", "elegant")],
        ),
        ("a big elephants ran", "pig elephant", [("a", ""), ("big", "pig"), ("elephants", "elephant"), ("ran", "")]),
        ("colour", "the color of", [("", "the"), ("colour", "color"), ("", "of")]),
    ],
)
def test_alignment_pairs_similar_units(reference: str, hypothesis: str, pairs: list[tuple[str, str]]) -> None:
    result = score(reference, hypothesis)
    assert [(piece.reference, piece.hypothesis) for piece in result.alignment] == pairs
    assert result.counts.errors == slow_distance(reference.split(), hypothesis.split())


# --- empty texts, pooling, printing -------------------------------------------------------------------------------


def test_empty_texts_have_error_rate_zero_one_or_undefined() -> None:
    both = score("", " \n")
    assert (both.rate, both.name, both.differences) == (0.0, "WER", [])
    silent = score("今天", "")
    assert (silent.rate, silent.name, silent.counts.deletions) == (1.0, "CER", 2)
    made_up = score("...", "so it goes")
    assert (made_up.rate, made_up.wer, made_up.cer, made_up.counts.insertions) == (None, None, None, 3)
    assert made_up.summary == "WER not defined: the normalised reference is empty, 3 inserted"
    assert score("", "今天").name == "CER"


@given(st.lists(st.tuples(words.filter(bool), words), min_size=1, max_size=4))
def test_pooled_word_error_rate_equals_jiwer_over_all_recordings(pairs: list[tuple[str, str]]) -> None:
    pooled = pool_scores([score(reference, hypothesis, "none") for reference, hypothesis in pairs])
    assert pooled.rate == pytest.approx(jiwer.wer([pair[0] for pair in pairs], [pair[1] for pair in pairs]))
    assert (pooled.name, pooled.recordings) == ("WER", len(pairs))


def test_pooled_rate_counts_insertions_on_empty_references() -> None:
    pooled = pool_scores([score("a b c d", "a b c d"), score("", "thank you")])
    assert pooled.rate == pytest.approx(2 / 4)
    assert pool_scores([pooled, score("a b", "a b")]).recordings == 3


@pytest.mark.parametrize(
    ("texts", "name"), [(("ab", "今天"), "MER"), (("今天", "天"), "CER"), (("今天", ""), "CER"), (("", ""), "WER")]
)
def test_pooled_rate_name_depends_on_the_scripts(texts: tuple[str, str], name: str) -> None:
    assert pool_scores([score(text, text) for text in texts]).name == name


def test_pooling_no_scores_or_mixed_normalisers_is_refused() -> None:
    with pytest.raises(BadInput, match="no scores to pool"):
        pool_scores([])
    for one, other in combinations_with_replacement(["basic", "digits"], 2):
        scores = [score("a", "b", one), score("a", "b", other)]
        if one == other:
            assert pool_scores(scores).normaliser == one
        else:
            with pytest.raises(BadInput, match=r"basic \(version 2\), digits \(version 2\)"):
                pool_scores(scores)


def test_score_is_json_serialisable_and_jiwer_is_imported_lazily() -> None:
    assert json.loads(json.dumps(asdict(score("a b", "a c"))))["counts"]["substitutions"] == 1
    code = "import sys, workbench.text; print('jiwer' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_counts_add_up() -> None:
    one, two = (
        score(reference, hypothesis).words for reference, hypothesis in (("one two", "one too"), ("a b c", "a c d e"))
    )
    both = one + two
    assert both.errors == one.errors + two.errors and both.reference_units == 2 + 3
    assert both.insertions == one.insertions + two.insertions and both + both != both
