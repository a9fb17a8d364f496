"""Audio and pictures of a recording: segments as files, waveform and filter bank as pictures.

It decodes recordings and caches a few of them. It knows neither Gradio nor the recordings' origin.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from panels.widgets.figures import picture
from panels.widgets.markup import seconds
from workbench.core.errors import BadInput

if TYPE_CHECKING:
    from workbench.audio.read import Recording

# Of decoded audio, so that several clicks on the segments of one recording decode it once.
CACHED_BYTES = 256 << 20
CLIP_SECONDS = 600.0  # lifetime of a segment's file; the browser has its own copy by then
PICTURE_SECONDS = 900.0  # of the recording; more would not be visible, and takes long to compute


class Sounds:
    """Recordings as samples, and segments of them as files; shared by all users of the page."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="workbench-clips-", ignore_cleanup_errors=True)
        self._cache: OrderedDict[str, Recording] = OrderedDict()
        self._lock = threading.Lock()

    def recording(self, path: str) -> Recording:
        """Returns the recording at that path from a cache of decoded ones. Raises `BadInput` for a broken file."""
        from workbench.audio.read import read

        with self._lock:
            if path in self._cache:
                self._cache.move_to_end(path)
                return self._cache[path]
        found = read(path)
        with self._lock:
            self._cache[path] = found
            while len(self._cache) > 1 and sum(each.samples.nbytes for each in self._cache.values()) > CACHED_BYTES:
                self._cache.popitem(last=False)
        return found

    def clip(self, path: str, start: float, end: float) -> str:
        """Returns the path of a 16-bit WAV file with that segment of the recording, in seconds; it exists for some
        minutes.
        """
        from workbench.audio.read import write_wav

        recording = self.recording(path)
        if start >= recording.seconds:
            raise BadInput(f"the segment starts at {start:g} s, and the recording ends at {recording.seconds:.2f} s")
        folder = Path(self._folder.name)
        for old in folder.glob("*.wav"):
            if time.time() - old.stat().st_mtime > CLIP_SECONDS:
                old.unlink(missing_ok=True)
        with tempfile.NamedTemporaryFile(
            prefix=f"{start:.2f}-{end:.2f}-", suffix=".wav", dir=folder, delete=False
        ) as file:
            write_wav(file.name, recording.samples, start, min(end, recording.seconds))
        return file.name

    def close(self) -> None:
        """Deletes the files."""
        self._folder.cleanup()


def pictures_html(sounds: Sounds, path: str, segments: Sequence[tuple[float, float, str]]) -> str:
    """Returns waveform with shaded segments (start, end, text) and filter bank, each for wide and narrow screens."""
    from workbench.audio.fbank import fbank
    from workbench.plots.filterbank import filterbank_figure
    from workbench.plots.waveform import waveform_figure

    recording, name = sounds.recording(path), Path(path).name
    rate = recording.sample_rate
    samples = recording.samples[: round(PICTURE_SECONDS * rate)]
    shown = [(start, min(end, PICTURE_SECONDS), said) for start, end, said in segments if start < PICTURE_SECONDS]
    voiced = [(start, end) for start, end, _ in shown]
    features = fbank(samples)
    part = f", first {seconds(PICTURE_SECONDS)}" if len(samples) < len(recording.samples) else ""
    listed = "; ".join(f"{said}, {seconds(start)} to {seconds(end)}" for start, end, said in shown[:12])
    return picture(
        f"Waveform, segments shaded{part}",
        f"Waveform of {name}. Segments: {listed or 'none'}.",
        lambda width, height: waveform_figure(samples, rate, voiced, shown, width, height),
        (2.0, 1.7),
    ) + picture(
        f"Filter bank, 80 mel bands{part}",
        f"Log-mel filter bank of {name}: time along, 80 mel bands up.",
        lambda width, height: filterbank_figure(features, width=width, height=height),
        (2.4, 2.0),
    )
