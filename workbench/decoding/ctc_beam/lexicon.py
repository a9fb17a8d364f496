"""A lexicon: words and how each is spelled in tokens. This file reads it; `lexicon_automaton` makes its automaton."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.formats.text_files import BLANKS, lines_of, read_text, words_of

VARIANT = re.compile(r"(?<=.)\(\d+\)$")  # `word(2)` is another pronunciation of `word`


@dataclass(frozen=True)
class Lexicon:
    """Words with their pronunciations. A word's symbol is its index.

    Args:
        words: distinct words.
        pronunciations: of each word, its spellings in token ids; at least one, none empty.
    """

    words: tuple[str, ...]
    pronunciations: tuple[tuple[tuple[int, ...], ...], ...]

    @cached_property
    def symbols(self) -> dict[str, int]:
        """The symbol of each word."""
        return {word: number for number, word in enumerate(self.words)}

    def check(self, vocabulary: int, blank: int) -> None:
        """Raises `BadInput` if tokens of this vocabulary cannot spell the words."""
        if not self.words:
            raise BadInput("the lexicon has no words; expected at least one word with its tokens")
        if self._is_spelled(vocabulary, blank):
            return
        for word, spellings in zip(self.words, self.pronunciations, strict=True):
            if not spellings:
                raise BadInput(f"the lexicon has no spelling of {word}; expected at least one")
            for spelling in spellings:
                if not spelling or not all(0 <= token < vocabulary and token != blank for token in spelling):
                    raise BadInput(
                        f"the lexicon spells {word} with the tokens {list(spelling)}; expected one or more ids "
                        f"below {vocabulary} that are not the blank {blank}"
                    )

    def _is_spelled(self, vocabulary: int, blank: int) -> bool:
        """Returns whether every word has spellings, and each of them tokens of this vocabulary without the blank."""
        used = set(chain.from_iterable(chain.from_iterable(self.pronunciations)))
        return (
            len(self.words) == len(self.pronunciations)
            and all(self.pronunciations)
            and all(map(all, self.pronunciations))  # no spelling is empty
            and blank not in used
            and min(used) >= 0
            and max(used) < vocabulary
        )


def read_lexicon(path: str | Path, tokens: Sequence[str], blank: int = 0) -> Lexicon:
    """Returns the lexicon in a file with a line `word<tab>token token ...` for each pronunciation.

    `word(2)` counts as another pronunciation of `word`. Lines without any text are skipped. Only ASCII white space
    separates tokens, as in ARPA files.

    Args:
        path: the file, in UTF-8.
        tokens: the name of each token id.
        blank: the id of the blank, which spells nothing.

    Raises `BadInput` for a file that cannot be read, a line of another form, or a token that the vocabulary lacks.
    """
    ids = token_ids(tokens)
    spelling_ids = {name: index for name, index in ids.items() if index != blank}
    spellings: dict[str, tuple[tuple[int, ...], ...]] = {}  # of numbers, which garbage collection skips
    for number, line in text_lines(path, "lexicon"):
        word, tab, spelled = line.partition("\t")
        word, names = word.strip(BLANKS), words_of(spelled)
        if word.endswith(")"):
            word = VARIANT.sub("", word)
        if not tab or not word or not names:
            raise BadInput(
                f"{_place(number, path)} is {line.strip()!r:.80}; expected a word, a tab and the word's tokens"
            )
        try:
            spelling = tuple(map(spelling_ids.__getitem__, names))
        except KeyError:
            name = next(each for each in names if each not in spelling_ids)
            fault = "the blank" if name in ids else "not a token of the vocabulary"
            raise BadInput(f"{_place(number, path)} spells {word} with {name!r:.40}, which is {fault}") from None
        known_spellings = spellings.get(word, ())
        if spelling not in known_spellings:
            spellings[word] = (*known_spellings, spelling)
    if not spellings:
        raise BadInput(f"the lexicon {Path(path).name} has no words; expected lines with a word, a tab and its tokens")
    return Lexicon(tuple(spellings), tuple(spellings.values()))


def _place(number: int, path: str | Path) -> str:
    return f"line {number} of the lexicon {Path(path).name}"


def token_ids(tokens: Sequence[str]) -> dict[str, int]:
    """Returns the id of each name; the first one if a name occurs twice."""
    ids: dict[str, int] = {}
    for index, name in enumerate(tokens):
        ids.setdefault(name, index)
    return ids


def text_lines(path: str | Path, kind: str) -> Iterator[tuple[int, str]]:
    """Yields the lines of a UTF-8 file that hold text, with their numbers from 1.

    Raises `BadInput` for a file that cannot be read, described by `kind`.
    """
    try:
        text = read_text(Path(path))
    except BadInput as error:
        raise BadInput(f"the {kind} {Path(path).name} cannot be read: {error}") from None
    for number, line in enumerate(lines_of(text), 1):
        if line.strip(BLANKS):
            yield number, line
