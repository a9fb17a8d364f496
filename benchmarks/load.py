"""How a page serves many visitors at once: `python -m benchmarks.load --visitors 64 --seconds 300`.

It starts the page in public mode, lets visitors transcribe short and long recordings with several models, each over a
connection of its own, and prints: whether every answer is what the same request gives alone, the median and the 95th
percentile of the times of short recordings (beside those where all recordings are short), what was refused, and what
the server's processes, memory, files and temporary files grew by.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import random
import statistics
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.served import long_recording, served, short_recordings, transcribe

MODELS = ("demo/sensevoice", "demo/paraformer", "demo/sensevoice|gguf", "demo/fireredasr")
LONG_SECONDS = 120.0
REFUSED = (429, 503)


@dataclass
class Seen:
    """What came of the requests."""

    seconds: list[float] = field(default_factory=list)  # of short recordings
    models: dict[str, list[float]] = field(default_factory=dict)  # the same by model
    answers: int = 0
    wrong: int = 0
    refused: int = 0
    failed: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def visit(url: str, number: int, paths: list[Path], alone: dict[Any, str], end: float, seen: Seen) -> None:
    """One visitor: asks, waits a moment, asks again."""
    draw = random.Random(number)
    with httpx.Client(base_url=url, timeout=600) as client:
        while time.monotonic() < end:
            model, path = draw.choice(MODELS), draw.choice(paths)
            begun = time.perf_counter()
            try:
                status, text = transcribe(client, model, path)
            except httpx.HTTPError as error:
                with seen.lock:
                    seen.failed.append(repr(error)[:100])
                continue
            took = time.perf_counter() - begun
            with seen.lock:
                if status in REFUSED:
                    seen.refused += 1
                elif status != 200:
                    seen.failed.append(text)
                else:
                    seen.answers += 1
                    seen.wrong += text != alone[model, path]
                    if "long" not in path.name:
                        seen.seconds.append(took)
                        seen.models.setdefault(model, []).append(took)
            time.sleep(draw.uniform(0.2, 1.0))


def round_of(url: str, visitors: int, seconds: float, paths: list[Path], alone: dict[Any, str]) -> Seen:
    """Lets all visitors ask for a time; prints and returns what they saw."""
    seen, end = Seen(), time.monotonic() + seconds
    with concurrent.futures.ThreadPoolExecutor(visitors) as pool:
        for each in [pool.submit(visit, url, n, paths, alone, end, seen) for n in range(visitors)]:
            each.result()
    return seen


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--visitors", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=300.0, help="of each of the two rounds")
    given = parser.parse_args()
    with served() as server:
        short = short_recordings()
        long = long_recording(server.folder, LONG_SECONDS)
        with httpx.Client(base_url=server.url, timeout=600) as client:
            alone = {(m, p): transcribe(client, m, p) for m in MODELS for p in (*short, long)}
        bad = [answer for answer in alone.values() if answer[0] != 200]
        assert not bad, bad
        texts = {key: text for key, (_, text) in alone.items()}
        before = server.held()
        for told, paths in (("short alone", short), ("short and long", [*short * 3, long])):
            seen = round_of(server.url, given.visitors, given.seconds, paths, texts)
            ordered = sorted(seen.seconds)
            p95 = ordered[int(0.95 * (len(ordered) - 1))] if ordered else float("nan")
            middle = statistics.median(ordered) if ordered else float("nan")
            print(
                f"{told}: {seen.answers} answers, {seen.wrong} wrong, {seen.refused} refused, {len(seen.failed)} "
                f"failed; short ones: median {middle:.2f} s, 95th percentile {p95:.2f} s",
                flush=True,
            )
            for model, times in sorted(seen.models.items()):
                print(f"   {model}: {len(times)}, median {statistics.median(times):.2f} s, longest {max(times):.2f} s")
            for failure in seen.failed[:3]:
                print("  ", failure)
        time.sleep(5.0)
        print(json.dumps({"before": before, "after": server.held()}, indent=1))


if __name__ == "__main__":
    main()
