"""Recordings in files, archives and at URLs: missing, forbidden, damaged or unreachable sources."""

from __future__ import annotations

import io
import threading
import unicodedata
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.support.sound_files import with_data_size, without_length
from workbench.audio.read import read
from workbench.core.errors import BadInput, Unavailable
from workbench.evaluation.manifests import read_manifest
from workbench.evaluation.places import Recordings
from workbench.evaluation.rows import Result, Utterance
from workbench.evaluation.worker import Worker

QUERY = "?X-Amz-Credential=a/b.c&X-Amz-Signature=" + 300 * "0"
LIST = f"audio,text\na.flac,one\nhttps://host/b.flac{QUERY},two\n".encode()
STATUS = {"gone": 404, "secret": 403, "busy": 429, "broken": 500}


def flac() -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.random.default_rng(0).uniform(-0.5, 0.5, 16000), 16000, format="FLAC")
    return file.getvalue()


class Shelf(BaseHTTPRequestHandler):
    """Answers by name: a status, a full recording, or one whose second half never comes."""

    sound = flac()

    def do_GET(self) -> None:
        name = self.path.strip("/").partition(".")[0]
        content = LIST if name == "list" else self.sound
        self.send_response(STATUS.get(name, 200))
        self.send_header("Content-Length", str(len(content) if name not in STATUS else 0))
        if name == "whole":
            self.send_header("Accept-Ranges", "none")
        self.end_headers()
        if name not in STATUS and self.command == "GET":
            self.wfile.write(content[: len(content) // 2 if name == "torn" else None])
            self.close_connection = True

    do_HEAD = do_GET

    def log_message(self, *words: Any) -> None:
        pass


@pytest.fixture(scope="module")
def shelf() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shelf)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_unreadable_url_raises_an_error_with_the_reason(shelf: str) -> None:
    recordings = Recordings("")
    dead = "http://127.0.0.1:1"  # a port without a listener
    for place, kind, reason in (
        (f"{shelf}/gone.flac", BadInput, "there is nothing at"),
        (f"{shelf}/secret.flac", BadInput, "may not be read: the server answers 403"),
        (f"{shelf}/busy.flac", Unavailable, "cannot be read: the server answers 429"),
        (f"{shelf}/broken.flac", Unavailable, "cannot be read: the server answers 500"),
        (f"{shelf}/torn.flac", Unavailable, "torn.flac breaks off"),
        (f"{dead}/a.flac", Unavailable, "a.flac cannot be read: "),
    ):
        with pytest.raises(kind, match=reason):
            recordings.source(Utterance("u", place, ""))
        assert recordings.is_at_fault(Utterance("u", place, "")) is None, "no recording of this host was read before"
    for name in ("a.flac", "whole.flac"):  # for the second, the server sends no parts of files
        assert len(read(recordings.source(Utterance("u", f"{shelf}/{name}", ""))).samples) == 16000
    for place in (f"{shelf}/torn.flac", f"{dead}/a.flac"):
        assert recordings.is_at_fault(Utterance("u", place, "")) is True
    recordings._reached[shelf] = f"{shelf}/gone.flac"  # a file that was readable before is gone
    assert recordings.is_at_fault(Utterance("u", f"{shelf}/torn.flac", "")) is False


def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    """A worker whose model computes nothing."""
    instance = Worker.__new__(Worker)
    instance.job, instance.name, instance.recordings = SimpleNamespace(key="m"), "w", Recordings("")  # type: ignore[assignment]
    instance._elsewhere = True
    monkeypatch.setattr(
        instance, "_transcribed", lambda good, sources, clock: [Result(e.id, "m", "heard") for e in good]
    )
    return instance


def test_unreachable_source_fails_its_recording_or_stops_the_worker(
    shelf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, torn, dead = (
        Utterance(name, place, "")
        for name, place in (
            ("good", f"{shelf}/a.flac"),
            ("torn", f"{shelf}/torn.flac"),
            ("dead", "http://127.0.0.1:1/a"),
        )
    )
    local_worker = worker(monkeypatch)
    with pytest.raises(Unavailable, match="cannot be read"):
        list(local_worker.results([dead, dead]))
    errors = {each.id: each.error for each in local_worker.results([dead, torn, good])}
    assert errors["good"] is None and "breaks off" in str(errors["torn"]) and "cannot be read" in str(errors["dead"])
    monkeypatch.setattr(Recordings, "is_at_fault", lambda self, utterance: False)  # now its host does not answer
    with pytest.raises(Unavailable, match="breaks off"):
        list(local_worker.results([torn]))


def test_query_of_a_url_is_no_part_of_a_name(shelf: str) -> None:
    """A signature is long, and may have slashes; the name of a list decides its format, that of sound a copy's name."""
    corpus = read_manifest(f"{shelf}/list.csv{QUERY}")
    assert (corpus.path, corpus.root, corpus.format) == (f"{shelf}/list.csv", shelf, "csv")
    assert [each.id for each in corpus.rows() if isinstance(each, Utterance)] == ["a", "https://host/b.flac"]
    recordings = Recordings(corpus.root)
    with pytest.raises(BadInput, match=r"^list\.csv is not a sound file that can be read"):
        recordings.source(Utterance("u", f"{shelf}/list.csv{QUERY}", ""))
    assert len(recordings.source(Utterance("u", f"{shelf}/a.flac{QUERY}", ""))[0]) == 16000


def test_recording_samples_are_equal_from_file_archive_and_segment(tmp_path: Path) -> None:
    sound = np.random.default_rng(0).uniform(-0.5, 0.5, (40_000, 2))
    for name in ("short.wav", "whole.flac", "piped.flac"):
        soundfile.write(tmp_path / name, sound, 16000)
    damaged = with_data_size((tmp_path / "short.wav").read_bytes(), 8000)
    (tmp_path / "short.wav").write_bytes(damaged)
    without_length(tmp_path / "piped.flac")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for path in sorted(tmp_path.glob("*.*a*")):
            if path.suffix != ".zip":
                archive.write(path, path.name)
    recordings = Recordings(str(tmp_path))
    for name in ("short.wav", "whole.flac", "piped.flac"):
        full = read(tmp_path / name)
        assert len(full.samples) == 40_000
        for audio in (name, f"a.zip/{name}"):
            source = recordings.source(Utterance("u", audio, "", duration=2.5))
            assert read(source).digest == full.digest
            segment = recordings.source(Utterance("u", audio, "", offset=1.0, duration=0.5, channel=1))
            assert np.abs(read(segment).samples - sound[16000:24000, 1]).max() < 1e-4
    recordings.close()
    with pytest.raises(BadInput, match=r"piped.flac is 2.50 s long, but a segment from 3 s is requested"):
        recordings.source(Utterance("u", "piped.flac", "", offset=3.0))


@pytest.mark.parametrize(("listed", "stored"), [("é한.wav", "NFD"), ("e\u0301.wav", "NFC"), ("é.wav", "NFC")])
def test_accents_of_a_file_may_be_composed_otherwise_than_in_the_list(tmp_path: Path, listed: str, stored: Any) -> None:
    name = unicodedata.normalize(stored, listed)
    soundfile.write(tmp_path / name, np.zeros(1600), 16000)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(tmp_path / name, name)
    recordings = Recordings(str(tmp_path))
    assert recordings.source(Utterance("u", listed, "")) == str(tmp_path / name)
    assert len(recordings.source(Utterance("u", f"a.zip/{listed}", ""))[0]) == 1600
    recordings.close()


def test_missing_recording_is_named_as_its_list_has_it(tmp_path: Path) -> None:
    recordings = Recordings(str(tmp_path))
    for duration in (None, 1.0):
        with pytest.raises(BadInput, match=r"there is no file s1/a\.wav below the folder of the list$"):
            recordings.source(Utterance("u", "s1/a.wav", "", duration=duration))
        with pytest.raises(BadInput, match=r"there is no file /no/such/a\.wav$"):
            recordings.source(Utterance("u", "/no/such/a.wav", "", duration=duration))
        with pytest.raises(BadInput, match="there is no file \ud800 below"):  # as 录 in a locale without Chinese
            recordings.source(Utterance("u", "\ud800", "", duration=duration))


def test_each_folder_of_a_path_may_compose_its_accents_in_its_own_way(tmp_path: Path) -> None:
    """A folder that was made here may hold files that were copied from macOS."""
    place = tmp_path / unicodedata.normalize("NFC", "été") / unicodedata.normalize("NFD", "é") / "a.wav"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"")
    for root, audio in ((str(tmp_path), "été/é/a.wav"), ("", f"{tmp_path}/été/é/a.wav")):
        assert Recordings(root).source(Utterance("u", unicodedata.normalize("NFC", audio), "")) == str(place)
    with pytest.raises(BadInput, match=r"there is no file été/b\.wav below the folder of the list"):
        Recordings(str(tmp_path)).source(Utterance("u", "été/b.wav", ""))


def test_messages_name_an_archive_without_the_folder_of_the_corpus(tmp_path: Path) -> None:
    """A visitor of a page sees them, and need not know where its server keeps uploads."""
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("a.wav", b"")
    for root, audio in ((tmp_path, "c.zip/b.wav"), (tmp_path / "c.zip", "b.wav"), (tmp_path, "d.zip/b.wav")):
        with pytest.raises(BadInput, match=r"archive [cd]\.zip") as caught:
            Recordings(str(root)).source(Utterance("u", audio, ""))
        assert str(tmp_path) not in str(caught.value)
