"""Reads recordings or their segments from files, archives and addresses of fsspec.

An utterance's `audio` is a path relative to the root of its manifest, a path through an archive such as
`clips.zip/a.wav` or `shards/000.tar/a.flac`, a row of a Parquet file such as `test.parquet/17`, or an address such as
`s3://bucket/a.wav`. Recordings at an address are
read from there and not copied to the disk. A root may be a folder, an archive or an address.
"""

from __future__ import annotations

import contextlib
import functools
import io
import lzma
import posixpath
import tarfile
import tempfile
import unicodedata
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

import numpy as np

from workbench.audio.libsndfile import UNSTATED, whole_of
from workbench.audio.mixing import Mixer
from workbench.audio.read import opened, opened_stream, read
from workbench.core.errors import BadInput, Unavailable, WorkbenchError, message_of
from workbench.evaluation.addresses import is_address, opened_address, without_query
from workbench.evaluation.parquet_sounds import PARQUET, SoundTable
from workbench.evaluation.rows import Utterance
from workbench.formats.tar_files import opened_tar
from workbench.formats.zip_names import named_members
from workbench.session.values import AudioSource

if TYPE_CHECKING:
    import soundfile

SOUNDS = frozenset(
    (".wav", ".flac", ".ogg", ".opus", ".mp3", ".m4a", ".aac", ".aiff", ".aif", ".au", ".wma", ".mp4", ".webm", ".amr")
    + (".sph", ".w64", ".caf")
)
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
MAX_OPEN = 8  # archives that stay open, with the lists of their members
DAMAGE = (zipfile.BadZipFile, tarfile.TarError, EOFError, NotImplementedError, zlib.error, lzma.LZMAError)
_FORMS: tuple[Literal["", "NFD", "NFC"], ...] = ("", "NFD", "NFC")  # of a name: as it is, and two of Unicode
SHORTFALL = 0.05  # seconds; because of rounding, a recording may end this much earlier than its manifest says


def place_of(root: str, audio: str) -> str:
    """Returns the whole path or address of a recording."""
    if is_address(audio) or audio.startswith("/") or not root:
        return audio
    return f"{root.rstrip('/')}/{audio}"


class Recordings:
    """Reads recordings below one root, and keeps their archives open. Its calls come from one thread."""

    def __init__(self, root: str):
        self.root = root
        self._archives: OrderedDict[str, _Archive | SoundTable] = OrderedDict()
        self._reached: dict[str, str] = {}  # by host: a place there that could be read

    def source(self, utterance: Utterance) -> AudioSource:
        """Returns the input of a session: the path of a whole file, or the samples of a segment with their rate.

        Raises `BadInput` or `Unavailable`, in one sentence, if there is no such sound.
        """
        place = place_of(self.root, utterance.audio)
        source = self._source(place, utterance)
        self._reached[_host(place)] = place
        return source

    def is_at_fault(self, utterance: Utterance) -> bool | None:
        """Returns True if an unreachable recording is itself at fault, because other places can be reached.

        Returns None if no other place is known.
        """
        host = _host(place_of(self.root, utterance.audio))
        reached_place = self._reached.get(host)
        if reached_place is None:
            return True if self._reached else None
        try:
            with opened_address(_divided(reached_place)[0] or reached_place) as file:
                file.read(1)
        except Exception:  # each kind has errors of its own
            return False
        return True

    def _source(self, place: str, utterance: Utterance) -> AudioSource:
        archive, member = _divided(place)
        is_whole_file = not utterance.offset and utterance.duration is None and utterance.channel is None
        if member:
            name = PurePosixPath(member).name
            if member.isdecimal() and archive.lower().endswith(PARQUET):
                name = f"row {member} of {PurePosixPath(archive).name}"
            return _segment(self._archive(archive).open(member), name, utterance)
        if is_address(place):
            with opened_address(place) as file:
                watched = _Watched(file)
                sound = cast(BinaryIO, watched) if _seeks(file) else io.BytesIO(watched.read())
                try:
                    source = _segment(sound, PurePosixPath(without_query(place)).name, utterance)
                except BadInput:
                    watched.check(place)
                    raise
                watched.check(place)
                return source
        place = _existing_path(self.root, utterance.audio)
        if is_whole_file:
            return place
        return _segment(Path(place), PurePosixPath(place).name, utterance)

    def _archive(self, path: str) -> _Archive | SoundTable:
        if path not in self._archives:
            kind = SoundTable if path.lower().endswith(PARQUET) else _Archive
            self._archives[path] = kind(path, self._named(path))
            while len(self._archives) > MAX_OPEN:
                self._archives.popitem(last=False)[1].close()
        self._archives.move_to_end(path)
        return self._archives[path]

    def _named(self, path: str) -> str:
        """Returns a path for messages: without the root, whose place on the server visitors of a page do not know."""
        root = self.root.rstrip("/")
        return PurePosixPath(path).name if path == root else path.removeprefix(f"{root}/")

    def close(self) -> None:
        """Closes the archives."""
        for each in self._archives.values():
            each.close()
        self._archives.clear()


