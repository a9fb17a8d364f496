"""Reads n-gram models in the ARPA format, plain or gzipped, as KenLM, SRILM and pocketsphinx write them.

numpy and the string methods of C read a file in blocks, so millions of n-grams take seconds. A word is any run of
bytes without ASCII white space, in UTF-8. The file must keep what its head promises: each fault is one sentence with
the number of the line. This file computes no probabilities.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from workbench.core.errors import BadInput
from workbench.core.phrases import counted
from workbench.decoding.ngram.line_blocks import LineBlocks, open_lines
from workbench.decoding.ngram.tables import MAX_ORDER, Ngrams, NgramTables
from workbench.formats.text_files import check_stored

HEAD_LINES = 1000  # lines that are searched for \data\; pocketsphinx writes a comment before it
_COUNT = re.compile(rb"ngram\s+(\d{1,4})\s*=\s*(\d{1,18})")
_IRSTLM = {  # formats of IRSTLM that look like ARPA, with numbers of other meanings; and what to do
    b"iARPA": "compile-lm --text=yes writes ARPA from it",
    b"qARPA": "quantize-lm read ARPA to write it",
}
_SECTION = re.compile(rb"\\(\d{1,4})-grams:")
_SPACE = np.zeros(256, bool)
_SPACE[[*b" \t\n\r\v\f"]] = True  # what bytes.split() splits at
_NEWLINE = ord("\n")
_MIXER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / the golden ratio; mixes the bits of a hash


def read_arpa(path: Path) -> NgramTables:
    """Returns the model in an ARPA file. Raises `BadInput` with the line of the fault for any other file."""
    try:
        check_stored(path)
    except BadInput as error:
        raise BadInput(f"{path.name} cannot be read: {error}") from error
    with open_lines(path) as lines:
        return _Reader(lines, path.name).read()


class _Reader:
    """Reads one file from its head to its end."""

    def __init__(self, lines: LineBlocks, name: str):
        self._lines = lines
        self._name = name
        self._ids: dict[bytes, int] = {}

    def read(self) -> NgramTables:
        counts, command = self._head()
        orders: list[Ngrams] = []
        for order, count in enumerate(counts, 1):
            section = _SECTION.fullmatch(command)
            if section and int(section[1]) == order:
                orders.append(self._section(order, count))
                command = self._line()
            elif count:
                raise self._error(f"is {_quoted(command)}", f"\\{order}-grams:, as the head promises {count} of them")
            else:
                orders.append(_join([], order))  # a file may leave out the section of no n-grams
        if command != b"\\end\\":
            raise self._error(f"is {_quoted(command)}", f"\\end\\ after the {len(counts)}-grams")
        for _ in self._lines.blocks():
            pass  # what follows belongs to no model, but a damaged end of the file must not go unnoticed
        return NgramTables(tuple(word.decode("utf-8") for word in self._ids), tuple(orders), self._name)

    def _head(self) -> tuple[list[int], bytes]:
        """Returns the promised number of n-grams of each order, and the line after the head."""
        line = self._lines.next()
        kind = (line or b"").split(b" ")[0]
        if kind in _IRSTLM:
            raise BadInput(
                f"{self._name} is in IRSTLM's format {kind.decode()}; expected the ARPA format: {_IRSTLM[kind]}"
            )
        while line is not None and line != b"\\data\\":
            line = self._lines.next() if self._lines.number < HEAD_LINES else None
        if line is None:
            fault = "not an ARPA file: no \\data\\ stands in its first lines" if self._lines.number else "empty"
            raise BadInput(f"{self._name} is {fault}; expected a language model in the ARPA format, plain or gzipped")
        counts: list[int] = []
        while (line := self._line()).startswith(b"ngram"):
            match = _COUNT.fullmatch(line)
            if match is None:
                raise self._error(f"is {_quoted(line)}", "a count such as ngram 1=5000")
            if int(match[1]) != len(counts) + 1:
                raise self._error(f"counts the {int(match[1])}-grams", f"the {len(counts) + 1}-grams")
            counts.append(int(match[2]))
        if not 1 <= len(counts) <= MAX_ORDER:
            raise self._error(f"ends the head of a model of order {len(counts)}", f"order 1 to {MAX_ORDER}")
        if not counts[0]:
            raise self._error("ends the head of a model without 1-grams", "at least one")
        return counts, line

    def _line(self) -> bytes:
        """Returns the next line that is not blank; raises `BadInput` at the end of the file."""
        line = self._lines.next()
        if line is None:
            raise BadInput(f"{self._name} is cut off: it ends after line {self._lines.number}, without \\end\\")
        return line

    def _section(self, order: int, count: int) -> Ngrams:
        parts: list[Ngrams] = []
        places: list[np.ndarray] = []  # the lines of the n-grams
        read_count = 0
        for first, block in self._lines.blocks(end=b"\\"):
            part, lines = self._block(order, first, block)
            if read_count + len(part) > count:
                raise self._error(
                    f"holds one {order}-gram more than the head promises",
                    f"{count} of them",
                    int(lines[count - read_count]),
                )
            read_count += len(part)
            parts.append(part)
            places.append(lines)
        if read_count < count:
            line = self._line()  # raises if the file ends here
            raise self._error(
                f"is {_quoted(line)} after {read_count} {order}-grams", f"{count} of them, as the head promises"
            )
        ngrams = _join(parts, order)
        if order > 1 and (repeated := _find_repeated(ngrams.words)) is not None:
            raise self._error(
                f"repeats a {order}-gram of an earlier line", "each once", int(np.concatenate(places)[repeated])
            )
        return ngrams

    def _block(self, order: int, first: int, block: bytes) -> tuple[Ngrams, np.ndarray]:
        """Returns the n-grams of whole lines, and the number of the line of each.

        Args:
            first: number of the first line.
        """
        lengths = _fields_per_line(block)
        nonblank = np.flatnonzero(lengths)
        lines, lengths = nonblank + first, lengths[nonblank]
        wrong_lines = np.flatnonzero((lengths != order + 1) & (lengths != order + 2))
        if len(wrong_lines):
            raise self._error(
                f"has {counted(int(lengths[wrong_lines[0]]), 'field')}",
                f"a log-probability, {counted(order, 'word')} and perhaps a back-off weight",
                int(lines[wrong_lines[0]]),
            )
        fields = np.array(block.split(), dtype=object)
        starts = np.cumsum(lengths) - lengths
        log10 = self._numbers(fields[starts], lines, "log-probability")
        if len(positive := np.flatnonzero(log10 > 0)):
            raise self._error(
                f"has the log-probability {fields[starts[positive[0]]].decode()}", "0 or less", int(lines[positive[0]])
            )
        backoff = np.zeros(len(lines))
        has_backoff = np.flatnonzero(lengths == order + 2)
        backoff[has_backoff] = self._numbers(
            fields[starts[has_backoff] + order + 1], lines[has_backoff], "back-off weight"
        )
        names = fields[(starts[:, None] + np.arange(1, order + 1)).ravel()].tolist()
        words = self._unigram_indices(names, lines) if order == 1 else self._word_indices(names, lines, order)
        return Ngrams(words.reshape(-1, order), log10, backoff), lines

    def _numbers(self, texts: np.ndarray, lines: np.ndarray, field: str) -> np.ndarray:
        """Returns the numbers of fields, float64; minus infinity is allowed, as the logarithm of 0."""
        text_list = texts.tolist()
        try:
            if b"_" in b"".join(text_list):  # Python's numbers may hold underscores
                raise ValueError
            numbers = np.fromiter(map(float, text_list), np.float64, len(text_list))
        except ValueError:
            numbers = np.array([_number_or_nan(text) for text in text_list])
        if len(not_finite := np.flatnonzero(~(numbers < np.inf))):
            raise self._error(
                f"has the {field} {_quoted(texts[not_finite[0]])}", "a finite number", int(lines[not_finite[0]])
            )
        return numbers

    def _unigram_indices(self, names: Sequence[bytes], lines: np.ndarray) -> np.ndarray:
        """Returns the new indices of the words of 1-grams."""
        first_index = len(self._ids)
        for number, name in enumerate(names):
            if name in self._ids:
                raise self._error(f"repeats the word {_quoted(name)}", "each word once", int(lines[number]))
            if not _is_utf8(name):
                raise self._error(f"has the word {_quoted(name)}", "text in UTF-8", int(lines[number]))
            self._ids[name] = first_index + number
        return np.arange(first_index, first_index + len(names), dtype=np.int32)

    def _word_indices(self, names: Sequence[bytes], lines: np.ndarray, order: int) -> np.ndarray:
        """Returns the indices of the words of longer n-grams."""
        try:
            return np.fromiter(map(self._ids.__getitem__, names), np.int32, len(names))
        except KeyError:
            index = next(index for index, name in enumerate(names) if name not in self._ids)
            raise self._error(
                f"has the word {_quoted(names[index])}", "a word of the 1-grams", int(lines[index // order])
            ) from None

    def _error(self, fault: str, expected: str, line: int | None = None) -> BadInput:
        """Returns the error for a line; by default, for the line that was read last."""
        line = self._lines.number if line is None else line
        return BadInput(f"line {line} of {self._name} {fault}; expected {expected}")


def _fields_per_line(block: bytes) -> np.ndarray:
    """Returns the number of fields of each line int64 [lines], 0 for a blank line."""
    byte_values = np.frombuffer(block, np.uint8)
    is_space = _SPACE[byte_values]
    is_first = ~is_space  # the first byte of a field
    is_first[1:] &= is_space[:-1]
    lines = np.append(0, np.flatnonzero(byte_values[:-1] == _NEWLINE) + 1)
    return np.add.reduceat(is_first, lines, dtype=np.int64)


def _number_or_nan(text: bytes) -> float:
    try:
        return np.nan if b"_" in text else float(text)
    except ValueError:
        return np.nan


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _find_repeated(words: np.ndarray) -> int | None:
    """Returns the row of the first n-gram that an earlier row [n-grams, order] has too; None if all are distinct."""
    keys = np.zeros(len(words), np.uint64)
    for column in words.T:
        keys = (keys ^ column.astype(np.uint64)) * _MIXER
        keys ^= keys >> np.uint64(29)
    ordered = np.sort(keys)
    repeated_keys = ordered[1:][ordered[1:] == ordered[:-1]]  # repeated n-grams, or different ones with one key
    earlier_ngrams: set[tuple[int, ...]] = set()
    for row in np.flatnonzero(np.isin(keys, repeated_keys)) if len(repeated_keys) else ():
        ngram = tuple(words[row].tolist())
        if ngram in earlier_ngrams:
            return int(row)
        earlier_ngrams.add(ngram)
    return None


def _join(parts: Sequence[Ngrams], order: int) -> Ngrams:
    """Returns the n-grams of all parts, in order."""
    if not parts:
        return Ngrams(np.empty((0, order), np.int32), np.empty(0), np.empty(0))
    return Ngrams(
        np.concatenate([part.words for part in parts]),
        np.concatenate([part.log10 for part in parts]),
        np.concatenate([part.backoff for part in parts]),
    )


def _quoted(text: bytes) -> str:
    """Returns text of the file as a message quotes it."""
    return repr(text[:40].decode("utf-8", "replace"))
