"""Decodes sound files with libsndfile, in blocks and to their true end. `read` decides which files come here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from workbench.audio import ffmpeg, ogg
from workbench.audio.mpeg import MPEG, to_its_end, within_wav
from workbench.audio.mpeg_frames import changes_form
from workbench.audio.muted import muted_stderr
from workbench.audio.refused import not_sound_error
from workbench.audio.stated_size import sign_of_cut
from workbench.audio.unread_rest import without_rest
from workbench.audio.unstated_size import with_stated_size
from workbench.audio.voc import has_several_blocks
from workbench.audio.wav_header import RepairedWav, WavLayout, shortfall_note

if TYPE_CHECKING:
    import soundfile

BLOCK = 1 << 18  # samples per channel decoded at a time: 16 s at 16 kHz
_CAREFUL_BLOCK = 1 << 10  # the same, after a read has failed
UNSTATED = 1 << 59  # frames; a stream without a stated length has more than this
HEADERLESS = "RAW"  # soundfile's name of files that it knows by the ending of their name: .au, .snd, .vox, .gsm
_SHORTFALL = 0.01  # seconds; compressed formats round the length in their header, so less than this is not a loss


def open_file(
    source: Path | BinaryIO, layout: WavLayout | None, mpeg: bool, notes: list[str]
) -> soundfile.SoundFile | None:
    """Returns the open file, and None if libsndfile refuses it, or would misread what ffmpeg reads whole.

    Args:
        layout: of a WAV file; wrong sizes in its header are corrected.
        mpeg: whether it may be MPEG audio, whose decoder writes to stderr.
        notes: gets a sentence about corrected sizes.
    """
    import soundfile

    repaired = layout if layout is not None and not layout.honest and layout.repairable else None
    view = RepairedWav(source, repaired) if repaired else with_stated_size(source) or without_rest(source)
    try:
        with muted_stderr(mpeg):
            file = soundfile.SoundFile(view or _by_bytes(source))
        if ffmpeg.ffmpeg_path() is not None and left_out(file.format, source):
            file.close()
            return None
        if is_mpeg(file) and layout is not None:
            file.close()
            file = within_wav(source, layout.data_offset, layout.data_offset + layout.present)
        elif file.format == MPEG:
            file = to_its_end(file, source)
    except (soundfile.LibsndfileError, TypeError):  # TypeError: a .raw file has no sample rate
        return None
    if repaired and repaired.misleading:
        notes.append(repaired.note(file.frames / file.samplerate if file.frames < UNSTATED else None))
    # After each read of a seekable file, soundfile seeks the place that was reached. In MPEG audio that changes the
    # next samples, in a damaged Ogg file it finds samples that were read before, and without a length it fails.
    file.seekable = lambda: False
    return file


def left_out(form: str, source: Path | BinaryIO) -> str:
    """Returns what libsndfile leaves out or misreads in a file of this format, without an error; empty if nothing."""
    if form == "OGG" and ogg.is_chain(source):
        return "it holds several streams one after another, and the first was read"
    if form == MPEG and changes_form(source):
        return "its sample rate or number of channels changes, and the part before the change was read"
    if form == "VOC" and has_several_blocks(source):
        return "it holds several blocks, and the headers between them were read as sound"
    return ""


def is_mpeg(file: soundfile.SoundFile) -> bool:
    """Returns whether a file holds MPEG audio, alone or in a WAV file; a seek there is not exact."""
    return file.subtype.startswith("MPEG_LAYER")


def _by_bytes(source: Path | BinaryIO) -> bytes | BinaryIO:
    """Returns a path as the file system has it, because a name need not be UTF-8."""
    return os.fsencode(source) if isinstance(source, Path) else source


def decoded_blocks(
    file: soundfile.SoundFile,
    reopen: Callable[[], soundfile.SoundFile | None],
    path: Path,
    head: bytes,
    notes: list[str],
) -> Iterator[np.ndarray]:
    """Yields the blocks of a file, float32 [samples, channels]. If the decoder fails part-way, the blocks end there.

    Args:
        reopen: opens the file once more; None if that fails.
        head: the first bytes of the file.
        notes: gets a sentence if samples are missing.

    Raises `BadInput` if nothing can be decoded.
    """
    import soundfile

    promised, rate, got, reason = file.frames, file.samplerate, 0, ""
    known = promised < UNSTATED
    size = max(_CAREFUL_BLOCK, BLOCK // file.channels)
    moved = True  # the file is at the place to read from
    with contextlib.ExitStack() as opened_again:
        while True:
            try:
                with muted_stderr(is_mpeg(file)):
                    if not moved:
                        _skip(file, got)
                        moved = True
                    # Not beyond the stated end, because a tag may follow, which is no sound.
                    block = file.read(min(size, promised - got), dtype="float32", always_2d=True)
            except soundfile.LibsndfileError as error:
                reason = reason or error.error_string.removeprefix("Error :").strip().rstrip(".")
                if size == _CAREFUL_BLOCK:
                    break
                # A failed read loses its whole block, and a decoder that has failed may not seek any more.
                size = _CAREFUL_BLOCK
                if (fresh := reopen()) is None:
                    break
                file, moved = opened_again.enter_context(fresh), False
                continue
            if len(block) == 0:
                break
            got += len(block)
            yield block
    if got == 0 and reason:
        raise not_sound_error(path.name, head)
    decoded, stated = got / rate, promised / rate
    if reason:
        notes.append(
            f"decoding stopped early ({reason}): {f'of {stated:.1f} s, ' if known else ''}{decoded:.1f} s were read"
        )
    elif known and (promised - got) / rate > _SHORTFALL:
        notes.append(shortfall_note(stated, decoded))
    elif part := left_out(file.format, path):
        notes.append(f"{part}; install ffmpeg to read the whole file")
    elif sign := ogg.sign_of_damage(path) or sign_of_cut(path):
        notes.append(f"the file is cut or damaged ({sign}); what could be decoded was read")


def _skip(file: soundfile.SoundFile, count: int) -> None:
    """Moves a file that was just opened to the sample with this number."""
    while count and len(block := file.read(min(count, BLOCK), dtype="float32", always_2d=True)):
        count -= len(block)


def whole_of(file: soundfile.SoundFile) -> np.ndarray:
    """Returns all samples, float32 [samples, channels], of an open file that may state no length."""
    blocks = [np.empty((0, file.channels), dtype=np.float32)]
    while len(block := file.read(BLOCK, dtype="float32", always_2d=True)):
        blocks.append(block)
    return np.concatenate(blocks)
