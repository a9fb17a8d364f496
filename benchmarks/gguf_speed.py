"""Full-size SenseVoice on GGUF against FunASR's C++ runtime, on the same files and the same 44 s of real speech.

A checkpoint of random weights at the published dimensions is converted to each type. Both sides alternate, with a new
process each. For each type it prints medians, the ratio to the peer, to this project's PyTorch runtime and to this
machine's rate of matrix products, the largest resident memory, and whether both decode the same ids.

--peer names the C++ program `llama-funasr-sensevoice`; its source sets eight threads, so build it with the number of
--threads. Without --peer, its operations rebuilt with this project's binding take its place
(`benchmarks.funasr_cpp_graph`).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from benchmarks.forward import SECONDS, gigaflops, matrix_rate, speech
from tests.reference.checkpoints import write_sensevoice
from workbench.conversion import sensevoice, writer
from workbench.families.sanm.sensevoice import read_sensevoice

TYPES = ("f32", "f16", "q8_0", "q4_0")
# Runs a program from a small process, so that the measured memory is the program's alone.
WATCH = """import json, resource, subprocess, sys, time
begun = time.perf_counter()
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
seconds, kilobytes = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps({"status": done.returncode, "said": done.stdout, "seconds": seconds, "kilobytes": kilobytes}))"""
GOALS = {"f32": 0.45, "f16": 0.45, "q8_0": 0.3, "q4_0": 0.3}


@dataclass(frozen=True)
class Turn:
    """One process: seconds of computing with the loaded model, of loading and computing, memory, and the ids."""

    seconds: float
    total: float
    peak: float
    ids: tuple[int, ...]


def workbench_turn(kind: str, file: Path, wav: Path, threads: int) -> Turn:
    """Runs this project's runtime, or with kind `standin` the peer's operations on it."""
    command = [sys.executable, "-m", "benchmarks.gguf_side", kind, file, wav, threads]
    environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ}  # as in a session's process
    words = [str(part) for part in command]
    document = json.loads(subprocess.run(words, check=True, capture_output=True, env=environment).stdout)
    return Turn(
        document["second"], document["open"] + document["first"], document["peak"] / 1e6, tuple(document["ids"])
    )


def peer_turn(program: Path, file: Path, wav: Path) -> Turn:
    """Runs FunASR's C++ runtime, which prints how long it computed."""
    command = [str(part) for part in (program, "-m", file, "-a", wav, "--ids")]
    document = json.loads(subprocess.run([sys.executable, "-S", "-c", WATCH, *command], capture_output=True).stdout)
    match = re.search(r"done ([\d.]+)s", document["said"])
    if document["status"] or not match:
        raise SystemExit(f"{program.name} failed: {document['said'][-300:]}")
    ids = tuple(int(number) for number in re.findall(r"\b\d+\b", document["said"].split("[sensevoice]")[0]))
    return Turn(float(match[1]), document["seconds"], document["kilobytes"] / 1000, ids)


def pytorch_seconds(directory: Path, folder: Path, runs: int, threads: int) -> float:
    """Returns median seconds of this project's PyTorch forward in float32 on the same features."""
    from benchmarks.forward import Side
    from workbench.audio.frontend import Frontend

    model = read_sensevoice(directory)
    np.save(folder / "features.npy", Frontend(model.frontend, None)(speech(None)).features)
    side = Side("workbench", sys.executable, directory, folder / "features.npy", threads)
    for _ in range(runs + 1):
        side.run()
    assert side.process.stdin is not None
    side.process.stdin.close()
    side.process.wait()
    return side.median


def report(kind: str, own_turns: list[Turn], peer_turns: list[Turn], reference: float, ideal: float) -> None:
    """Prints the results of one type."""
    seconds, other = (statistics.median(turn.seconds for turn in turns) for turns in (own_turns, peer_turns))
    spread = [(min(t.seconds for t in turns), max(t.seconds for t in turns)) for turns in (own_turns, peer_turns)]
    goal = f" (goal: at most {GOALS[kind]})" if kind in GOALS else ""
    sides = [
        f"{middle:.2f} s ({low:.2f} to {high:.2f})"
        for middle, (low, high) in zip((seconds, other), spread, strict=True)
    ]
    print(f"{kind}: workbench {sides[0]}, peer {sides[1]}, ratio {seconds / other:.3f}{goal}")
    totals = [statistics.median(turn.total for turn in turns) for turns in (own_turns, peer_turns)]
    peaks = [max(turn.peak for turn in turns) for turns in (own_turns, peer_turns)]
    print(f"  with loading {totals[0]:.2f} and {totals[1]:.2f} s, ratio {totals[0] / totals[1]:.3f}; "
          f"peak memory {peaks[0]:.0f} and {peaks[1]:.0f} MB, ratio {peaks[0] / peaks[1]:.3f}")  # fmt: skip
    print(f"  to the workbench's PyTorch in float32 {seconds / reference:.2f}, "
          f"to the matrix rate {seconds / ideal:.2f}; "
          f"ids equal: {own_turns[-1].ids == peer_turns[-1].ids}")  # fmt: skip


def main() -> None:
    """Parses the arguments, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, help="FunASR's llama-funasr-sensevoice (default: the stand-in)")
    parser.add_argument("--types", nargs="+", choices=TYPES, default=TYPES[:3])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="workbench-benchmark-") as name:
        folder = Path(name)
        directory = write_sensevoice(folder / "sensevoice")
        soundfile.write(folder / "speech.wav", speech(None), 16000, subtype="PCM_16")
        model = read_sensevoice(directory)
        frames = int(SECONDS * 100) // 6 + 4
        work, rate = gigaflops(model.encoder, frames), matrix_rate(options.threads)
        reference = pytorch_seconds(directory, folder, options.runs, options.threads)
        print(f"SenseVoice, {SECONDS:.0f} s of speech, {options.threads} threads, {options.runs} turns; "
              f"peer: {options.peer.name if options.peer else 'stand-in'}")  # fmt: skip
        print(f"encoder arithmetic {work:.0f} GFLOP, at {rate:.0f} GFLOP/s {work / rate:.2f} s; "
              f"the workbench's PyTorch in float32 {reference:.2f} s")  # fmt: skip
        for kind in options.types:
            [file] = writer.write(sensevoice.plans(directory, "workbench"), kind, folder / f"{kind}.gguf")
            own_turns, peer_turns = [], []
            for turn in range(options.runs):
                for first in (turn % 2, 1 - turn % 2):
                    if first:
                        own_turns.append(workbench_turn("workbench", file, folder / "speech.wav", options.threads))
                    elif options.peer:
                        peer_turns.append(peer_turn(options.peer, file, folder / "speech.wav"))
                    else:
                        peer_turns.append(workbench_turn("standin", file, folder / "speech.wav", options.threads))
            report(kind, own_turns, peer_turns, reference, work / rate)
            file.unlink()


if __name__ == "__main__":
    main()
