"""A model beside other work: `python -m benchmarks.busy_machine [--busy 0 1] [--sessions 1] [--spins default server]`.

Full-size SenseVoice with random weights transcribes 10 s, on PyTorch and in a GGUF file of type f32, in `--sessions`
processes at the same time, while `--busy` other programs compute without a pause. The numbers of turns that threads
wait for each other before they sleep (GOMP_SPINCOUNT) alternate: `default` is that of GNU's OpenMP, `server` what the
page and `workbench serve` set. It prints medians in seconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.forward import speech
from tests.reference.checkpoints import write_sensevoice
from workbench import Registry
from workbench.audio.constants import SAMPLE_RATE
from workbench.audio.read import write_wav
from workbench.system.processors import WAITING, share_processors

SECONDS = 10


def seconds_of(model: Path, recording: Path, threads: int, calls: int) -> list[float]:
    """Returns the seconds of each call but the first in a new session."""
    times = []
    with Registry() as registry, registry.open(str(model), threads=threads) as session:
        for _ in range(calls + 1):
            start = time.perf_counter()
            session.transcribe(recording)
            times.append(time.perf_counter() - start)
    return times[1:]


def seconds_side_by_side(model: Path, recording: Path, options: argparse.Namespace) -> list[float]:
    """Returns the seconds of the calls of all sessions that run at the same time."""
    with ThreadPoolExecutor(options.sessions) as executor:
        jobs = [
            executor.submit(seconds_of, model, recording, options.threads, options.calls)
            for _ in range(options.sessions)
        ]
        return [seconds for job in jobs for seconds in job.result()]


def set_turns(spins: str) -> None:
    """Sets for how long the threads of new sessions wait."""
    for name in WAITING:
        os.environ.pop(name, None)
    if spins == "server":
        share_processors(os.environ)
    elif spins != "default":
        os.environ["GOMP_SPINCOUNT"] = spins


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1], help="other programs (default: 0, then 1)")
    parser.add_argument("--spins", nargs="+", default=["default", "server"], help="(default: default server)")
    parser.add_argument("--sessions", type=int, default=1, help="at the same time (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--calls", type=int, default=5, help="of a session (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="workbench-benchmark-") as name:
        folder = Path(name)
        recording = folder / "speech.wav"
        write_wav(recording, speech(None)[: SECONDS * SAMPLE_RATE])
        checkpoint = write_sensevoice(folder / "sensevoice")
        file = folder / "sensevoice-f32.gguf"
        convert = [sys.executable, "-m", "workbench", "convert", checkpoint, "--quantization", "f32", "--out", file]
        subprocess.run(convert, check=True, stdout=subprocess.DEVNULL)
        for busy in options.busy:
            programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
            try:
                for runtime, model in (("pytorch", checkpoint), ("gguf", file)):
                    times: dict[str, list[float]] = {spins: [] for spins in options.spins}
                    for _ in range(options.rounds):
                        for spins, found in times.items():
                            set_turns(spins)
                            found += seconds_side_by_side(model, recording, options)
                    line = ", ".join(f"{spins} {statistics.median(found):.2f} s" for spins, found in times.items())
                    print(f"{options.sessions} sessions, {busy} busy programs, {runtime}: {line}", flush=True)
            finally:
                for program in programs:
                    program.kill()
                    program.wait()


if __name__ == "__main__":
    main()
