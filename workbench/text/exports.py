"""Export formats of transcripts, as one table: text, subtitles (SubRip, WebVTT), JSON, CSV, TextGrid and CTM.

An entry has a title, a file extension and a function from transcripts to text. The functions return text and write no
file. This file knows no model and no user interface.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workbench.core.errors import BadInput
from workbench.session.values import Transcript
from workbench.text.annotations import write_ctm, write_textgrid
from workbench.text.subtitles import Cue, cues, segments_of

Writer = Callable[[Sequence[Transcript], Sequence[str]], str]

SPREADSHEET_ENCODING = "utf-8-sig"  # without a byte order mark, spreadsheets assume a legacy 8-bit encoding
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\n", "\r")
_ARROW = re.compile(r"--+>")


@dataclass(frozen=True)
class Format:
    """One export format. `writer` takes the transcripts and, if known, the names of their recordings."""

    title: str
    extension: str  # without the dot
    media_type: str
    several: bool  # whether one file can hold the transcripts of several recordings
    writer: Writer
    encoding: str = "utf-8"  # of a file; a terminal or a browser needs no byte order mark
    timed: bool = True  # whether its files hold times
    named: bool = False  # whether its files name the recording, also a single one

    def write(self, transcripts: Transcript | Sequence[Transcript], files: Sequence[str] = ()) -> str:
        """Returns the content of a file with one or several transcripts, in their order.

        `files` are the names of the recordings: one each, or none at all. Raises `BadInput` for several transcripts in
        a format whose files hold one.
        """
        listed = [transcripts] if isinstance(transcripts, Transcript) else list(transcripts)
        if files and len(files) != len(listed):
            raise BadInput(
                f"there are {len(files)} file names for {len(listed)} transcripts; expected one each or none"
            )
        if len(listed) > 1 and not self.several:
            holders = ", ".join(name for name, form in FORMATS.items() if form.several)
            raise BadInput(
                f"one .{self.extension} file holds one recording, and there are {len(listed)}; "
                f"expected one file each, or one of the formats {holders}"
            )
        return self.writer(listed, files)


def find_format(name: str) -> Format:
    """Returns the format of that name, with or without dot; `text` is txt. Raises `BadInput` for an unknown name."""
    ending = name.lower().removeprefix(".")
    try:
        return FORMATS["txt" if ending == "text" else ending]
    except KeyError:
        raise BadInput(f"there is no export format {name!r}; expected one of {', '.join(FORMATS)}") from None


def write_txt(transcripts: Sequence[Transcript], files: Sequence[str] = ()) -> str:
    """Returns one transcript as its text, several as one line each."""
    if len(transcripts) == 1:
        text = transcripts[0].text.strip()
        return f"{text}\n" if text else ""
    return "".join(" ".join(transcript.text.split()) + "\n" for transcript in transcripts)


def write_srt(transcripts: Sequence[Transcript], files: Sequence[str] = ()) -> str:
    """Returns SubRip: numbered cues with times as 00:00:01,500.

    The format has no escapes. `-->` would be read as a time line, so it becomes `->`, also with more hyphens; all other
    text stays unchanged.
    """
    blocks = []
    for number, cue in enumerate(_cues(transcripts), 1):
        text = _ARROW.sub("->", "\n".join(cue.lines))
        blocks.append(f"{number}\n{_clock(cue.start_ms, ',')} --> {_clock(cue.end_ms, ',')}\n{text}\n")
    return "\n".join(blocks)


def write_vtt(transcripts: Sequence[Transcript], files: Sequence[str] = ()) -> str:
    """Returns WebVTT (W3C), with `&`, `<` and `>` escaped as the standard demands; without cues, the header alone."""
    blocks = ["WEBVTT\n"]
    for cue in _cues(transcripts):
        text = "\n".join(cue.lines).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        blocks.append(f"{_clock(cue.start_ms, '.')} --> {_clock(cue.end_ms, '.')}\n{text}\n")
    return "\n".join(blocks)


def write_json(transcripts: Sequence[Transcript], files: Sequence[str] = ()) -> str:
    """Returns one JSON object per line and transcript: `file` (if known), then all fields of the transcript."""
    named = [{"file": name} for name in files] or [{}] * len(transcripts)
    objects = ({**name, **each.to_dict()} for name, each in zip(named, transcripts, strict=True))
    return "".join(json.dumps(each, ensure_ascii=False, allow_nan=False) + "\n" for each in objects)


def write_csv(transcripts: Sequence[Transcript], files: Sequence[str] = ()) -> str:
    """Returns one row per segment under one header: model, runtime, file (if known), start, end (seconds), text.

    A text that begins with `=`, `+`, `-`, `@`, a tab or a line break gets an apostrophe in front, so that no
    spreadsheet runs it as a formula. A program that reads such a file removes the apostrophe.
    """
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["model", "runtime", *(["file"] if files else []), "start", "end", "text"])
    for index, transcript in enumerate(transcripts):
        who = [transcript.model, transcript.runtime, *([files[index]] if files else [])]
        for segment in segments_of(transcript):
            times = [f"{segment.start:.3f}", f"{segment.end:.3f}"]
            table.writerow([*map(_cell, who), *times, _cell(segment.text)])
    return out.getvalue()


def spreadsheet_cell(text: str) -> str:
    """Returns a text as a cell of a CSV file, behind an apostrophe if a spreadsheet would run it as a formula."""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


FORMATS = {
    "txt": Format("Plain text", "txt", "text/plain", True, write_txt, timed=False),
    "srt": Format("Subtitles, SubRip", "srt", "application/x-subrip", False, write_srt),
    "vtt": Format("Subtitles, WebVTT", "vtt", "text/vtt", False, write_vtt),
    "json": Format("JSON, one object per recording", "json", "application/json", True, write_json),
    "csv": Format("Table, CSV", "csv", "text/csv", True, write_csv, encoding=SPREADSHEET_ENCODING),
    "textgrid": Format("Annotation for Praat, TextGrid", "TextGrid", "text/plain", False, write_textgrid),
    "ctm": Format("Words with times, NIST CTM", "ctm", "text/plain", True, write_ctm, named=True),
}


def _cues(transcripts: Sequence[Transcript]) -> list[Cue]:
    return [cue for transcript in transcripts for cue in cues(segments_of(transcript))]


def _clock(milliseconds: int, decimal_mark: str) -> str:
    seconds, milliseconds = divmod(milliseconds, 1000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{decimal_mark}{milliseconds:03d}"


def _cell(text: str) -> str:
    # csv would leave a lone \r unquoted, and readers would end the row there.
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return spreadsheet_cell(text)
