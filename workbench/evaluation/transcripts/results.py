"""Turns transcripts of another program into results: each belongs to the recording with its id or its path."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from workbench.artifacts.digests import Digests
from workbench.core.errors import BadInput
from workbench.core.phrases import counted
from workbench.evaluation.manifests.corpus import relative_to
from workbench.evaluation.models import DIGESTS, SEPARATOR
from workbench.evaluation.rows import Result, Utterance, scores_of
from workbench.evaluation.store import TRANSCRIPTS, Model
from workbench.evaluation.transcripts.files import FoundTranscript, read_transcripts
from workbench.evaluation.writer import Position, Writer, index_of
from workbench.system.user_cache import user_cache
from workbench.text.rates import score

MAX_NAME_CHARACTERS = 80


@dataclass(frozen=True)
class TranscriptFile:
    """The transcripts of one program."""

    model: Model  # as run.json has it; its key is the program's name
    path: Path
    transcripts: Sequence[FoundTranscript]


def transcript_files(files: Mapping[str, str | Path]) -> list[TranscriptFile]:
    """Reads files of transcripts by the name of the program.

    Raises `BadInput` for an impossible name and for a file that cannot be read.
    """
    return [_transcript_file(name, Path(path).expanduser()) for name, path in files.items()]


def _transcript_file(name: str, path: Path) -> TranscriptFile:
    if name != name.strip() or not 0 < len(name) <= MAX_NAME_CHARACTERS or not name.isprintable() or SEPARATOR in name:
        raise BadInput(
            f"the transcripts cannot be called {name!r:.100}; expected a name of at most {MAX_NAME_CHARACTERS} "
            f"characters without {SEPARATOR}, such as whisper"
        )
    transcripts = read_transcripts(path)
    digest = Digests(user_cache() / "evaluation" / DIGESTS).of_file(path)
    return TranscriptFile(Model(name, name, TRANSCRIPTS, None, {"file": path.name}, digest), path, transcripts)


@dataclass(frozen=True)
class MatchedTranscripts:
    """The transcripts of one program by the position of their recording in the corpus."""

    file: TranscriptFile
    by_position: Mapping[Position, FoundTranscript]

    @property
    def notes(self) -> list[str]:
        """A sentence on the transcripts of recordings that the corpus does not have, if there are any."""
        used = {id(each) for each in self.by_position.values()}
        others = [each for each in self.file.transcripts if id(each) not in used]
        if not others:
            return []
        belong = "belongs" if len(others) == 1 else "belong"
        return [
            f"{self.file.model.key}: {counted(len(others), 'transcript')} of {self.file.path.name} {belong} to no "
            f"recording of the corpus, such as {others[0].names[0]!r:.80} ({others[0].where})"
        ]


def match(files: Sequence[TranscriptFile], utterances: Path, root: str) -> list[MatchedTranscripts]:
    """Returns the recordings of the transcripts of each file.

    Args:
        utterances: the file with the corpus.
        root: the folder from which relative paths of recordings count.

    Raises `BadInput` if no transcript of a file belongs to a recording, or two belong to one.
    """
    if not files:
        return []
    recordings = _Recordings(utterances, root)
    return [MatchedTranscripts(file, _matched(file, recordings)) for file in files]


def _matched(file: TranscriptFile, recordings: _Recordings) -> dict[Position, FoundTranscript]:
    found: dict[Position, FoundTranscript] = {}
    for each in file.transcripts:
        position = recordings.position_of(each)
        if position is None:
            continue
        if position in found:
            raise BadInput(
                f"{each.where} has a transcript of {each.names[0]!r:.80}, and so has {found[position].where}; "
                "expected one for each recording"
            )
        found[position] = each
    if not found:
        raise BadInput(
            f"no transcript of {file.path.name} belongs to a recording of the corpus: the file has names such as "
            f"{file.transcripts[0].names[0]!r:.80}, and the corpus such as {recordings.first_id!r:.80}"
        )
    return found


def add_results(writer: Writer, matched: MatchedTranscripts, normaliser: str, limit: int | None) -> int:
    """Writes a result for each recording that has none yet, and returns their number.

    A recording without a transcript gets an error.

    Args:
        limit: only the first `limit` recordings.
    """
    key, name = matched.file.model.key, matched.file.path.name
    missing = set(writer.todo(key, limit))
    for position, utterance in enumerate(writer.corpus):
        if position not in missing:
            continue
        found = matched.by_position.get(position)
        if found is None:
            writer.add(Result(utterance.id, key, "", f"{name} has no transcript of it"))
            continue
        scores = scores_of(score(utterance.text, found.text, normaliser))
        seconds = utterance.duration or 0.0
        writer.add(Result(utterance.id, key, found.text, None, seconds, scores, words=found.words))
    return len(missing)


class _Recordings:
    """The recordings of a corpus by all names that a file of transcripts may give them. Args: as `match`'s."""

    def __init__(self, utterances: Path, root: str):
        corpus, self._by_id = index_of(utterances)
        self._root = root
        self.first_id = next(iter(self._by_id))
        self._by_name: dict[str, Position | None] = {}  # None: several recordings have this name
        for position, utterance in enumerate(corpus):
            for name in _names_of(utterance):
                self._by_name[name] = position if self._by_name.get(name, position) == position else None

    def position_of(self, transcript: FoundTranscript) -> Position | None:
        """Returns the position of a transcript's recording; None if the corpus has none."""
        places = (place for name in transcript.names for place in self._places_of(name))
        return next((place for place in places if place is not None), None)

    def _places_of(self, name: str) -> Iterator[Position | None]:
        """Yields the positions that a name may mean, the most exact one first."""
        yield self._by_id.get(name)
        for each in (name, relative_to(name, self._root), PurePosixPath(name).name):
            yield self._by_name.get(_folded(each))


def _names_of(utterance: Utterance) -> set[str]:
    path = PurePosixPath(utterance.audio)
    names = {utterance.id, utterance.audio, str(path.with_suffix("")), path.name, path.stem}
    names.add("_".join(path.stem.split()))  # a CTM has no spaces in a name
    # ESPnet's .trn has the speaker before the id, and the id twice if there are no speakers.
    names.add(f"{utterance.speaker or utterance.id}-{utterance.id}")
    return {_folded(name) for name in names if name}


def _folded(name: str) -> str:
    """Returns a name as sclite compares it, without capitals, and with its accents composed in one way."""
    return unicodedata.normalize("NFC", name).casefold()
