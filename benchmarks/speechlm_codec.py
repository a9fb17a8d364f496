"""Processor time of the codec's decoder in GGUF files beside PyTorch's: the demo's, and one of the published size.

    python -m benchmarks.speechlm_codec [--size demo|published] [--frames N] [--runs N] [--threads N]

Both sides decode the same codes in one process, in turns. It prints processor seconds for a second of sound, and their
ratio. The codec of the published size has random weights; it needs some 2 GB of memory.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from workbench.conversion.plan import Plan
from workbench.conversion.speechlm_audio import plan_codec
from workbench.conversion.writer import write
from workbench.families.speechlm.model import read_speechlm
from workbench.formats.gguf_file import read_gguf
from workbench.registry.sources import assets
from workbench.runtimes.gguf.networks.xcodec import Xcodec
from workbench.runtimes.pytorch.checkpoints.speechlm_weights import read_tensors
from workbench.runtimes.pytorch.networks.xcodec import Xcodec as OnPyTorch
from workbench.runtimes.pytorch.speechlm import CodecSource, codec_source

STREAMS = 8


def source_of(size: str) -> CodecSource:
    """Returns the demo's codec, or one of transformers' default sizes with random weights."""
    if size == "demo":
        model = read_speechlm(assets() / "demo-speechlm")
        source = codec_source(model, read_tensors(model.weights))
        assert source is not None
        return source
    import transformers

    torch.manual_seed(0)
    tensors: Mapping[str, Any] = transformers.XcodecModel(transformers.XcodecConfig()).state_dict()
    return CodecSource({}, {name: value.contiguous() for name, value in tensors.items()}, "random", ())


def processor_seconds(codec: Any, codes: np.ndarray) -> float:
    """Returns the processor seconds that decoding a second of sound takes."""
    started = time.process_time()
    samples = codec.decode(codes)
    return (time.process_time() - started) * codec.sample_rate / len(samples)


def measure(size: str, frames: int, runs: int, threads: int) -> None:
    """Prints both sides' processor seconds and their ratio."""
    torch.set_num_threads(threads)
    source = source_of(size)
    on_pytorch = OnPyTorch(source.settings, source.tensors, STREAMS, torch.device("cpu"), source.where, source.files)
    with tempfile.TemporaryDirectory() as folder:
        part = plan_codec(source.settings, source.tensors, STREAMS, source.where, source.files)
        out = Path(folder) / "codec.gguf"
        write([Plan("speechlm-audio", part.values, part.tensors)], "f32", out)
        on_gguf = Xcodec(read_gguf(out), STREAMS, threads)
        codes = np.random.default_rng(0).integers(0, on_pytorch.codes, (frames, STREAMS))
        one, other = on_pytorch.decode(codes), on_gguf.decode(codes)  # warms both up
        difference = float(np.linalg.norm(other - one) / np.linalg.norm(one))
        pairs = [(processor_seconds(on_gguf, codes), processor_seconds(on_pytorch, codes)) for _ in range(runs)]
        on_gguf.close()
    ratios = sorted(gguf_seconds / other for gguf_seconds, other in pairs)
    gguf, pytorch = (statistics.median(each) for each in zip(*pairs, strict=True))
    print(
        f"{size}, {frames} frames, {threads} thread{'s' * (threads > 1)}: GGUF {gguf:.4f}, PyTorch {pytorch:.4f} "
        f"processor seconds per second of sound; ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to "
        f"{ratios[-1]:.2f}); relative L2 {difference:.1e}"
    )


def main() -> int:
    """Runs the chosen measurement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=("demo", "published"), default="demo")
    parser.add_argument("--frames", type=int, default=250)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    measure(options.size, options.frames, options.runs, options.threads)
    return 0


if __name__ == "__main__":
    sys.exit(main())
