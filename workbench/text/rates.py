"""Error rates of a hypothesis against a reference, and the differences between the two.

The edit distance and its alignment come from `jiwer`. This file decides the units (words, characters or both), keeps
counts that can be added up over recordings, and turns the alignment into pieces of text that a page can mark. It knows
texts only: no audio, no models.

Empty texts: if both are empty, the rate is 0. An empty hypothesis has a rate of 1, because everything is deleted. For
an empty reference and some hypothesis the rate is None, because nothing can be divided by; the insertions are counted,
so a recording of silence still has weight in a pooled rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from difflib import SequenceMatcher
from itertools import groupby, pairwise, zip_longest
from typing import TYPE_CHECKING, Literal

from workbench.core.errors import BadInput
from workbench.text.normalisers import find_normaliser
from workbench.text.scripts import characters, is_unspaced, mixed_units, needs_space

if TYPE_CHECKING:
    from jiwer import AlignmentChunk, WordOutput

Kind = Literal["equal", "substitute", "delete", "insert"]
RateName = Literal["WER", "CER", "MER"]

_BREAK = "\x1f"  # separates units for jiwer; Python counts it as white space, so no unit contains it
_PAIRING_LIMIT = 1000  # most comparisons of two units (about 10 microseconds each) for one run without a match


@dataclass(frozen=True)
class Difference:
    """A piece of the alignment. `delete` has no hypothesis, `insert` no reference, `equal` the same text twice."""

    kind: Kind
    reference: str
    hypothesis: str
    separator: str = ""  # the separator before this piece in running text: a space between words, else nothing


@dataclass(frozen=True)
class Counts:
    """The numbers of right, substituted, deleted and inserted units."""

    hits: int = 0
    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0

    @property
    def errors(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    @property
    def reference_units(self) -> int:
        return self.hits + self.substitutions + self.deletions

    @property
    def rate(self) -> float | None:
        """The errors per unit of the reference, which may exceed 1; None if only the reference is empty."""
        if not self.reference_units:
            return None if self.insertions else 0.0
        return self.errors / self.reference_units

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Counts)))


@dataclass(frozen=True)
class ErrorRates:
    """The error rates of one recording or of several pooled. `name` says which of the rates is the primary one.

    That is WER (words), CER (characters) or MER (mixed: words of spaced scripts and characters of the others).
    """

    name: RateName
    counts: Counts  # in units of the primary rate
    words: Counts  # units between white space; they mean little for scripts without spaces
    characters: Counts  # a space between words counts as a character; CJK characters have none between them
    normaliser: str
    normaliser_version: str
    recordings: int = 1

    @property
    def rate(self) -> float | None:
        """The primary rate, as a fraction; see `Counts.rate`."""
        return self.counts.rate

    @property
    def wer(self) -> float | None:
        return self.words.rate

    @property
    def cer(self) -> float | None:
        return self.characters.rate

    @property
    def summary(self) -> str:
        """The primary rate as `WER 25.0 %`, or why there is no rate."""
        if self.rate is None:
            return f"{self.name} not defined: the normalised reference is empty, {self.counts.insertions} inserted"
        return f"{self.name} {100 * self.rate:.1f} %"


@dataclass(frozen=True, kw_only=True)
class Score(ErrorRates):
    """The error rates of one recording, with both normalised texts and their alignment."""

    reference: str
    hypothesis: str
    alignment: tuple[Difference, ...]  # one unit each

    @property
    def differences(self) -> list[Difference]:
        """The alignment with neighbours of one kind joined into runs. Substitutions stay unit by unit."""
        runs: list[Difference] = []
        for piece in self.alignment:
            if runs and runs[-1].kind == piece.kind != "substitute":
                last = runs.pop()
                reference = last.reference + piece.separator + piece.reference if last.reference else ""
                hypothesis = last.hypothesis + piece.separator + piece.hypothesis if last.hypothesis else ""
                runs.append(Difference(piece.kind, reference, hypothesis, last.separator))
            else:
                runs.append(piece)
        return runs


@dataclass(frozen=True)
class _Units:
    """The units of an error rate: how a text is split into them, and what separates two of them in running text."""

    split: Callable[[str], list[str]]
    separator: Callable[[str, str], str]

    def join(self, units: Sequence[str]) -> str:
        pieces = list(units[:1])
        for left, right in pairwise(units):
            pieces += [self.separator(left, right), right]
        return "".join(pieces)


_UNITS: dict[RateName, _Units] = {
    "WER": _Units(str.split, lambda left, right: " "),
    "CER": _Units(characters, lambda left, right: ""),
    "MER": _Units(mixed_units, lambda left, right: " " if needs_space(left, right) else ""),
}


def units_of(text: str, name: RateName) -> list[str]:
    """Returns the units of a normalised text that the rate of that name counts: words, characters, or both."""
    return _UNITS[name].split(text)


def score(reference: str, hypothesis: str, normaliser: str = "basic") -> Score:
    """Returns the error rates of `hypothesis` and its alignment, after both texts are normalised.

    The reference decides the primary rate: CER if it is written in scripts without spaces, MER if it also has words of
    other scripts, else WER. So all hypotheses of one reference get the same rate. If the reference is empty, the
    hypothesis decides. Raises `BadInput` for an unknown normaliser. Example:

        >>> score("three seven one", "Three eleven one.").summary
        'WER 33.3 %'
    """
    normalisation = find_normaliser(normaliser)
    reference, hypothesis = normalisation.function(reference), normalisation.function(hypothesis)
    name = _rate_name(reference if reference.strip() else hypothesis)
    units = _UNITS[name]
    reference_units, hypothesis_units = units.split(reference), units.split(hypothesis)
    aligned = {kind: _align(_UNITS[kind], reference, hypothesis) for kind in {name, "WER", "CER"}}
    counts = {
        kind: Counts(alignment.hits, alignment.substitutions, alignment.deletions, alignment.insertions)
        for kind, alignment in aligned.items()
    }
    return Score(
        name=name,
        counts=counts[name],
        words=counts["WER"],
        characters=counts["CER"],
        normaliser=normaliser,
        normaliser_version=normalisation.version,
        reference=units.join(reference_units),
        hypothesis=units.join(hypothesis_units),
        alignment=_pieces(units, reference_units, hypothesis_units, aligned[name].alignments[0]),
    )


def rate_name(reference: str, normaliser: str = "basic") -> RateName:
    """Returns the name of the primary rate of a reference, as `score` has it for an empty hypothesis."""
    return _rate_name(find_normaliser(normaliser).function(reference))


def pool_scores(scores: Sequence[ErrorRates]) -> ErrorRates:
    """Returns the rates of several recordings as if they were one long recording.

    Errors and units are added up, so long recordings weigh more. Recordings with different primary rates pool to a MER:
    words and characters count as one unit each. Raises `BadInput` if there are no scores, or if they come from
    different normalisers.
    """
    if not scores:
        raise BadInput("there are no scores to pool; expected at least one recording with a reference")
    normalisers = sorted({(each.normaliser, each.normaliser_version) for each in scores})
    if len(normalisers) > 1:
        listed = ", ".join(f"{name} (version {version})" for name, version in normalisers)
        raise BadInput(f"scores of different normalisers cannot be pooled: {listed}")
    names = {each.name for each in scores if each.counts.reference_units} or {each.name for each in scores}
    return ErrorRates(
        name=names.pop() if len(names) == 1 else "MER",
        counts=sum((each.counts for each in scores), Counts()),
        words=sum((each.words for each in scores), Counts()),
        characters=sum((each.characters for each in scores), Counts()),
        normaliser=normalisers[0][0],
        normaliser_version=normalisers[0][1],
        recordings=sum(each.recordings for each in scores),
    )


def _rate_name(text: str) -> RateName:
    unspaced = any(is_unspaced(char) and char.isalnum() for char in text)
    # Letters only: digits inside a Chinese sentence do not make it bilingual.
    spaced = any(char.isalpha() and not is_unspaced(char) for char in text)
    return "WER" if not unspaced else "MER" if spaced else "CER"


def edits(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[Kind, int, int]]:
    """Yields the smallest number of edits (kind, place in `left`, place in `right`) that turn `left` into `right`.

    Equal units are left out. The place of an insertion in `left`, and of a deletion in `right`, is where it happens.
    """
    for chunk in _aligned(left, right).alignments[0]:
        if chunk.type == "equal":
            continue
        lengths = chunk.ref_end_idx - chunk.ref_start_idx, chunk.hyp_end_idx - chunk.hyp_start_idx
        for step in range(max(lengths)):
            places = [min(step, max(length - 1, 0)) for length in lengths]
            kind: Kind = chunk.type  # type: ignore[assignment,unused-ignore]  # jiwer says `str`
            yield kind, chunk.ref_start_idx + places[0], chunk.hyp_start_idx + places[1]


def _align(units: _Units, reference: str, hypothesis: str) -> WordOutput:
    return _aligned(units.split(reference), units.split(hypothesis))


def _aligned(left: Sequence[str], right: Sequence[str]) -> WordOutput:
    import jiwer

    split = jiwer.ReduceToListOfListOfWords(word_delimiter=_BREAK)
    return jiwer.process_words(_BREAK.join(left), _BREAK.join(right), split, split)


def _pieces(
    units: _Units, reference_units: list[str], hypothesis_units: list[str], chunks: Sequence[AlignmentChunk]
) -> tuple[Difference, ...]:
    pieces: list[Difference] = []
    for is_equal, group in groupby(chunks, key=lambda chunk: chunk.type == "equal"):
        block = list(group)
        left = reference_units[block[0].ref_start_idx : block[-1].ref_end_idx]
        right = hypothesis_units[block[0].hyp_start_idx : block[-1].hyp_end_idx]
        for reference, hypothesis in zip(left, right, strict=True) if is_equal else _pairs(left, right):
            kind: Kind = (
                "equal" if is_equal else "insert" if not reference else "substitute" if hypothesis else "delete"
            )
            separator = _separator(units, pieces[-1], reference, hypothesis) if pieces else ""
            pieces.append(Difference(kind, reference, hypothesis, separator))
    return tuple(pieces)


def _pairs(left: list[str], right: list[str]) -> list[tuple[str, str]]:
    """Returns pairs of units of two runs without a match. Surplus units of the longer run are paired with "".

    Any choice of the surplus costs the same number of edits, and an edit distance takes an arbitrary one. This choice
    pairs units that look alike, so that "three" stands over "tree" and not over its neighbour.
    """
    if len(left) > len(right):
        return [(left_unit, right_unit) for right_unit, left_unit in _pairs(right, left)]
    surplus = len(right) - len(left)
    if not surplus or not left or len(left) * (surplus + 1) > _PAIRING_LIMIT:
        return list(zip_longest(left, right, fillvalue=""))
    # best[k]: the similarity of the units paired so far, and their partners, if k units on the right stay unpaired.
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())] * (surplus + 1)
    for index, unit in enumerate(left):
        step = [
            (likeness + SequenceMatcher(None, unit, right[index + unpaired]).ratio(), (*partners, index + unpaired))
            for unpaired, (likeness, partners) in enumerate(best)
        ]
        best = step[:1]
        for path in step[1:]:
            best.append(path if path[0] > best[-1][0] else best[-1])
    partner = dict(zip(best[-1][1], left, strict=True))
    return [(partner.get(index, ""), unit) for index, unit in enumerate(right)]


def _separator(units: _Units, last: Difference, reference: str, hypothesis: str) -> str:
    """Returns a space if either text would have one between its units on both sides of the join."""
    lefts = [text for text in (last.reference, last.hypothesis) if text]
    rights = [text for text in (reference, hypothesis) if text]
    return max(units.separator(left, right) for left in lefts for right in rights)
