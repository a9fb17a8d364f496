"""The list of MAGICDATA: a table with tabs, whose names are UtteranceID, SpeakerID and Transcription."""

from __future__ import annotations

import re
from collections.abc import Iterator

from workbench.evaluation.manifests.layouts.transcript_list import Line, TranscriptList, in_any_folder
from workbench.evaluation.manifests.named_values import decoded_lines

_HEADER = b"UtteranceID"
_MARKS = re.compile(r"\[(?:FIL|SPK)\]")  # a filler, and a noise of the speaker, which are no words


def _lines(content: bytes, name: str) -> Iterator[Line]:
    for number, line in enumerate(decoded_lines(content, name), 1):
        if not line.strip() or number == 1:
            continue
        recording, *rest = line.split("\t", 2)
        speaker, text = rest if len(rest) == 2 else (None, None)
        yield number, recording.strip(), text and _MARKS.sub("", text).strip(), speaker and speaker.strip()


MAGICDATA = TranscriptList(
    in_any_folder(r"TRANS\.txt"), _lines, lambda content: content.removeprefix(b"\xef\xbb\xbf").startswith(_HEADER)
)
