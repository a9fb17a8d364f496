"""One turn of `benchmarks.gguf_speed` in a separate process: opens a GGUF file, transcribes a recording twice.

It prints one JSON object: seconds of opening, of the first and of the second pass, the largest resident memory, and the
ids. The input is that of FunASR's C++ runtime: no CMVN, its query tokens, no voice activity detection.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.funasr_cpp_graph import EagerGraph
from workbench.audio.read import read
from workbench.core.settings import Settings
from workbench.families.sanm.sensevoice import SenseVoiceOptions
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner
from workbench.runtimes.gguf.sensevoice import open_session
from workbench.system.memory import peak_resident_bytes


def main() -> None:
    """Opens, transcribes, prints."""
    kind, file, recording, threads = sys.argv[1:]
    started = time.perf_counter()
    if kind == "standin":
        EagerGraph.install(GraphRunner)
    session = open_session(Path(file), "it", Settings(threads=int(threads)))
    opened = time.perf_counter() - started
    options, seconds, ids = SenseVoiceOptions(cmvn="off", itn=True), [], ()
    for _ in range(2):
        started = time.perf_counter()
        samples: np.ndarray = read(recording).samples
        ids = session.recogniser.recognise(samples, options).ids
        seconds.append(time.perf_counter() - started)
    print(json.dumps({"open": opened, "first": seconds[0], "second": seconds[1], "ids": ids,
                      "peak": peak_resident_bytes()}))  # fmt: skip


if __name__ == "__main__":
    main()
