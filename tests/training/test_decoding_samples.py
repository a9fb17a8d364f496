"""The files in assets/decoding: the program reproduces them, and searches with them show the intended effect."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from workbench.decoding.ctc_beam.decoder import CtcDecoder
from workbench.decoding.ctc_beam.lexicon import Lexicon, read_lexicon
from workbench.decoding.ctc_beam.options import SearchOptions
from workbench.decoding.ctc_beam.phrases import read_phrases
from workbench.decoding.ngram.model import NgramModel
from workbench.decoding.ngram.read import read_ngram_model
from workbench.families.sanm.sensevoice import read_sensevoice
from workbench.registry.sources import assets
from workbench.training.data.telephone import draw_numbers, found_numbering_plan
from workbench.training.decoding_samples import SPOKEN_NUMBERS, main

SHIPPED = assets() / "decoding"


def digit_pieces() -> tuple[str, ...]:
    return read_sensevoice(assets() / "demo-sensevoice").vocabulary.pieces


def test_sample_program_reproduces_the_shipped_files(tmp_path: Path) -> None:
    main(["--out", str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in SHIPPED.iterdir()} - {"README.md"}
    about = (SHIPPED / "README.md").read_text(encoding="utf-8")
    for path in tmp_path.iterdir():
        assert f"`{path.name}`" in about
        written, shipped = path.read_bytes(), (SHIPPED / path.name).read_bytes()
        if path.suffix == ".gz":
            written, shipped = gzip.decompress(written), gzip.decompress(shipped)
        assert written == shipped, path.name


def test_telephone_model_scores_real_numbers_above_random_digits() -> None:
    pieces = digit_pieces()
    model = read_ngram_model(SHIPPED / "telephone.arpa.gz", pieces)
    assert model.notes == () and len(read_phrases(SHIPPED / "telephone_list.txt", pieces).sequences) == 20

    def ln(digits: tuple[int, ...]) -> float:
        state, total = np.array([model.start]), 0.0
        for digit in digits:
            part, state = model.advance(state, np.array([pieces.index("▁zero") + digit]))
            total += float(part[0])
        return total + float(model.final(state)[0])

    numbers = draw_numbers(found_numbering_plan(), 30, seed=99)
    others = np.random.default_rng(0).integers(10, size=(30, 10)).tolist()
    assert np.mean([ln(each) for each in numbers]) > np.mean([ln(tuple(each)) for each in others]) + 10


def phoneme_parts() -> tuple[Lexicon, NgramModel, int]:
    tokens = (SHIPPED / "phonemes.txt").read_text(encoding="utf-8").split()
    lexicon = read_lexicon(SHIPPED / "phoneme_words.txt", tokens)
    model = read_ngram_model(SHIPPED / "phoneme_words.arpa", lexicon.words)
    assert isinstance(model, NgramModel)
    return lexicon, model, len(tokens)


@pytest.mark.parametrize("name", SPOKEN_NUMBERS)
def test_word_ngram_model_decides_between_homophones_by_context(name: str) -> None:
    lexicon, model, tokens = phoneme_parts()
    logits = np.load(SHIPPED / name, allow_pickle=False)
    options = SearchOptions(beam_size=500, nbest=2)
    [[best, second]] = CtcDecoder(tokens, 0, options, lexicon=lexicon, word_lm=model).decode([logits])
    assert best.words == tuple(name.removesuffix(".npy").split("_")) != second.words
    [[one, other]] = CtcDecoder(tokens, 0, options, lexicon=lexicon).decode([logits])
    assert one.tokens == other.tokens and one.score == pytest.approx(other.score)


def test_digit_becomes_homophone_only_where_the_ngram_model_prefers_it() -> None:
    pieces = digit_pieces()
    lexicon = read_lexicon(SHIPPED / "digit_words.txt", pieces)
    model = read_ngram_model(SHIPPED / "digit_words.arpa", lexicon.words)
    decoder = CtcDecoder(len(pieces), 0, SearchOptions(beam_size=200), lexicon=lexicon, word_lm=model)
    for spoken_text, expected in {
        "seven eight nine": "seven ate nine",
        "nine one four two two": "nine won four to two",
        "three five one eight six": "three five one eight six",
        "two four one": "two for one",
    }.items():
        logits = np.full((2 * len(spoken_text.split()) + 1, len(pieces)), -5.0)
        logits[0::2, 0] = 5.0
        logits[range(1, len(logits), 2), [pieces.index(f"▁{word}") for word in spoken_text.split()]] = 5.0
        [[best]] = decoder.decode([logits])
        assert best.words == tuple(expected.split())
