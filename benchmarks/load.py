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
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from workbench.audio.read import read, write_wav

SAMPLES = Path(__file__).parents[1] / "assets" / "samples"
MODELS = ("demo/sensevoice", "demo/paraformer", "demo/sensevoice|gguf", "demo/fireredasr")
LONG_SECONDS = 120.0
REFUSED = (429, 503)


@dataclass
class Seen:
    """What came of the requests."""

    seconds: list[float] = field(default_factory=list)  # of short recordings
    answers: int = 0
    wrong: int = 0
    refused: int = 0
    failed: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def transcribe(client: httpx.Client, model: str, path: Path) -> tuple[int, str]:
    """Returns the status and the text of one transcription."""
    with path.open("rb") as file:
        answer = client.post("/v1/audio/transcriptions", data={"model": model}, files={"file": (path.name, file)})
    return answer.status_code, answer.json()["text"] if answer.is_success else answer.text[:200]


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
            time.sleep(draw.uniform(0.2, 1.0))


def round_of(url: str, visitors: int, seconds: float, paths: list[Path], alone: dict[Any, str]) -> Seen:
    """Lets all visitors ask for a time; prints and returns what they saw."""
    seen, end = Seen(), time.monotonic() + seconds
    with concurrent.futures.ThreadPoolExecutor(visitors) as pool:
        for each in [pool.submit(visit, url, n, paths, alone, end, seen) for n in range(visitors)]:
            each.result()
    return seen


def held(pid: int, folder: Path) -> dict[str, float]:
    """Returns what the server holds: processes, memory in MB (its own alone too), open files, temporary files."""
    server = psutil.Process(pid)
    family = [server, *server.children(recursive=True)]
    return {
        "processes": len(family),
        "server MB": server.memory_info().rss >> 20,
        "all MB": sum(each.memory_info().rss for each in family) >> 20,
        "open files": server.num_fds(),
        "temporary files": sum(1 for path in folder.rglob("*") if path.is_file()),
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--visitors", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=300.0, help="of each of the two rounds")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="load-") as name:
        folder = Path(name)
        short = sorted(SAMPLES.glob("*.wav"))[:4]
        sound = read(short[0]).samples
        long = folder / "long.wav"
        write_wav(long, np.tile(sound, int(LONG_SECONDS * 16_000 / len(sound)) + 1))
        limits = folder / "limits.toml"  # all visitors come from one address
        limits.write_text("per_address = 1024\nrequests_per_minute = 100000\nuploads_per_hour = 100000\n")
        scratch = folder / "tmp"
        scratch.mkdir()
        command = [
            sys.executable,
            "-m",
            "workbench",
            "serve",
            "--mode",
            "public",
            "--port",
            "0",
            "--limits",
            str(limits),
        ]
        server = subprocess.Popen(
            command, env={**os.environ, "TMPDIR": str(scratch)}, stderr=subprocess.PIPE, text=True
        )
        try:
            assert server.stderr is not None
            url = next(line for line in server.stderr if "answers" in line).split("/v1")[0]
            threading.Thread(target=lambda: [None for _ in server.stderr or ()], daemon=True).start()
            with httpx.Client(base_url=url, timeout=600) as client:
                alone = {(m, p): transcribe(client, m, p) for m in MODELS for p in (*short, long)}
            bad = [key for key, (status, _) in alone.items() if status != 200]
            assert not bad, [alone[key] for key in bad]
            texts = {key: text for key, (_, text) in alone.items()}
            before = held(server.pid, scratch)
            for told, paths in (("short alone", short), ("short and long", [*short * 3, long])):
                seen = round_of(url, given.visitors, given.seconds, paths, texts)
                ordered = sorted(seen.seconds)
                p95 = ordered[int(0.95 * (len(ordered) - 1))] if ordered else float("nan")
                middle = statistics.median(ordered) if ordered else float("nan")
                print(
                    f"{told}: {seen.answers} answers, {seen.wrong} wrong, {seen.refused} refused, {len(seen.failed)} "
                    f"failed; short ones: median {middle:.2f} s, 95th percentile {p95:.2f} s",
                    flush=True,
                )
                for failure in seen.failed[:3]:
                    print("  ", failure)
            print(json.dumps({"before": before, "after": held(server.pid, scratch)}, indent=1))
        finally:
            server.send_signal(signal.SIGTERM)
            print("ended with status", server.wait(60), "and left", [path.name for path in scratch.rglob("*")])


if __name__ == "__main__":
    main()
