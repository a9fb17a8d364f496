"""The lists of AISHELL-1, AISHELL-2 and AISHELL-3."""

from __future__ import annotations

import re
from collections.abc import Iterator

from workbench.evaluation.manifests.layouts.transcript_list import Line, TranscriptList, in_any_folder
from workbench.evaluation.manifests.named_values import named_values

SPEAKERS = (
    re.compile(r"BAC[0-9]+(S[0-9]+)W[0-9]+"),  # AISHELL-1: BAC009S0764W0121
    re.compile(r"[A-Z]([A-Z][0-9]{4})W[0-9]+"),  # AISHELL-2: IC0001W0001, the device before the speaker
    re.compile(r"(SSB[0-9]{4})[0-9]{4}"),  # AISHELL-3: SSB00050001
)
_SYLLABLE = re.compile(r"[A-Za-z:ü]+[0-9]?")


def speaker_of(name: str) -> str | None:
    """Returns the speaker of a recording by its name without ending, or None."""
    matches = (pattern.fullmatch(name) for pattern in SPEAKERS)
    return next((match[1] for match in matches if match), None)


def _plain(content: bytes, name: str) -> Iterator[Line]:
    for number, recording, text in named_values(content, name):
        yield number, recording, text, None


def _without_pinyin(content: bytes, name: str) -> Iterator[Line]:
    """Yields the lines of AISHELL-3, which has the syllable after each character: `广 guang3 州 zhou1`."""
    for number, recording, text in named_values(content, name):
        characters, syllables = text.split()[::2], text.split()[1::2]
        alternate = len(characters) == len(syllables) and all(map(_SYLLABLE.fullmatch, syllables))
        yield number, recording, "".join(characters) if alternate else None, None


AISHELL_1 = TranscriptList(in_any_folder(r"(?i:[^/]*transcript[^/]*\.txt)"), _plain)
"""AISHELL-1's aishell_transcript_v0.8.txt; also MLS's transcripts.txt."""
AISHELL_2 = TranscriptList(in_any_folder(r"trans\.txt"), _plain)
AISHELL_3 = TranscriptList(in_any_folder(r"content\.txt"), _without_pinyin)
