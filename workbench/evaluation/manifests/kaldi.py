"""Manifests that are data directories of Kaldi."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.evaluation.manifests.corpus import Rows
from workbench.evaluation.manifests.layouts.aishell import speaker_of
from workbench.evaluation.manifests.named_values import named_values

KALDI = "wav.scp"  # the file that makes a folder a data directory of Kaldi
TEXT, SEGMENTS = "text", "segments"
AISHELL_2 = "trans.txt"  # where AISHELL-2 has the texts
# Kaldi's recipe for LibriSpeech writes `flac -c -d -s FILE |`.
_UNPACKS_FLAC = re.compile(r"""flac(?: +-[cds]+)+ +([^\s|&;<>()$`\\"'*?]+) *\|""")


def kaldi_rows(folder: Path) -> Rows:
    """Yields the utterances of a data directory: those of `segments` if that file exists, else those of `wav.scp`.

    Afterwards it yields what has no partner: texts without an utterance, and recordings without a segment.
    """
    recordings: dict[str, str] = {}
    is_aishell_2 = (folder / AISHELL_2).is_file() and not (folder / TEXT).is_file()
    of_texts = AISHELL_2 if is_aishell_2 else TEXT
    texts, repeated = _texts(folder / of_texts)
    speakers: dict[str, str | None] = {name: value for _, name, value in _table(folder / "utt2spk", required=False)}
    languages = {name: value for _, name, value in _table(folder / "utt2lang", required=False)}
    if is_aishell_2:
        speakers = {name: speaker_of(name) for name in texts} | speakers
    segmented = (folder / SEGMENTS).is_file()
    named: dict[str, str] = {}  # every recording that wav.scp names, and where
    for number, name, entry in _table(folder / KALDI):
        where, value = f"{KALDI}, line {number}", _path_of(entry)
        reason = _unusable(name, value)
        if reason:
            yield where, reason
        elif name in recordings:
            yield where, f"the recording {name!r:.80} appears there twice"
        else:
            recordings[name] = value
            if not segmented:
                yield where, _kaldi_row(name, value, texts, speakers, languages)
        named.setdefault(name, where)
    utterances = set() if segmented else {*named}
    if segmented:
        segmented_recordings = set()
        for number, name, value in _table(folder / SEGMENTS):
            where, fields = f"{SEGMENTS}, line {number}", value.split()
            utterances.add(name)
            segmented_recordings.update(fields[:1])
            if len(fields) not in (3, 4):
                yield where, f"it has {len(fields) + 1} fields; expected UTTERANCE RECORDING START END [CHANNEL]"
            elif fields[0] not in recordings:
                yield where, f"{KALDI} has no recording {fields[0]!r:.80} that can be used"
            else:
                row = _kaldi_row(name, recordings[fields[0]], texts, speakers, languages)
                end, channel = None if fields[2] == "-1" else fields[2], fields[3] if len(fields) == 4 else None
                yield where, {**row, "offset": fields[1], "end": end, "channel": channel}
        for name in [each for each in recordings if each not in segmented_recordings]:
            yield named[name], f"{SEGMENTS} has no segment of the recording {name!r:.80}"
    yield from repeated
    source = SEGMENTS if segmented else KALDI
    for name, (number, _) in texts.items():
        if name not in utterances:
            yield (
                f"{of_texts}, line {number}",
                f"{source} has no {name!r:.80}, so only the text of this utterance is there",
            )


def _texts(path: Path) -> tuple[dict[str, tuple[int, str]], list[tuple[str, str]]]:
    """Returns the line and the text of each utterance, and the lines that give an utterance a second text."""
    texts: dict[str, tuple[int, str]] = {}
    repeated = []
    for number, name, value in _table(path):
        if name in texts:
            repeated.append(
                (f"{path.name}, line {number}", f"the utterance {name!r:.80} has a text on line {texts[name][0]}")
            )
        else:
            texts[name] = number, value
    return texts, repeated


def _kaldi_row(
    name: str, audio: str, texts: dict[str, tuple[int, str]], speakers: dict[str, str | None], languages: dict[str, str]
) -> dict[str, object]:
    return {
        "id": name,
        "audio": audio,
        "text": texts[name][1] if name in texts else None,
        "speaker": speakers.get(name),
        "language": languages.get(name),
    }


def _path_of(entry: str) -> str:
    """Returns the FLAC file that a command only unpacks; any other entry of `wav.scp` unchanged."""
    command = _UNPACKS_FLAC.fullmatch(entry)
    return command[1] if command else entry


def _unusable(name: str, value: str) -> str | None:
    if not value:
        return f"the recording {name!r:.80} has no path"
    if value.endswith("|"):
        return (
            f"the recording {name!r:.80} is the output of a command ({value[:60]!r}), which is not run; expected a file"
        )
    path, colon, position = value.rpartition(":")
    if colon and position.isdigit() and path.endswith(".ark"):
        return f"the recording {name!r:.80} is inside a Kaldi archive ({value[-60:]!r}); expected a sound file"
    return None


def _table(path: Path, required: bool = True) -> Iterator[tuple[int, str, str]]:
    """Yields the lines of a file in a data directory, as `named_values` does."""
    if not path.is_file():
        if required:
            raise BadInput(f"the Kaldi data directory {path.parent} has no file {path.name}; expected one")
        return
    yield from named_values(path.read_bytes(), str(path))