class _Archive:
    """An archive that stays open, so that its members are listed only once."""

    def __init__(self, path: str, name: str):
        self.path, self.name = path, f"{name:.200}"
        self._container: Any
        with _archive_errors(path, self.name, f"the archive {self.name}"):
            self._file = opened_address(path) if is_address(path) else _file(path)
            if path.lower().endswith(".zip"):
                self._container = zipfile.ZipFile(self._file)
                self._members: dict[str, Any] = {
                    posixpath.normpath(each.filename): each for each in named_members(self._container)
                }
            else:
                self._container = opened_tar(self._file)
                self._members = {posixpath.normpath(each.name): each for each in self._container if each.isfile()}

    @functools.cached_property
    def _composed_members(self) -> dict[str, Any]:
        """The members by their names with composed accents, which macOS decomposes."""
        return {unicodedata.normalize("NFC", name): member for name, member in self._members.items()}

    def open(self, member: str) -> BinaryIO:
        """Returns the bytes of a member as a file; raises `BadInput` if no member has that name."""
        info = self._members.get(member) or self._composed_members.get(unicodedata.normalize("NFC", member))
        if info is None:
            raise BadInput(f"the archive {self.name} has no member {member:.200}")
        with _archive_errors(self.path, self.name, f"{member:.200} in {self.name}"):
            file = (
                self._container.open(info)
                if isinstance(self._container, zipfile.ZipFile)
                else self._container.extractfile(info)
            )
            with file:
                return io.BytesIO(file.read())

    def close(self) -> None:
        self._container.close()
        self._file.close()


@contextlib.contextmanager
def _archive_errors(path: str, name: str, subject: str) -> Iterator[None]:
    """Raises `BadInput` for a missing or damaged archive, and `Unavailable` if its place cannot be reached."""
    try:
        yield
    except FileNotFoundError:
        raise BadInput(f"there is no archive {name}") from None
    except DAMAGE as error:
        raise BadInput(f"{subject} cannot be read: {message_of(error)}") from error
    except WorkbenchError:
        raise
    except Exception as error:  # each kind of address has errors of its own
        if needs_password(error):
            raise BadInput(f"{subject} needs a password; expected one without") from error
        kind = Unavailable if is_address(path) else BadInput
        raise kind(f"{subject} cannot be read: {message_of(error)}") from error


def needs_password(error: Exception) -> bool:
    """Returns whether this is the error of `zipfile` for a member that is encrypted."""
    return type(error) is RuntimeError and "password" in str(error)


