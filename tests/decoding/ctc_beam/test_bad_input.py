"""Invalid logits, options, lexicons and phrase files for the CTC beam search raise one-line errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.ctc_oracle import TableModel
from workbench.core.errors import BadInput
from workbench.decoding.ctc_beam import CtcDecoder, Lexicon, Phrases, SearchOptions, read_lexicon, read_phrases

TOKENS = ("<blank>", "a", "b", "c")
LEXICON = Lexicon(("ab",), (((1, 2),),))


def model() -> TableModel:
    return TableModel(1, np.random.default_rng(0))


def with_value(frame: int, value: float) -> np.ndarray:
    logits = np.zeros((100, 4), dtype=np.float32)
    logits[frame, 1:3] = value
    return logits


@pytest.mark.parametrize(
    "logits, message",
    [
        (np.zeros((0, 4)), "have no frames"),
        (np.zeros(4), r"shape \[4\]; expected \[frames, 4\]"),
        (np.zeros((2, 5)), r"shape \[2, 5\]; expected \[frames, 4\]"),
        (np.zeros((1, 2, 4)), "shape"),
        (np.zeros((2, 4), dtype=complex), "type complex128"),
        (np.full((2, 4), "x"), "type <U1"),
        (np.zeros((2, 4), dtype=bool), "type bool"),
        (np.full((2, 4), None), "type object"),
        (with_value(70, np.nan), "NaN in frame 70"),
        (with_value(0, np.inf), r"\+inf in frame 0"),
        (np.vstack([np.zeros((65, 4)), np.full((1, 4), -np.inf)]), "-inf everywhere in frame 65"),
    ],
)
def test_invalid_logits_raise_one_line_error(logits: np.ndarray, message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        CtcDecoder(4, 0).decode([logits])
    assert "\n" not in str(caught.value)
    with pytest.raises(BadInput, match="recording 2"):
        CtcDecoder(4, 0).decode([np.zeros((3, 4)), logits])


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int32])
def test_logits_of_any_dtype_and_memory_layout_are_decoded(kind: type) -> None:
    logits = np.asfortranarray(np.array([[0, 5, 1, 1], [0, 1, 6, 1], [9, 0, 0, 0]], dtype=kind))
    decoder = CtcDecoder(4, 0)
    (hypotheses,) = decoder.decode([logits])
    assert hypotheses[0].tokens == (1, 2)
    assert decoder.decode([logits[::-1][::-1]]) == [hypotheses]


def test_tokens_with_minus_infinity_logits_are_accepted() -> None:
    logits = np.array([[-np.inf, 0.0, -np.inf, -np.inf], [0.0, -np.inf, -np.inf, -np.inf]])
    (hypotheses,) = CtcDecoder(4, 0, SearchOptions(nbest=5)).decode([logits])
    assert [(each.tokens, each.score) for each in hypotheses] == [((1,), 0.0)]


def test_no_recordings_give_no_results() -> None:
    assert CtcDecoder(4, 0).decode([]) == []


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: CtcDecoder(4, 0, SearchOptions(beam_size=-3)), "option beam_size of the beam search is -3"),
        (lambda: CtcDecoder(4, 0, SearchOptions(beam_size=0)), "option beam_size"),
        (lambda: CtcDecoder(4, 0, SearchOptions(nbest=0)), "option nbest"),
        (lambda: CtcDecoder(4, 0, SearchOptions(alpha=float("nan"))), "option alpha"),
        (lambda: CtcDecoder(4, 0, SearchOptions(recombination="mean")), "expected one of sum, max"),
        (lambda: CtcDecoder(4, 0, SearchOptions(threshold=-1.0)), "option threshold"),
        (lambda: CtcDecoder(4, 4), "the blank is 4; expected a token id from 0 to 3"),
        (lambda: CtcDecoder(4, -1), "the blank is -1"),
        (lambda: CtcDecoder(1, 0), "the vocabulary has 1 token;"),
        (lambda: CtcDecoder(4, 0, word_lm=model()), "needs a lexicon"),
        (lambda: CtcDecoder(4, 0, neural_lm=model()), "needs a lexicon"),
        (lambda: CtcDecoder(4, 0, lexicon=Lexicon((), ())), "the lexicon has no words"),
        (lambda: CtcDecoder(4, 2, lexicon=LEXICON), r"spells ab with the tokens \[1, 2\]"),
        (lambda: CtcDecoder(2, 0, lexicon=LEXICON), "ids below 2"),
        (lambda: CtcDecoder(4, 0, lexicon=Lexicon(("x",), (((),),))), "one or more ids"),
        (lambda: CtcDecoder(4, 0, lexicon=Lexicon(("x",), ((),))), "no spelling"),
        (lambda: CtcDecoder(4, 0, phrases=Phrases(((1, 4),))), "a phrase is"),
        (lambda: CtcDecoder(4, 0, phrases=Phrases(((),))), "a phrase is"),
        (lambda: CtcDecoder(4, 0, phrases=Phrases(((0,),))), "the blank"),
        (lambda: CtcDecoder(4, 0, lexicon=LEXICON, phrases=Phrases(((1,),))), "indices of the lexicon's words"),
    ],
)
def test_invalid_search_options_and_models_raise_one_line_error(make: Callable[[], CtcDecoder], message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_lexicon_is_read(tmp_path: Path) -> None:
    path = tmp_path / "lexicon.txt"
    path.write_text("\ufeffcab\tc a b\n\ncab(2)\tc b\r\nNew York\ta\n(2)\tb\ncab\tc a b\n", encoding="utf-8")
    lexicon = read_lexicon(path, TOKENS)
    assert lexicon.words == ("cab", "New York", "(2)")
    assert lexicon.pronunciations == (((3, 1, 2), (3, 2)), ((1,),), ((2,),))


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "has no words"),
        ("\n \n", "has no words"),
        ("ab a b\n", "line 1 .* expected a word, a tab"),
        ("ab\ta b\nc\t \n", "line 2 .* expected a word, a tab"),
        ("\ta b\n", "line 1"),
        ("ab\ta x\n", "spells ab with 'x', which is not a token of the vocabulary"),
        ("ab\ta <blank>\n", "which is the blank"),
    ],
)
def test_invalid_lexicon_raises_one_line_error(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "lexicon.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=message) as caught:
        read_lexicon(path, TOKENS)
    assert "\n" not in str(caught.value)


def test_phrases_are_read(tmp_path: Path) -> None:
    path = tmp_path / "phrases.txt"
    path.write_text("a b\n\nc\na  b\n", encoding="utf-8")
    assert read_phrases(path, TOKENS) == Phrases(((1, 2), (3,)))


@pytest.mark.parametrize("space", ["\u3000", "\u00a0", "\u2009"])
def test_only_ascii_white_space_separates_tokens(space: str, tmp_path: Path) -> None:
    token, word, path = f"a{space}", f"{space}ab", tmp_path / "it.txt"
    path.write_text(f" {word}\t{token}\vb {space}\n", encoding="utf-8")
    lexicon = read_lexicon(path, ("<blank>", token, "b", space))
    assert lexicon == Lexicon((word,), (((1, 2, 3),),))
    path.write_text(f"{word}\f{word}\n{space}\n", encoding="utf-8")
    assert read_phrases(path, (word, space)) == Phrases(((0, 0), (1,)))


def test_unreadable_phrase_and_lexicon_files_raise_an_error(tmp_path: Path) -> None:
    path = tmp_path / "phrases.txt"
    for text, message in (("", "no phrases"), ("a q\n", "line 1 .*'q', which is not a token")):
        path.write_text(text)
        with pytest.raises(BadInput, match=message):
            read_phrases(path, TOKENS)
    path.write_text(f"a\nb {TOKENS[0]}\n")
    with pytest.raises(BadInput, match=r"line 2 .*, which is the blank"):
        read_phrases(path, TOKENS, blank=0)
    path.write_bytes(b"a \xff b")
    with pytest.raises(BadInput, match="cannot be read: it is not UTF-8 text at byte 2"):
        read_phrases(path, TOKENS)
    for wrong in (tmp_path, tmp_path / "none.txt"):
        with pytest.raises(BadInput, match="cannot be read"):
            read_lexicon(wrong, TOKENS)
