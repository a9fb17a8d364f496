"""Damaged Ogg files are detected; intact files of every form that programs write are not reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.support.sound_files import needs_ffmpeg
from workbench.audio import ffmpeg
from workbench.audio.ogg import sign_of_damage
from workbench.audio.read import read, samples_to_int16
from workbench.audio.track import open_track

RATE = 16_000
DAMAGED, CUT = "parts of it are damaged or missing", "its end is missing"


def ogg(subtype: str, path: Path) -> list[bytes]:
    """Returns the pages of ten seconds of noise."""
    soundfile.write(
        path, 0.1 * np.random.default_rng(0).standard_normal(10 * RATE), RATE, format="OGG", subtype=subtype
    )
    content = path.read_bytes()
    starts = [place for place in range(len(content)) if content.startswith(b"OggS", place)]
    pages = [content[start:end] for start, end in zip(starts, [*starts[1:], len(content)], strict=True)]
    assert len(pages) > 6
    return pages


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
@pytest.mark.parametrize(
    ("changed", "sign"),
    [
        (lambda pages: b"".join(pages), ""),
        (lambda pages: b"".join(pages) + b"TAG and more", ""),
        (lambda pages: b"".join(pages + pages), ""),  # a chain
        (lambda pages: b"".join(pages[:2] + pages[4:]), ""),  # recorded from a station whose stream started earlier
        (lambda pages: b"".join(pages[:-1]), CUT),
        (lambda pages: b"".join(pages)[:-10], CUT),
        (lambda pages: b"".join(pages[:-1]) + pages[-1][:20], CUT),
        (lambda pages: b"".join(pages[:4] + pages[5:]), DAMAGED),
        (lambda pages: b"".join([*pages[:4], pages[4][:200] + b"\xff" * 50 + pages[4][250:], *pages[5:]]), DAMAGED),
        (lambda pages: b"".join([*pages[:4], bytes(100_000), *pages[5:]]), DAMAGED),
    ],
)
def test_ogg_damage_is_detected(
    subtype: str, changed: Callable[[list[bytes]], bytes], sign: str, tmp_path: Path
) -> None:
    path = tmp_path / "noise.ogg"
    path.write_bytes(changed(ogg(subtype, path)))
    assert sign_of_damage(path) == sign


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_a_cut_file_is_read_with_a_note(subtype: str, tmp_path: Path) -> None:
    path = tmp_path / "cut.ogg"
    path.write_bytes(b"".join(ogg(subtype, path)[:-3]) + b"OggS")
    recording = read(path)
    assert 5 < recording.seconds < 10
    assert recording.notes == (f"the file is cut or damaged ({CUT}); what could be decoded was read",)


def chain(subtype: str, path: Path) -> bytes:
    """Returns two streams of ten seconds, one after the other, as a radio station sends songs."""
    return 2 * b"".join(ogg(subtype, path))


@needs_ffmpeg
@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_all_streams_of_a_chain_are_read(subtype: str, tmp_path: Path) -> None:
    path = tmp_path / "radio.ogg"
    path.write_bytes(chain(subtype, path))
    assert round(read(path).seconds, 1) == 20.0
    track = open_track(path)
    assert round(track.frames / track.rate, 1) == 20.0
    track.close()


def test_without_ffmpeg_a_note_says_that_a_chain_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffmpeg, "ffmpeg_path", lambda: None)
    path = tmp_path / "radio.ogg"
    path.write_bytes(chain("VORBIS", path))
    recording = read(path)
    assert recording.seconds == 10.0
    assert recording.notes == (
        "it holds several streams one after another, and the first was read; install ffmpeg to read the whole file",
    )


def test_a_damaged_file_has_the_same_times_in_its_track(tmp_path: Path) -> None:
    path = tmp_path / "damaged.ogg"
    pages = ogg("VORBIS", path)
    path.write_bytes(b"".join([*pages[:4], bytes(len(pages[4])), *pages[5:]]))
    recording, track = read(path), open_track(path)
    assert len(recording.samples) < 9.9 * RATE
    assert np.array_equal(track.read(0, 10 * RATE), samples_to_int16(recording.samples))
    track.close()


def test_samples_after_a_seek_equal_those_of_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "noise.ogg"
    ogg("VORBIS", path)
    whole, track = samples_to_int16(read(path).samples).astype(int), open_track(path)
    for first in range(0, 9 * RATE, 7919):
        assert np.abs(track.read(first, 500) - whole[first : first + 500]).max() <= 1
    track.close()


@pytest.mark.parametrize("lost", [65_532, 65_533, 65_534, 65_535, 65_536, 200_001])
def test_a_page_after_any_number_of_lost_bytes_is_found(lost: int, tmp_path: Path) -> None:
    """A page that crosses two pieces of the search still distinguishes damage from a truncated file."""
    path = tmp_path / "noise.ogg"
    pages = ogg("VORBIS", path)
    path.write_bytes(b"".join([*pages[:4], bytes(1 + lost), *pages[4:]]))
    assert sign_of_damage(path) == DAMAGED


def test_file_without_ogg_pages_reports_no_damage(tmp_path: Path) -> None:
    (tmp_path / "talk.wav").write_bytes(b"RIFF and more")
    assert sign_of_damage(tmp_path / "talk.wav") == ""
