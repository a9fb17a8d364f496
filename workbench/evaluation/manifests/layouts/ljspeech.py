"""The list of LJSpeech, and of the many corpora in its form: metadata.csv beside the folder wavs.

Each line has the name of a recording, its text, and mostly the text with numbers and abbreviations as words, separated
by bars. There is no line with names of columns, and quotation marks are marks like any other.
"""

from __future__ import annotations

from collections.abc import Iterator

from workbench.evaluation.manifests.corpus import COLUMNS
from workbench.evaluation.manifests.layouts.transcript_list import Line, TranscriptList, in_any_folder
from workbench.evaluation.manifests.named_values import decoded_lines

NAME = "metadata.csv"


def is_ljspeech(content: bytes) -> bool:
    """Returns whether a file begins with a row of two or three fields with bars between them, not with their names."""
    first = content.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].decode("utf-8", "replace")
    fields = [each.strip().lower() for each in first.split("|")]
    names = {*COLUMNS["audio"], *COLUMNS["id"]}
    return len(fields) in (2, 3) and "\t" not in first and bool(fields[0]) and fields[0] not in names


def _lines(content: bytes, name: str) -> Iterator[Line]:
    for number, line in enumerate(decoded_lines(content, name), 1):
        if not line.strip():
            continue
        recording, *texts = (each.strip() for each in line.split("|"))
        # The last one has numbers as words; some lists leave it empty.
        yield number, recording, (texts[-1] or texts[0]) if len(texts) in (1, 2) else None, None


LJSPEECH = TranscriptList(in_any_folder(r"metadata\.csv"), _lines, is_ljspeech)
