"""The time of each view of the Visualise tab: seconds of the processors and on the clock, with the model loaded.

    python -m benchmarks.visualise_views --models demo/sensevoice --runtimes pytorch,gguf --views lens,gradient

Each view is computed from nothing, as for a new recording, after one view of the same recording that is not counted.
"session" is the process of the model, "here" that of the page or command; "send" makes the arrays for the browser,
"draw" a PNG. GGUF files are f32. As on the page, sessions start from prepared processes; the view quantisation opens
four, whose work counts on the clock alone, and its GGUF files exist already if it is measured a second time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import psutil

from panels.visualise.parcel import parcel
from workbench.core.errors import BadInput, Unavailable
from workbench.prepared.pool import prepared_processes
from workbench.registry.registry import Registry
from workbench.visualise.run import picture_of
from workbench.visualise.scene import Scene
from workbench.visualise.views import VIEWS, available

MODELS = "demo/sensevoice,demo/paraformer,demo/funasr-nano,demo/fireredasr,demo/speechlm"
LONGEST = "assets/samples/long_digits.wav"
WARM_UP = "filterbank"
SETTINGS = {"gguf": {"quantization": "f32"}}


def rows(model: str, runtime: str, views: list[str], recording: str) -> Iterator[tuple[str, ...]]:
    """Yields (model, runtime, view, and seconds), or an error in place of the seconds; a row for each view."""
    with Registry() as registry, registry.open(model, runtime, **SETTINGS.get(runtime, {})) as session:
        card, missing = registry.card(model), available(registry, model, runtime)
        page, process = psutil.Process(), psutil.Process(session.pid)
        for number, view in enumerate((WARM_UP, *views)):
            if missing[view]:
                continue
            started, here, there = time.perf_counter(), _spent(page), _spent(process)
            try:
                picture = picture_of(Scene(session, card, recording, None, registry), view)
            except (BadInput, Unavailable) as error:
                yield model, runtime, view, str(error)
                continue
            clock, computed, in_session = time.perf_counter() - started, _spent(page), _spent(process)
            parcel([picture], [picture.title])
            sent = _spent(page)
            picture.render("png")
            seconds = (in_session - there, computed - here, sent - computed, _spent(page) - sent, clock)
            if number:
                yield model, runtime, view, *(f"{value:.2f}" for value in seconds)


def _spent(process: psutil.Process) -> float:
    """Returns the processors' seconds of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--runtimes", default="pytorch,gguf")
    parser.add_argument("--views", default=",".join(VIEWS))
    parser.add_argument("--recording", default=LONGEST)
    options = parser.parse_args()
    columns = ("model", "runtime", "view", "session", "here", "send", "draw", "clock")
    print(f"| {' | '.join(columns)} |\n{'| --- ' * len(columns)}|")
    with prepared_processes(early=True):
        for model in options.models.split(","):
            for runtime in options.runtimes.split(","):
                for row in rows(model, runtime, options.views.split(","), options.recording):
                    print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
