"""Files of NIST's form STM, as those of TED-LIUM: texts with times, several for each recording.

    AlGore_2009 1 Al_Gore 17.82 28.81 <o,f0,male> i 'd like to

The fields are the recording, its channel, the speaker, the first and the last second, maybe a label, and the words. In
TED-LIUM the recordings are in `sph` beside the folder `stm`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence

from workbench.evaluation.manifests.corpus import Rows
from workbench.evaluation.manifests.listing import composed
from workbench.evaluation.manifests.named_values import decoded_lines

ENDING = ".stm"
IGNORED = "ignore_time_segment_in_scoring"
_LINE = re.compile(r"(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)(?:\s+(<[^>\s]*[A-Z,][^>\s]*>))?(?:\s+(.*))?")
_CHANNELS = {"A": 0, "B": 1}
# Marks that are no words: {NOISE}, <sil> and <unk>, the number of a pronunciation, and at the end the segment's name.
_MARKS = re.compile(r"\{[A-Z]+\}|<[a-z]+>|(?<=\S)\([0-9]+\)|(?<!\S)\(\S*\)\s*$")


def stm_rows(name: str, content: bytes, by_name: Mapping[str, Sequence[str]]) -> Rows:
    """Yields the segments of a file; raises `BadInput` if it is not UTF-8.

    Args:
        by_name: the recordings, by their names without folders and endings, with composed accents.
    """
    for number, line in enumerate(decoded_lines(content, name), 1):
        where, line = f"{name}, line {number}", line.strip()
        if not line or line.startswith(";;"):
            continue
        fields = _LINE.fullmatch(line)
        if fields is None:
            yield where, "it has too few fields; expected RECORDING CHANNEL SPEAKER START END WORDS"
            continue
        recording, channel, speaker, start, end, _, words = fields.groups()
        if (words or "").strip().lower() == IGNORED:
            yield where, f"it is not to be scored ({IGNORED})"
            continue
        if "{" in _MARKS.sub("", words or ""):
            yield where, "it has alternatives in braces; expected the words that are said"
            continue
        paths = _nearest(by_name.get(composed(recording), ()), name)
        number_of_channel = int(channel) - 1 if channel.isdecimal() else _CHANNELS.get(channel.upper())
        if not paths:
            yield where, f"there is no recording {recording!r:.80}, only its text"
        elif len(paths) > 1:
            yield where, f"several recordings are called {recording!r:.80}: {paths[0]} and {paths[1]}; expected one"
        elif number_of_channel is None or number_of_channel < 0:
            yield where, f"its channel is {channel!r:.40}; expected 1 or 2, or A or B"
        else:
            row = {"audio": paths[0], "text": spoken(words or ""), "speaker": speaker, "channel": number_of_channel}
            yield where, {**row, "offset": start, "end": end}


def spoken(words: str) -> str:
    """Returns the words of a segment without marks; TED-LIUM writes `i 'd` for `i'd`."""
    return re.sub(r"(?<=\w) +'(?=\w)", "'", " ".join(_MARKS.sub("", words).split()))


def _nearest(recordings: Sequence[str], name: str) -> list[str]:
    """Returns the recordings that share the most folders with a file."""

    def shared(recording: str) -> int:
        return len(posixpath.commonpath([f"/{recording}", f"/{name}"]))

    most = max(map(shared, recordings), default=0)
    return [each for each in recordings if shared(each) == most]
