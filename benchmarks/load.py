"""Many visitors of a page at once: `python -m benchmarks.load --visitors 64 --seconds 300`.

It starts the page in public mode, lets visitors transcribe short and long recordings with several models, each over a
connection of its own: seven of eight by OpenAI's route, one of eight by `gradio_client` (`--pages`). It prints whether
every answer equals that of the same request alone, the median and the 95th percentile of the times of short recordings
(beside those where all recordings are short), the refused requests, and the growth of the server's processes, memory,
files and temporary files.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.served import long_recording, served, short_recordings, transcribe

MODELS = ("demo/sensevoice", "demo/paraformer", "demo/sensevoice|gguf", "demo/fireredasr")
LONG_SECONDS = 120.0
REFUSED = (429, 503)


@dataclass
class RoundResult:
    """The results of a round's requests."""

    seconds: list[float] = field(default_factory=list)  # of short recordings
    models: dict[str, list[float]] = field(default_factory=dict)  # the same by model
    answers: int = 0
    wrong: int = 0
    refused: int = 0
    failed: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


Ask = Callable[[str, Path], tuple[int, str]]  # takes a model and a recording; returns the status and the text


@contextlib.contextmanager
def by_route(url: str) -> Iterator[Ask]:
    """A visitor of OpenAI's route."""
    with httpx.Client(base_url=url, timeout=600) as client:
        yield lambda model, path: transcribe(client, model, path)


@contextlib.contextmanager
def by_page(url: str) -> Iterator[Ask]:
    """A visitor of the page's endpoint, who uploads each recording once."""
    from gradio_client import Client  # type: ignore[import-untyped]
    from gradio_client.exceptions import AppError  # type: ignore[import-untyped]

    client, uploaded = Client(url, verbose=False), {}

    def send(model: str, path: Path) -> tuple[int, str]:
        if path not in uploaded:
            with path.open("rb") as file:
                answer = httpx.post(f"{url}/gradio_api/upload", files={"files": (path.name, file)}, timeout=600)
            uploaded[path] = {"path": answer.json()[0], "meta": {"_type": "gradio.FileData"}}
        try:
            [row] = client.predict(audio=[uploaded[path]], models=[model], api_name="/transcribe")
        except AppError as error:
            return (REFUSED[0] if "try again" in str(error) else 500), str(error)[:200]
        return (200, row["text"]) if "text" in row else (500, str(row)[:200])

    try:
        yield send
    finally:
        client.close()


def visit(
    url: str, number: int, paths: list[Path], expected: dict[Any, str], end: float, result: RoundResult, page: bool
) -> None:
    """Sends one visitor's requests, with short pauses between them."""
    draw = random.Random(number)
    with (by_page if page else by_route)(url) as send:
        while time.monotonic() < end:
            model, path = draw.choice(MODELS), draw.choice(paths)
            started = time.perf_counter()
            try:
                status, text = send(model, path)
            except httpx.HTTPError as error:
                with result.lock:
                    result.failed.append(repr(error)[:100])
                continue
            took = time.perf_counter() - started
            with result.lock:
                if status in REFUSED:
                    result.refused += 1
                elif status != 200:
                    result.failed.append(text)
                else:
                    result.answers += 1
                    result.wrong += text != expected[model, path]
                    if "long" not in path.name:
                        result.seconds.append(took)
                        result.models.setdefault(model, []).append(took)
            time.sleep(draw.uniform(0.2, 1.0))


def round_of(
    url: str, visitors: int, pages: int, seconds: float, paths: list[Path], expected: dict[Any, str]
) -> RoundResult:
    """Lets all visitors send requests for a time; returns their results."""
    result, end = RoundResult(), time.monotonic() + seconds
    with concurrent.futures.ThreadPoolExecutor(visitors) as pool:
        for each in [pool.submit(visit, url, n, paths, expected, end, result, n < pages) for n in range(visitors)]:
            each.result()
    return result


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--visitors", type=int, default=64)
    parser.add_argument("--pages", type=int, help="visitors by gradio_client (default: an eighth)")
    parser.add_argument("--seconds", type=float, default=300.0, help="of each of the two rounds")
    options = parser.parse_args()
    pages = options.visitors // 8 if options.pages is None else options.pages
    with served(page=bool(pages)) as server:
        short = short_recordings()
        long = long_recording(server.folder, LONG_SECONDS)
        with httpx.Client(base_url=server.url, timeout=600) as client:
            alone_answers = {(m, p): transcribe(client, m, p) for m in MODELS for p in (*short, long)}
        bad = [answer for answer in alone_answers.values() if answer[0] != 200]
        assert not bad, bad
        texts = {key: text for key, (_, text) in alone_answers.items()}
        before = server.resources()
        for label, paths in (("short alone", short), ("short and long", [*short * 3, long])):
            result = round_of(server.url, options.visitors, pages, options.seconds, paths, texts)
            ordered = sorted(result.seconds)
            p95 = ordered[int(0.95 * (len(ordered) - 1))] if ordered else float("nan")
            middle = statistics.median(ordered) if ordered else float("nan")
            print(
                f"{label}: {result.answers} answers, {result.wrong} wrong, {result.refused} refused, "
                f"{len(result.failed)} failed; short ones: median {middle:.2f} s, 95th percentile {p95:.2f} s",
                flush=True,
            )
            for model, times in sorted(result.models.items()):
                print(f"   {model}: {len(times)}, median {statistics.median(times):.2f} s, longest {max(times):.2f} s")
            for failure in result.failed[:3]:
                print("  ", failure)
        time.sleep(5.0)
        print(json.dumps({"before": before, "after": server.resources()}, indent=1))


if __name__ == "__main__":
    main()
