"""Full-size SenseVoice and Paraformer on PyTorch against the original funasr package.

Both sides load the same checkpoint of random weights in FunASR's format and alternate on the features of the same 44 s
of real speech. It prints medians, their ratio, loading time and memory, whether the ids are equal, and the time of the
arithmetic alone at this machine's measured rate of matrix products.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.reference.checkpoints import write_paraformer, write_sensevoice
from workbench.audio.cmvn import read_am_mvn
from workbench.audio.frontend import Frontend
from workbench.audio.read import read
from workbench.families.sanm.encoder import SanmConfig
from workbench.families.sanm.paraformer import read_paraformer
from workbench.families.sanm.sensevoice import read_sensevoice
from workbench.registry.sources import assets

SECONDS = 44.0
WRITERS = {"sensevoice": write_sensevoice, "paraformer": write_paraformer}
READERS = {"sensevoice": read_sensevoice, "paraformer": read_paraformer}


class Side:
    """The process of one side."""

    def __init__(
        self,
        name: str,
        python: str,
        directory: Path,
        features: Path,
        threads: int,
        device: str = "cpu",
        dtype: str = "float32",
    ):
        command = [python, "-m", "benchmarks.side", name, str(directory), str(features), str(threads), device, dtype]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.loaded = self.answer()
        self.runs: list[dict[str, Any]] = []

    def answer(self) -> dict[str, Any]:
        """Returns the next JSON line that the process prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(self.process.args[1:5])} ended; run it by hand to see why")  # type: ignore[index]
        document: dict[str, Any] = json.loads(line)
        return document

    def run(self) -> None:
        """Runs one timed forward pass."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.runs.append(self.answer())

    @property
    def median(self) -> float:
        """The median seconds per forward pass, without the first, which warms up."""
        return statistics.median(run["seconds"] for run in self.runs[1:])


def speech(path: Path | None) -> np.ndarray:
    """Returns 44 s of speech: a recording, or the project's samples one after another, repeated as needed."""
    paths = [path] if path else sorted((assets() / "samples").glob("*.wav"))
    samples = np.concatenate([read(one).samples for one in paths])
    return np.resize(samples, int(SECONDS * 16000))


def gigaflops(encoder: SanmConfig, frames: int) -> float:
    """Returns the operations of the encoder's matrix products in units of 1e9; a multiply-add counts as two."""
    total = 0
    for number in range(encoder.layers):
        width, size = (encoder.input_size if number == 0 else encoder.output_size), encoder.output_size
        total += frames * (width * 3 * size + size * size + 2 * size * encoder.linear_units)
        total += 2 * frames * frames * size
    return 2 * total / 1e9


def matrix_rate(threads: int, dtype: str = "float32", device: str = "cpu") -> float:
    """Returns this machine's rate of matrix products in a type, in 1e9 operations per second, at the feed-forward's
    shape.
    """
    import torch

    torch.set_num_threads(threads)
    a, b = (torch.randn(size).to(device, getattr(torch, dtype)) for size in ((768, 512), (2048, 512)))
    best = float("inf")
    for _ in range(30):
        started = time.perf_counter()
        torch.nn.functional.linear(a, b)
        if a.is_cuda:
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return 2 * 768 * 512 * 2048 / best / 1e9


def measure(family: str, options: argparse.Namespace, folder: Path) -> None:
    """Runs both sides on one family and prints the results."""
    directory = WRITERS[family](folder / family)
    model = READERS[family](directory)
    cmvn = read_am_mvn(model.cmvn_file) if model.cmvn_file else None
    features = Frontend(model.frontend, cmvn)(speech(options.audio)).features
    np.save(folder / "features.npy", features)
    arguments = (directory, folder / "features.npy", options.threads, options.device, options.dtype)
    sides = [Side("workbench", sys.executable, *arguments)]
    if not options.alone:
        sides.append(Side("funasr", options.peer_python, *arguments))
    for turn in range(options.runs + 1):
        for side in sides if turn % 2 else reversed(sides):
            side.run()
    for side in sides:
        assert side.process.stdin is not None
        side.process.stdin.close()
        side.process.wait()
    file = model.checkpoint.weights.stat().st_size / 2**20
    frames = len(features) + (4 if family == "sensevoice" else 0)
    work, rate = gigaflops(model.encoder, frames), matrix_rate(options.threads, options.dtype, options.device)
    conditions = f"{options.threads} threads, {options.device}"
    print(f"## {family}, {SECONDS:.0f} s of speech ({frames} frames), {conditions}, {options.runs} runs")
    print(f"encoder arithmetic {work:.0f} GFLOP; at this machine's {rate:.0f} GFLOP/s in {options.dtype}: "
          f"{work / rate:.3f} s, {100 * work / rate / sides[0].median:.0f} % of the workbench's time")  # fmt: skip
    for name, side in zip(("workbench", "funasr"), sides, strict=False):
        times = [run["seconds"] for run in side.runs[1:]]
        loaded, peak = side.loaded["loaded_megabytes"], side.runs[-1]["peak_megabytes"]
        print(f"{name}: median {side.median:.3f} s ({min(times):.3f} to {max(times):.3f})")
        print(
            f"  loading {side.loaded['load_seconds']:.2f} s, {loaded:.0f} MB resident ({loaded / file:.2f} x the file)"
        )
        print(f"  at most {peak:.0f} MB resident")
    if len(sides) == 2:
        same = sides[0].runs[-1]["ids"] == sides[1].runs[-1]["ids"]
        peaks = [side.runs[-1]["peak_megabytes"] for side in sides]
        print(f"ratio of medians {sides[0].median / sides[1].median:.3f}, of peak memory {peaks[0] / peaks[1]:.3f}")
        print(f"ids equal: {same}")


def main() -> None:
    """Parses the arguments and measures the chosen families."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=tuple(WRITERS), action="append", help="(default: both)")
    parser.add_argument("--audio", type=Path, help="recording to take 44 s from (default: the project's samples)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="of both sides (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), default="float32", help="of the workbench's products"
    )
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter with funasr (default: this one)")
    parser.add_argument("--alone", action="store_true", help="measure only this project")
    options = parser.parse_args()
    for family in options.family or tuple(WRITERS):
        with tempfile.TemporaryDirectory(prefix="workbench-benchmark-") as folder:
            measure(family, options, Path(folder))


if __name__ == "__main__":
    main()
