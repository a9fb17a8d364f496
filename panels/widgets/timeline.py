"""The timeline of recordings: what the server sends to the browser, and what it keeps.

The component's value names recordings by keys; assets/timeline draws them from the addresses in `timeline_routes`. A
recording is opened, and its overview computed in a thread, when a browser first asks for it.
"""

from __future__ import annotations

import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gradio as gr

from panels.widgets.html_block import html_block
from panels.widgets.templates import render
from workbench.audio.overview import Overview
from workbench.audio.track import Track, open_track
from workbench.core.errors import BadInput, WorkbenchError
from workbench.registry.sources import assets

MAX_KEYS = 4096  # recordings that can be asked for; each takes some hundred bytes
MAX_OPEN = 12  # recordings with an open file and an overview in memory, 3 MB for 2 hours
PASSES_AT_ONCE = 2
NOT_ON_SERVER = "this recording is not on the server any more; add it again"


@dataclass
class Opened:
    """A recording that is looked at. `ready` is set once it is open, or has an error."""

    path: str
    ready: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)
    overview: Overview | None = None
    error: str = ""

    def found(self, patience: float | None = 60.0) -> Overview:
        """Returns the overview, waiting until the recording is open; raises `BadInput` if it cannot be."""
        if not self.ready.wait(patience):
            raise BadInput("the recording is still being decoded; try again in a moment")
        if self.overview is None:
            raise BadInput(self.error)
        return self.overview

    def close(self) -> None:
        """Stops computing the overview, and closes the file."""
        self.stop.set()
        if self.overview is not None:
            self.overview.track.close()


class Timelines:
    """The recordings that users of the page look at, by keys that only those users have."""

    def __init__(self) -> None:
        self._paths: OrderedDict[str, str] = OrderedDict()  # paths by key
        self._keys: dict[str, str] = {}  # keys by path
        self._opened: OrderedDict[str, Opened] = OrderedDict()  # by path; the last used one last
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(PASSES_AT_ONCE)

    def key(self, path: str) -> str:
        """Returns the key of a recording."""
        with self._lock:
            if path not in self._keys:
                self._keys[path] = secrets.token_urlsafe(12)
            key = self._keys[path]
            self._paths[key] = path
            self._paths.move_to_end(key)
            while len(self._paths) > MAX_KEYS:
                del self._keys[self._paths.popitem(last=False)[1]]
            return key

    def of(self, key: str) -> Opened:
        """Returns the recording, and begins to open it if it is not open; raises `BadInput` for an unknown key."""
        closed: list[Opened] = []
        with self._lock:
            path = self._paths.get(key)
            if path is None:
                raise BadInput(NOT_ON_SERVER)
            self._paths.move_to_end(key)
            found = self._opened.get(path)
            if found is None:
                found = self._opened[path] = Opened(path)
                threading.Thread(target=self._open, args=(found,), daemon=True, name="timeline").start()
            self._opened.move_to_end(path)
            while len(self._opened) > MAX_OPEN:
                closed.append(self._opened.popitem(last=False)[1])
        for each in closed:
            each.close()
        return found

    def close(self) -> None:
        """Closes all files."""
        with self._lock:
            opened, self._opened = list(self._opened.values()), OrderedDict()
        for each in opened:
            each.close()

    def _open(self, recording: Opened) -> None:
        with self._slots:
            track: Track | None = None
            try:
                if not recording.stop.is_set():
                    track = open_track(recording.path)
                    recording.overview = Overview(track)
            except WorkbenchError as error:
                recording.error = str(error)
            except Exception as error:
                reason = getattr(error, "strerror", None) or error  # without the place on the server
                recording.error = f"{Path(recording.path).name} cannot be shown: {reason}"
            finally:
                recording.ready.set()
            if recording.overview is not None:
                recording.overview.run(recording.stop)
            if track is not None and recording.stop.is_set():
                track.close()


def timeline(elem_id: str, **settings: Any) -> gr.HTML:
    """Returns the component. Its value comes from `timeline_value`; it triggers `open` with the key of a lane whose
    name is pressed.
    """
    script = (assets() / "timeline" / "start.js").read_text(encoding="utf-8")
    return gr.HTML(
        None,
        html_template='<div class="timeline-place"></div>',
        js_on_load=script,
        apply_default_css=False,
        elem_id=elem_id,
        **settings,
    )


def timeline_beside(elem_id: str) -> gr.HTML:
    """Returns the place where the timeline of that id stands on a phone until there is a transcript."""
    return html_block(render("widgets/parts.html", "timeline_beside", elem_id))


def timeline_value(
    timelines: Timelines, paths: Iterable[str], lanes: Mapping[str, Sequence[dict[str, Any]]] = {}, active: str = ""
) -> dict[str, Any]:
    """Returns the value that shows these recordings.

    Args:
        lanes: by path, as `panels.transcribe.lanes.lanes_of` makes them; recordings that have some are shown even if
            `paths` lacks them.
        active: the key of the lane that the user edits; its recording is shown.
    """
    listed = list(dict.fromkeys([*paths, *lanes]))
    names, tracks = Counter[str](), []
    for path in listed:
        name = Path(path).name
        names[name] += 1
        label = name if names[name] == 1 else f"{name} ({names[name]})"
        tracks.append({"key": timelines.key(path), "name": label, "lanes": list(lanes.get(path, ()))})
    return {"tracks": tracks, "active": active}
