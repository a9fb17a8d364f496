"""What a search may know: the files that a user uploads, each checked at once, and the shipped examples.

It reads the files as a search reads them, and says in one sentence what it found. It shows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workbench.core.errors import BadInput, WorkbenchError
from workbench.core.phrases import counted
from workbench.decoding.ctc_beam.lexicon import read_lexicon
from workbench.decoding.ctc_beam.phrases import read_phrases
from workbench.decoding.ngram.arpa_reading import read_arpa
from workbench.decoding.ngram.kenlm_binary import is_kenlm_binary
from workbench.decoding.ngram.model import NgramModel
from workbench.decoding.ngram.read import read_ngram_model
from workbench.families.vocabularies.ctc_layouts import LogitsLayout
from workbench.registry.sources import assets
from workbench.system.memory import size

MAX_BYTES = 300 << 20  # of one uploaded file; larger files take minutes to read
FILES = {
    "lm": "Token LM",
    "lexicon": "Lexicon",
    "word_lm": "Word LM",
    "boost": "Boosted phrases",
}
"""The options of a search that are files, with their names on the page."""


@dataclass(frozen=True)
class Checked:
    """What was found in a file, or what is wrong with it."""

    message: str
    wrong: bool = False


def check_file(option: str, path: str | None, layout: LogitsLayout | None, lexicon: str | None) -> Checked | None:
    """Reads the file of an option; returns None if there is no file.

    Args:
        layout: the layout of the chosen model. None if its tokens are not known yet; the file is then checked later.
        lexicon: the path of the lexicon. Models of words, and phrases, are checked against its words.
    """
    if not path:
        return None
    try:
        check_size(path)
        if layout is None:
            return Checked("It is checked when the tokens are known.")
        return Checked(_CHECKS[option](path, layout, lexicon))
    except WorkbenchError as error:
        return Checked(str(error), wrong=True)


def check_size(path: str) -> None:
    """Raises `BadInput` for a file that takes too long to read on the page."""
    try:
        count = Path(path).stat().st_size
    except OSError:
        raise BadInput(f"{Path(path).name} is not kept any more; add it again") from None
    if count > MAX_BYTES:
        raise BadInput(
            f"{Path(path).name} has {size(count)}; expected at most {size(MAX_BYTES)} on this page, while the command "
            "`workbench decode` takes larger files"
        )


def _lm(path: str, layout: LogitsLayout, lexicon: str | None) -> str:
    return _ngrams(path, layout.text_pieces, "tokens")


def _word_lm(path: str, layout: LogitsLayout, lexicon: str | None) -> str:
    if lexicon is None:
        raise BadInput("a language model of words needs a lexicon; add one")
    return _ngrams(path, read_lexicon(lexicon, layout.pieces, layout.blank).words, "words of the lexicon")


def _ngrams(path: str, symbols: Sequence[str], units: str) -> str:
    """Reads an n-gram model as a search does; returns a sentence on it. Raises `BadInput` if it knows no symbol."""
    if is_kenlm_binary(Path(path)):
        binary = read_ngram_model(Path(path), symbols)
        return f"A KenLM model of order {binary.order} for the {len(symbols)} {units}{_notes(binary.notes)}."
    tables = read_arpa(Path(path))
    known_count = sum(symbol in tables.ids for symbol in symbols)
    if not known_count:
        first_words = ", ".join(f"{word!r:.30}" for word in tables.words if not word.startswith("<"))[:80]
        raise BadInput(
            f"none of the {len(symbols)} {units} is in {Path(path).name}, which is a model of {first_words}; expected "
            "a model of them"
        )
    count = sum(map(len, tables.orders))
    share = f"{known_count} of the {len(symbols)} {units} are in it"
    return f"Order {tables.order}, {counted(count, 'n-gram')}; {share}{_notes(NgramModel(tables, symbols).notes)}."


def _notes(notes: Sequence[str]) -> str:
    return "".join(f"; {note}" for note in notes)


def _lexicon(path: str, layout: LogitsLayout, lexicon: str | None) -> str:
    words_and_spellings = read_lexicon(path, layout.pieces, layout.blank)
    spellings: dict[tuple[int, ...], int] = {}
    for each in words_and_spellings.pronunciations:
        for spelling in each:
            spellings[spelling] = spellings.get(spelling, 0) + 1
    shared_count = sum(count > 1 for count in spellings.values())
    shared_clause = f"; {shared_count} spellings stand for several words" if shared_count > 1 else ""
    shared_clause = "; 1 spelling stands for several words" if shared_count == 1 else shared_clause
    return (
        f"{counted(len(words_and_spellings.words), 'word')} with "
        f"{counted(sum(map(len, words_and_spellings.pronunciations)), 'spelling')}{shared_clause}."
    )


def _boost(path: str, layout: LogitsLayout, lexicon: str | None) -> str:
    if lexicon is None:
        count = len(read_phrases(path, layout.pieces, blank=layout.blank).sequences)
    else:
        words = read_lexicon(lexicon, layout.pieces, layout.blank).words
        count = len(read_phrases(path, words, "word of the lexicon").sequences)
    return f"{counted(count, 'phrase')}."


_CHECKS: Mapping[str, Callable[[str, LogitsLayout, str | None], str]] = {
    "lm": _lm,
    "lexicon": _lexicon,
    "word_lm": _word_lm,
    "boost": _boost,
}


@dataclass(frozen=True)
class Example:
    """An example to try: files and options for a search, with recordings or logits to decode."""

    key: str
    title: str
    about: str
    files: Mapping[str, str]  # by option: names of files in assets/decoding
    options: Mapping[str, object] = field(default_factory=dict)
    neural: str = ""  # a model on a runtime, which scores the words
    samples: tuple[str, ...] = ()  # names of sample recordings
    logits: tuple[str, ...] = ()  # names of files in assets/decoding, with the reference text of each
    references: tuple[str, ...] = ()
    tokens: str = ""

    def path(self, name: str) -> str | None:
        """Returns the path of one of the example's files; None for an empty name."""
        return str(assets() / FOLDER / name) if name else None


