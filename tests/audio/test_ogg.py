"""Damaged Ogg files are detected; intact files of every form that programs write are not reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from workbench.audio.ogg import sign_of_damage
from workbench.audio.read import read

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
