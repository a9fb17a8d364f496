"""The cost of capturing every stage: full-size SenseVoice, 44 s of real speech, PyTorch and GGUF in float32.

A checkpoint of random weights at the published dimensions is opened on both runtimes, each in its own process as usual.
A plain turn transcribes on both. A captured turn traces all stages on both into files and compares the two stage by
stage. The turns alternate. It prints the seconds of every part and of the processors, the ratio of captured to plain
turns by both measures, the largest resident memory of each process and of all together, and the result of the
comparison. On a machine with other work, trust the ratio of the processors' seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

import numpy as np

from workbench.audio.read import read, write_wav
from workbench.compare.files import compare_files
from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry
from workbench.registry.sources import assets

SECONDS = 44.0
LONGEST_CHUNK = 60.0  # the recording is one chunk, as in a trace
MAKE = """import sys
from pathlib import Path
from tests.reference.checkpoints import write_sensevoice
from workbench.conversion import sensevoice, writer
folder = Path(sys.argv[1])
directory = write_sensevoice(folder / "sensevoice")
writer.write(sensevoice.plans(directory, "workbench"), "f32", folder / "sensevoice.gguf")"""
GOAL_RATIO, GOAL_BYTES = 2.0, 2e9


@dataclass
class Turn:
    """Seconds of each part, the processors' seconds, and the largest resident memory of each process."""

    pids: dict[str, int]
    seconds: dict[str, float] = field(default_factory=dict)
    work: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measures the time of the block."""
        started, worked = time.perf_counter(), processor_seconds(self.pids)
        yield
        self.seconds[name] = time.perf_counter() - started
        self.work[name] = processor_seconds(self.pids) - worked

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Measures the largest resident memory of the processes within the block (Linux)."""
        for pid in self.pids.values():
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # resets earlier peaks
        yield
        for name, pid in self.pids.items():
            lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            self.peaks[name] = int(lines["VmHWM"].split()[0]) * 1024


def processor_seconds(pids: dict[str, int]) -> float:
    """Returns the processor time of the processes so far, over all their threads (Linux)."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids.values()]
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


def plain(turn: Turn, sessions: dict[str, OpenSession], sound: Path) -> None:
    """Transcribes on both runtimes."""
    for name, session in sessions.items():
        with turn.part(name):
            session.transcribe(sound, vad="none", max_segment_seconds=LONGEST_CHUNK)


def captured(turn: Turn, sessions: dict[str, OpenSession], sound: Path, folder: Path) -> tuple[str, int]:
    """Traces all stages on both runtimes and compares the traces; returns the verdict and the bytes of a trace."""
    files = [folder / f"{name}.safetensors" for name in sessions]
    for file in files:
        file.unlink(missing_ok=True)
    for (name, session), file in zip(sessions.items(), files, strict=True):
        with turn.part(name):
            session.trace(sound, out=file)
    with turn.part("comparison"):
        verdict = next(compare_files(files[0], files[1]).lines())
    return verdict, files[0].stat().st_size


def report(plain_turns: list[Turn], captured_turns: list[Turn]) -> None:
    """Prints medians, ratios and memory."""
    for label, values in (("seconds", attrgetter("seconds")), ("seconds of processors", attrgetter("work"))):
        for name in captured_turns[0].seconds:
            sides = [
                f"{kind} {statistics.median(values(turn)[name] for turn in turns):.2f}"
                for kind, turns in (("plain", plain_turns), ("captured", captured_turns))
                if name in turns[0].seconds
            ]
            print(f"{name}, {label}: {', '.join(sides)}")
        pairs = zip(plain_turns, captured_turns, strict=True)
        ratios = sorted(sum(values(two).values()) / sum(values(one).values()) for one, two in pairs)
        print(
            f"captured and compared to plain, {label}: {statistics.median(ratios):.2f} "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f}; goal: at most {GOAL_RATIO:.0f})"
        )
    peaks = [
        {name: max(turn.peaks[name] for turn in turns) for name in turns[0].peaks}
        for turns in (plain_turns, captured_turns)
    ]
    for name in peaks[0]:
        print(f"peak memory of {name}: plain {peaks[0][name] / 1e6:.0f} MB, captured {peaks[1][name] / 1e6:.0f} MB")
    more = sum(peaks[1].values()) - sum(peaks[0].values())
    print(f"all processes together: {more / 1e6:.0f} MB more (goal: less than {GOAL_BYTES / 1e6:.0f})")


def speech() -> np.ndarray:
    """Returns samples of the project, one after another, repeated as needed."""
    samples = np.concatenate([read(path).samples for path in sorted((assets() / "samples").glob("*.wav"))])
    return np.resize(samples, int(SECONDS * 16000))


def main() -> None:
    """Parses the arguments, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="keep the checkpoint there, and take it from there (1.9 GB)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="workbench-benchmark-") as name:
        place, traces = options.folder or Path(name), Path(name)
        if not (place / "sensevoice.gguf").exists():
            place.mkdir(parents=True, exist_ok=True)
            subprocess.run([sys.executable, "-c", MAKE, str(place)], check=True)
        sound = traces / "speech.wav"
        write_wav(sound, speech())
        with Registry() as registry:
            sessions = {
                "pytorch": registry.open(place / "sensevoice", runtime="pytorch", threads=options.threads),
                "gguf": registry.open(place / "sensevoice.gguf", runtime="gguf", threads=options.threads),
            }
            pids = {each: session.pid for each, session in sessions.items() if session.pid}
            pids["this process"] = os.getpid()
            turns: tuple[list[Turn], list[Turn]] = ([], [])
            for number in range(options.runs + 1):
                for first in (number % 2, 1 - number % 2):
                    turn = Turn(pids)
                    with turn.watched():
                        if first:
                            plain(turn, sessions, sound)
                        else:
                            verdict, size = captured(turn, sessions, sound, traces)
                    side = "plain" if first else "captured"
                    print(
                        f"{side}: {sum(turn.seconds.values()):.1f} s, {sum(turn.work.values()):.1f} s of processors",
                        flush=True,
                    )
                    if number:  # the first warms up
                        turns[0 if first else 1].append(turn)
            print(f"SenseVoice, {SECONDS:.0f} s of speech, {options.threads} threads, {options.runs} turns; "
                  f"each trace {size / 1e6:.0f} MB")  # fmt: skip
            report(*turns)
            print(f"verdict: {verdict}")
            for session in sessions.values():
                session.close()


if __name__ == "__main__":
    main()