FOLDER = "decoding"  # in assets/
EXAMPLES = (
    Example(
        "telephone",
        "Telephone numbers",
        "A language model of tokens, trained on telephone numbers of an invented country: in noise, the search with it "
        "writes nine where the others write five",
        {"lm": "telephone.arpa.gz"},
        {"alpha": 0.5},
        samples=("telephone_noisy.wav",),
    ),
    Example(
        "list",
        "A list of numbers",
        "Phrases: 20 telephone numbers that are likely to be said",
        {"boost": "telephone_list.txt"},
        {"boost_score": 2.0},
        samples=("seven_digits.wav",),
    ),
    Example(
        "homophones",
        "Homophones of phonemes",
        "A lexicon over phonemes in which words sound alike, and a model of the words, with logits made for them",
        {"lexicon": "phoneme_words.txt", "word_lm": "phoneme_words.arpa"},
        {"gamma": 1.0},
        logits=("he_won_two_to_one.npy", "we_ate_four_pears.npy"),
        references=("he won two to one", "we ate four pears"),
        tokens="phonemes.txt",
    ),
    Example(
        "words",
        "Digits and their homophones",
        "A lexicon in which one and won, two and too have the same tokens, and a model of the words",
        {"lexicon": "digit_words.txt", "word_lm": "digit_words.arpa"},
        {"gamma": 1.0},
        samples=("nine_two_eight_zero_four.wav",),
    ),
    Example(
        "narrow",
        "A beam that is too narrow",
        "The same with a single hypothesis, which drops the one that would have won",
        {"lexicon": "digit_words.txt", "word_lm": "digit_words.arpa"},
        {"beam_size": 1, "gamma": 1.0},
        samples=("seven_digits.wav",),
    ),
    Example(
        "neural",
        "A neural language model",
        "A lexicon with homophones, whose words demo/qwen3 scores",
        {"lexicon": "digit_words.txt"},
        {"gamma": 0.5},
        "demo/qwen3|pytorch",
        samples=("five_zero_eight_two_noisy.wav",),
    ),
)


def read_examples() -> tuple[Example, ...]:
    """Returns the examples whose files ship with this installation."""

    def ships(example: Example) -> bool:
        names = [*example.files.values(), *example.logits, example.tokens]
        return all(Path(path).is_file() for name in names if (path := example.path(name)))

    return tuple(example for example in EXAMPLES if ships(example))


def find_example(key: str) -> Example:
    """Returns the example with that key; raises `BadInput` if there is none."""
    for example in read_examples():
        if example.key == key:
            return example
    raise BadInput(f"there is no example {key!r:.40}; reload the page")
