"""The layout of VCTK: the recording wav48/p225/p225_001.wav has its text in txt/p225/p225_001.txt.

Since version 0.92 there are two microphones, wav48_silence_trimmed/p225/p225_001_mic1.flac and _mic2.flac. They heard
the same words, so only the first one counts, or the second one where there is no first.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_RECORDING = re.compile(
    r"(?P<corpus>(?:.*/)?)wav48[^/]*/(?P<speaker>[^/]+)/(?P<name>[^/]+?)(?P<microphone>_mic[12])?", re.DOTALL
)


def transcript_of(stem: str) -> str | None:
    """Returns the name of the transcript that belongs to a recording of VCTK without ending; None for others."""
    found = _RECORDING.fullmatch(stem)
    return found and f"{found['corpus']}txt/{found['speaker']}/{found['name']}.txt"


def speaker_of(stem: str) -> str | None:
    """Returns the speaker of a recording of VCTK without ending; None for others."""
    found = _RECORDING.fullmatch(stem)
    return found and found["speaker"]


def second_microphones(stems: Sequence[str], names: Collection[str]) -> set[str]:
    """Returns the recordings without endings that the first microphone has too, with a transcript among the names."""
    there = {*stems}
    return {
        stem
        for stem in stems
        if stem.endswith("_mic2")
        and stem.removesuffix("2") + "1" in there
        and (transcript := transcript_of(stem)) is not None
        and transcript in names
    }
