"""Makes the files in `assets/decoding/`: language models, lexicons and logits to try a beam search with.

    python -m workbench.training.decoding_samples --out assets/decoding

- For `demo/sensevoice`: a language model of telephone numbers, a list of numbers, and a lexicon of words that sound
  like digits with a language model of words that tells them apart.
- For two made-up files of logits over phonemes: tokens, a lexicon with homophones, and a language model of its words.

The same program writes the same files. Nothing here comes from recordings or from other people's texts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np

from workbench.decoding.ngram.arpa_writing import write_arpa
from workbench.decoding.ngram.train import train
from workbench.families.vocabularies.spelling import sensevoice_speller
from workbench.registry.sources import assets
from workbench.training.data.digits import WORDS
from workbench.training.data.telephone import draw_numbers, found_numbering_plan, sentences_of

TELEPHONE_NUMBERS, TELEPHONE_ORDER = 1000, 4
LISTED = 20  # numbers in the list of phrases
TRAINING_SEED, LISTED_SEED = 1, 2  # of `draw_numbers`; a measurement must use others

SOUND_LIKE: Mapping[str, Sequence[str]] = {"one": ["won"], "two": ["to", "too"], "four": ["for"], "eight": ["ate"]}
"""Words that sound like a digit."""
DIGIT_SENTENCES, WORD_ORDER = 3000, 3

PRONUNCIATIONS = """
i        AY
we       W IY
he       HH IY
she      SH IY
you      Y UW
the      DH AH
the(2)   DH IY
a        AH
ate      EY T
eight    EY T
won      W AH N
one      W AH N
to       T UW
to(2)    T AH
too      T UW
two      T UW
for      F AO R
for(2)   F ER
four     F AO R
know     N OW
no       N OW
knew     N UW
new      N UW
see      S IY
sea      S IY
hear     HH IH R
here     HH IH R
right    R AY T
write    R AY T
by       B AY
buy      B AY
bye      B AY
race     R EY S
pears    P EH R Z
pairs    P EH R Z
"""
PERSONS, NUMBERS = ("i", "we", "he", "she", "you"), ("one", "two", "four", "eight")
TEMPLATES = """
PERSON won the race
PERSON won NUMBER to NUMBER
PERSON ate NUMBER pears
PERSON ate NUMBER too
PERSON ate here
PERSON knew the new one
PERSON knew no one here
NUMBER for NUMBER
NUMBER pears for you
NUMBER new pairs for you
we see the sea
we hear no one
you know no one here
you buy NUMBER pairs
i buy a new one too
i write to you
i know the right one
by the sea
bye bye
"""
SPOKEN_NUMBERS = {
    "we_ate_four_pears.npy": "W IY EY T F AO R P EH R Z",
    "he_won_two_to_one.npy": "HH IY W AH N T UW T UW W AH N",
}
"""The files of logits over phonemes, and what is said in each."""
BLANK = "<blk>"


def write_samples(out: Path) -> None:
    """Writes all files into a folder."""
    speller = sensevoice_speller(assets() / "demo-sensevoice")
    numbering_plan = found_numbering_plan()
    telephone_sentences = sentences_of(draw_numbers(numbering_plan, TELEPHONE_NUMBERS, TRAINING_SEED))
    model = train([speller.spell(each) for each in telephone_sentences], TELEPHONE_ORDER, speller.tokens)
    write_arpa(model.tables, out / "telephone.arpa.gz", zipped=True)
    listed = sentences_of(draw_numbers(numbering_plan, LISTED, LISTED_SEED))
    _write(out / "telephone_list.txt", [" ".join(speller.spell(each)) for each in listed])

    spelled = {word: speller.spell(digit) for digit in WORDS for word in (digit, *SOUND_LIKE.get(digit, ()))}
    _write(out / "digit_words.txt", [f"{word}\t{' '.join(tokens)}" for word, tokens in spelled.items()])
    write_arpa(train(_digit_sentences(), WORD_ORDER, list(spelled)).tables, out / "digit_words.arpa")

    entries = [line.split() for line in PRONUNCIATIONS.split("\n") if line]
    phonemes = sorted({phoneme for _, *spelling in entries for phoneme in spelling})
    _write(out / "phonemes.txt", [BLANK, *phonemes])
    _write(out / "phoneme_words.txt", [f"{word}\t{' '.join(spelling)}" for word, *spelling in entries])
    words = list(dict.fromkeys(word.partition("(")[0] for word, *_ in entries))
    write_arpa(train(_template_sentences(), WORD_ORDER, words).tables, out / "phoneme_words.arpa")
    for number, (name, pronunciation) in enumerate(SPOKEN_NUMBERS.items()):
        np.save(
            out / name, _logits([phonemes.index(each) + 1 for each in pronunciation.split()], len(phonemes) + 1, number)
        )


def _digit_sentences() -> list[list[str]]:
    """Draws strings of digits, and sentences in which words sound like digits."""
    rng = np.random.default_rng([18, 3])
    forms = [
        "{0} won {1} to {2}",
        "{0} won too",
        "{0} won",
        "{0} ate {1}",
        "{0} ate {1} too",
        "{0} for {1}",
        "{0} to {1}",
        "{0} to {1} for {2}",
        "{0} {1} {2}",
        "{0} {1} {2} {3}",
        "{0} {1} {2} {3} {4}",
    ]
    sentences = []
    for _ in range(DIGIT_SENTENCES):
        form = forms[int(rng.integers(len(forms)))]
        sentences.append(form.format(*(WORDS[int(digit)] for digit in rng.integers(len(WORDS), size=5))).split())
    return sentences


def _template_sentences() -> list[tuple[str, ...]]:
    """Returns the templates with every choice of persons and numbers."""
    choices = {"PERSON": PERSONS, "NUMBER": NUMBERS}
    templates = [[choices.get(word, (word,)) for word in line.split()] for line in TEMPLATES.split("\n") if line]
    return [sentence for template in templates for sentence in product(*template)]


def _logits(ids: Sequence[int], vocabulary: int, seed: int) -> np.ndarray:
    """Returns logits, float16 [frames, vocabulary], of these tokens with one to three frames each."""
    rng = np.random.default_rng([18, 4, seed])
    path = [0]
    for token in ids:
        path += [token] * int(rng.integers(1, 4)) + [0] * int(rng.integers(1, 3))
    logits = rng.normal(0.0, 1.0, (len(path), vocabulary))
    logits[np.arange(len(path)), path] += 6.0
    return logits.astype(np.float16)


def _write(path: Path, lines: Sequence[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the files into the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a folder that exists")
    write_samples(parser.parse_args(arguments).out)


if __name__ == "__main__":
    main(sys.argv[1:])