class _Watched:
    """A file at an address. An error in the middle ends the file and is kept, because libsndfile cannot pass it on."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self._error: Exception | None = None

    def read(self, count: int = -1) -> bytes:
        try:
            return b"" if self._error else self._file.read(count)
        except Exception as error:  # each kind has errors of its own
            self._error = error
            return b""

    def seek(self, place: int, whence: int = 0) -> int:
        return self._file.seek(place, whence)

    def tell(self) -> int:
        return self._file.tell()

    def check(self, place: str) -> None:
        """Raises `Unavailable` if reading broke off."""
        if self._error is not None:
            raise Unavailable(f"{place:.200} breaks off: {message_of(self._error)}") from self._error


def _seeks(file: BinaryIO) -> bool:
    """Returns whether a file can be read at any place; some servers send whole files only."""
    try:
        file.seek(0, io.SEEK_END)
        file.seek(0)
    except (OSError, ValueError):
        return False
    return True


def _host(place: str) -> str:
    """Returns the kind and the host of an address, which can be unreachable as a whole; empty texts for paths."""
    kind, _, path = place.partition("://")
    return f"{kind}://{path.partition('/')[0]}" if path else ""


def _file(path: str) -> BinaryIO:
    return Path(path).open("rb")


def _is_folder(path: str) -> bool:
    with contextlib.suppress(OSError):  # such as for a name that is too long
        return Path(path).is_dir()
    return False


def _existing_path(root: str, audio: str) -> str:
    """Returns the path of a recording, also where its list composes accents otherwise than the name of its file.

    Raises `BadInput`, which names the path as the list has it, if there is no such file.
    """
    for form in _FORMS:
        place = place_of(root, unicodedata.normalize(form, audio) if form else audio)
        try:
            if _is_there(place):
                return place
        except OSError:
            return place  # the reader says what is wrong
    place = _by_parts(place_of(root, audio))
    if place:
        return place
    below = "" if audio.startswith("/") else " below the folder of the list"
    raise BadInput(f"there is no file {audio:.200}{below}")


def _is_there(place: str) -> bool:
    try:
        Path(place).stat()
    except (FileNotFoundError, UnicodeEncodeError):  # the latter: a name that no file of this system can have
        return False
    return True


def _by_parts(place: str) -> str:
    """Returns a path each of whose folders may compose its accents in its own way; an empty text if there is none."""
    prefix = ""
    for part in place.split("/"):
        forms = [prefix + (unicodedata.normalize(form, part) if form else part) for form in _FORMS]
        try:
            whole = next((each for each in forms if _is_there(each or "/")), None)
        except OSError:
            return ""
        if whole is None:
            return ""
        prefix = f"{whole}/"
    return prefix.removesuffix("/")


def _divided(place: str) -> tuple[str, str]:
    """Returns the archive that a path leads through and the path inside it; two empty texts if there is no archive."""
    parts = place.split("/")
    for number, part in enumerate(parts[:-1], 1):
        if part.lower().endswith((*ARCHIVES, PARQUET)):
            path = "/".join(parts[:number])
            if is_address(path) or not _is_folder(path):
                return path, "/".join(parts[number:])
    return "", ""


def _segment(file: Path | BinaryIO, name: str, utterance: Utterance) -> AudioSource:
    """Returns the samples of an utterance [n] or [n, channels] with their rate."""
    import soundfile

    sound = opened(file)[0] if isinstance(file, Path) else opened_stream(file)
    if sound is not None:
        try:
            with sound:
                return _read_from(sound, name, utterance)
        except (soundfile.LibsndfileError, RuntimeError):
            pass  # damaged; the rest of the workbench reads it as far as possible
    return _by_other_means(file, name, utterance)


def _read_from(sound: soundfile.SoundFile, name: str, utterance: Utterance) -> AudioSource:
    rate = sound.samplerate
    all_samples = whole_of(sound) if sound.frames >= UNSTATED else None
    length = sound.frames if all_samples is None else len(all_samples)
    first = round(utterance.offset * rate)
    _check_within(name, utterance, length / rate)
    if utterance.channel is not None and utterance.channel >= sound.channels:
        raise BadInput(
            f"{name:.200} has {sound.channels} channels, but channel {utterance.channel} is requested; expected 0 to "
            f"{sound.channels - 1}"
        )
    count = length - first if utterance.duration is None else round(utterance.duration * rate)
    if all_samples is not None:
        samples = all_samples[first : first + count]
    else:
        if first:
            sound.seek(first)
        samples = sound.read(count, dtype="float32", always_2d=True)
    return _chosen(samples, name, utterance), rate


def _chosen(samples: np.ndarray, name: str, utterance: Utterance) -> np.ndarray:
    """Returns the channel of an utterance, or the average of all channels; raises `BadInput` if these cancel out."""
    if utterance.channel is not None:
        channel: np.ndarray = samples[:, utterance.channel]
        return channel
    mixer = Mixer()
    average = mixer(samples)
    mixer.check(f"{name:.200}")
    return average


def _check_within(name: str, utterance: Utterance, seconds: float) -> None:
    if utterance.offset >= seconds:
        raise BadInput(f"{name:.200} is {seconds:.2f} s long, but a segment from {utterance.offset:g} s is requested")
    end = utterance.offset + (utterance.duration or 0.0)
    if end > seconds + max(SHORTFALL, 0.01 * seconds):
        raise BadInput(f"{name:.200} is {seconds:.2f} s long, but a segment up to {end:g} s is requested")


def _by_other_means(file: Path | BinaryIO, name: str, utterance: Utterance) -> AudioSource:
    """Returns the samples of a file that libsndfile does not read."""
    if utterance.channel is not None:
        raise BadInput(f"{name:.200} is of a kind whose channels cannot be read one by one; expected WAV or FLAC")
    if isinstance(file, Path):
        recording = read(file)
    else:
        file.seek(0)
        ending = PurePosixPath(name).suffix
        with tempfile.NamedTemporaryFile(suffix=ending if ending.lower() in SOUNDS else "") as copy:
            copy.write(file.read())
            copy.flush()
            try:
                recording = read(copy.name)
            except WorkbenchError as error:
                raise BadInput(str(error).replace(Path(copy.name).name, name)) from error
    _check_within(name, utterance, recording.seconds)
    rate = recording.sample_rate
    first = round(utterance.offset * rate)
    last = None if utterance.duration is None else first + round(utterance.duration * rate)
    return recording.samples[first:last], rate
