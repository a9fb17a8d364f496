"""How long a short recording waits for a long one of another visitor: `python -m benchmarks.short_beside_long`.

One visitor sends a recording of ten minutes; while a model works on it, another sends recordings of a few seconds to
the same model. It prints their times, beside those of the same recordings alone, and whether every text is the same.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import statistics
import time
from pathlib import Path

import httpx

from benchmarks.served import long_recording, served, short_recordings, transcribe

MODELS = ("demo/sensevoice", "demo/paraformer", "demo/fireredasr", "demo/sensevoice|gguf", "demo/funasr-nano")
HEAD_START = 1.0  # seconds of the long recording alone


def timed(client: httpx.Client, model: str, path: Path) -> tuple[float, str]:
    """Returns the seconds and the text of one transcription."""
    started = time.perf_counter()
    status, text = transcribe(client, model, path)
    if status != 200:
        raise SystemExit(f"{model}: {status} {text}")
    return time.perf_counter() - started, text


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="length of the long recording")
    parser.add_argument("--models", nargs="+", default=MODELS)
    options = parser.parse_args()
    with (
        served() as server,
        httpx.Client(base_url=server.url, timeout=1200) as one,
        httpx.Client(base_url=server.url, timeout=1200) as other,
        concurrent.futures.ThreadPoolExecutor() as threads,
    ):
        long, shorts = long_recording(server.folder, 60 * options.minutes), short_recordings()
        for model in options.models:
            timed(one, model, shorts[0])  # loads it
            times_alone = {path: timed(other, model, path) for path in shorts}
            long_alone = timed(one, model, long)
            running = threads.submit(timed, one, model, long)
            time.sleep(HEAD_START)
            beside, same = [], True
            while not running.done():
                path = shorts[len(beside) % len(shorts)]
                seconds, text = timed(other, model, path)
                if not running.done():
                    beside.append(seconds)
                same &= text == times_alone[path][1]
            same &= running.result()[1] == long_alone[1]
            ordered = sorted(beside) or [float("nan")]
            print(
                f"{model}: long {long_alone[0]:.1f} s alone, {running.result()[0]:.1f} s beside; short ones "
                f"{statistics.median(each for each, _ in times_alone.values()):.2f} s alone, {len(beside)} beside: "
                f"median {statistics.median(ordered):.2f} s, longest {ordered[-1]:.2f} s; "
                f"texts {'equal' if same else 'DIFFER'}",
                flush=True,
            )


if __name__ == "__main__":
    main()
