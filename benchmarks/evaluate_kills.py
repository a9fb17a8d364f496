"""Kills an evaluation at random moments, and compares the results with an undisturbed run.

    python -m benchmarks.evaluate_kills [--recordings 2000] [--kills 20] [--workers 2] [--model M]...

Each time `workbench evaluate` continues, the program kills a worker, the driver or the whole group of processes at a
random moment; once it stops all writing by a limit on the size of files, as a full disk does. In the end each recording
must have exactly one result for each model, and the results without `measured` must equal those of an undisturbed run
byte for byte.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil

from workbench.audio.read import read, write_wav
from workbench.evaluation.store import RESULTS

MODELS = ("demo/sensevoice", "demo/paraformer", "demo/sensevoice|gguf|q8_0", "demo/paraformer|gguf|q8_0")
SAMPLE = Path(__file__).parents[1] / "assets" / "samples" / "three_seven_one.wav"
KINDS = ("worker", "driver", "group")
FULL = 4_000  # bytes that a file may grow by where the disk is "full"


def make_corpus(folder: Path, count: int, seed: int = 0) -> Path:
    """Writes recordings of spoken digits, each at its own level behind its own pause, with their list."""
    rng = np.random.default_rng(seed)
    speech = read(SAMPLE).samples
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "list.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "audio", "text", "speaker"])
        for number in range(count):
            pause = np.zeros(int(rng.integers(0, 6000)), dtype=np.float32)
            write_wav(folder / f"{number:05d}.wav", np.concatenate([pause, speech * rng.uniform(0.3, 1.0)]))
            table.writerow([f"u{number:05d}", f"{number:05d}.wav", "three seven one", f"speaker {number % 7}"])
    return folder / "list.csv"


def start(corpus: Path, out: Path, models: Sequence[str], workers: int, full: bool = False) -> subprocess.Popen[bytes]:
    """Starts `workbench evaluate` in a group of its own."""

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing fails instead
        sizes = [each.stat().st_size for each in (*out.glob(f"{RESULTS}/*/*"), *out.glob("*.json*"))]
        largest = max(sizes, default=0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest + FULL, largest + FULL))

    words = [sys.executable, "-m", "workbench", "evaluate", str(corpus), "--out", str(out), "--workers", str(workers)]
    return subprocess.Popen(
        [*words, *(word for model in models for word in ("--model", model))],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # the limit on files would cut off compiled modules too
        preexec_fn=limited if full else None,
    )


def rows(out: Path) -> dict[str, list[str]]:
    """Returns the results by file, without `measured`."""
    results: dict[str, list[str]] = {}
    for path in sorted(out.glob(f"{RESULTS}/*/*.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        results[str(path.relative_to(out))] = [json.dumps({**line, "measured": None}) for line in lines]
    return results


def written(out: Path) -> int:
    """Returns the bytes of results so far."""
    return sum(each.stat().st_size for each in out.glob(f"{RESULTS}/*/*.jsonl"))


def disturb(running: subprocess.Popen[bytes], out: Path, kind: str, rng: random.Random) -> bool:
    """Kills at a random moment after further results are written; returns whether the process still ran."""
    before, waiting = written(out), time.monotonic()
    while running.poll() is None and written(out) == before and time.monotonic() - waiting < 300:
        time.sleep(0.02)
    time.sleep(rng.uniform(0.0, 1.0))
    if running.poll() is not None:
        return False
    with contextlib.suppress(psutil.Error, OSError):
        if kind == "worker":
            children = psutil.Process(running.pid).children()
            if children:
                rng.choice(children).kill()
        elif kind == "driver":
            running.kill()
        else:
            children = psutil.Process(running.pid).children(recursive=True)
            os.killpg(running.pid, signal.SIGKILL)
            for child in children:
                child.kill()
    return True


def kill_and_go_on(
    corpus: Path, out: Path, models: Sequence[str], workers: int, kinds: Sequence[str], rng: random.Random
) -> Counter[str]:
    """Runs an evaluation to its end, with one kill of each of these kinds on the way; returns the kills by kind."""
    kills: Counter[str] = Counter()
    remaining = list(kinds)
    while True:
        full = bool(remaining) and remaining[0] == "full disk"
        running = start(corpus, out, models, workers, full)
        if full:
            _, output = running.communicate()
            kills["full disk"] += b"the disk is full" in output
            remaining.pop(0)
            continue
        while remaining and remaining[0] == "worker" and disturb(running, out, "worker", rng):
            kills[remaining.pop(0)] += 1
        if remaining and remaining[0] not in ("worker", "full disk") and disturb(running, out, remaining[0], rng):
            kills[remaining.pop(0)] += 1
        elif remaining and remaining[0] == "full disk":
            running.send_signal(signal.SIGINT)
        _, output = running.communicate()
        if running.returncode == 0:
            return kills
        if running.returncode not in (-signal.SIGKILL, 130):
            raise SystemExit(f"the evaluation ended with {running.returncode}: {output.decode()[-500:]}")


def check(corpus: Path, undisturbed: Path, disturbed: Path, models: int) -> None:
    """Ends the program with an error if a result is missing, duplicate, or unlike the undisturbed run's."""
    count = len(corpus.read_text(encoding="utf-8").splitlines()) - 1
    expected, results = rows(undisturbed), rows(disturbed)
    ids = Counter((line["model"], line["id"]) for lines in results.values() for line in map(json.loads, lines))
    if set(ids.values()) != {1} or len(ids) != count * models:
        raise SystemExit(f"{len(ids)} results of {count * models}, the most of one {max(ids.values(), default=0)}")
    if expected != results:
        raise SystemExit("the results are not those of the undisturbed run")


def main() -> None:
    """Runs the whole comparison and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    models = options.model or list(MODELS)
    rng = random.Random(options.seed)
    kinds = [rng.choice(KINDS) for _ in range(options.kills - 1)]
    kinds.insert(len(kinds) // 2, "full disk")
    with tempfile.TemporaryDirectory() as folder:
        corpus = make_corpus(Path(folder) / "corpus", options.recordings)
        started = time.perf_counter()
        if start(corpus, Path(folder) / "quiet", models, options.workers).wait():
            raise SystemExit("the undisturbed run failed")
        quiet = time.perf_counter() - started
        started = time.perf_counter()
        kills = kill_and_go_on(corpus, Path(folder) / "killed", models, options.workers, kinds, rng)
        killed = time.perf_counter() - started
        check(corpus, Path(folder) / "quiet", Path(folder) / "killed", len(models))
        summary = ", ".join(f"{count} × {kind}" for kind, count in sorted(kills.items()))
        print(
            f"{options.recordings} recordings, {len(models)} models, {sum(kills.values())} kills ({summary}): each "
            f"exactly once, equal to the undisturbed run; {quiet:.0f} s undisturbed, {killed:.0f} s with kills"
        )


if __name__ == "__main__":
    main()
