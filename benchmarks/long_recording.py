"""Ten minutes of speech with pauses: the whole `workbench transcribe` command against FunASR's `AutoModel`.

    python -m benchmarks.long_recording --vad DIRECTORY [--dtype auto] [--runs 3] [--minutes 10]

Both load the same full-size SenseVoice of random weights and the same FSMN-VAD (a directory with its ONNX file and
am.mvn), cut the recording into stretches of at most 30 s, and write the text. Each run is a process of its own, from
its start to its end; they take turns. FunASR gets batches of 60 s, as its examples do. It prints medians, the ratio
(goal: at most 0.35), and how many characters each wrote, without spaces and tags: the stretches differ a little, as
this project keeps more sound around speech.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile
import yaml

from tests.reference.checkpoints import write_sensevoice
from workbench.audio.constants import SAMPLE_RATE
from workbench.audio.read import read
from workbench.families.voice_activity.fsmn_vad_onnx import read_onnx_weights
from workbench.registry.sources import assets

GOAL = 0.35
PAUSES = (0.5, 1.0, 2.0, 3.0)  # seconds between two samples, in turns
FUNASR = """import re, sys
from funasr import AutoModel
model, vad, wav, threads, device = sys.argv[1:]
loaded = AutoModel(model=model, vad_model=vad, vad_kwargs={"max_single_segment_time": 30000}, device=device,
                   ncpu=int(threads), disable_update=True, disable_pbar=True, log_level="ERROR")
found = loaded.generate(input=wav, cache={}, language="auto", batch_size_s=60, merge_vad=False)
print("TEXT", len(re.sub(r"<.*?>| ", "", found[0]["text"])))"""


def recording(minutes: float) -> np.ndarray:
    """Returns the project's samples one after another, with pauses between them."""
    samples = [read(path).samples for path in sorted((assets() / "samples").glob("*.wav"))]
    parts: list[np.ndarray] = []
    while sum(map(len, parts)) < 60 * minutes * SAMPLE_RATE:
        pause = PAUSES[len(parts) // 2 % len(PAUSES)]
        parts += [samples[len(parts) // 2 % len(samples)], np.zeros(int(pause * SAMPLE_RATE), np.float32)]
    return np.concatenate(parts)[: int(60 * minutes * SAMPLE_RATE)]


def write_vad(source: Path, directory: Path) -> Path:
    """Writes an FSMN-VAD as FunASR loads it, from its ONNX file and am.mvn."""
    import torch

    [onnx] = source.glob("*.onnx")
    network, tensors = read_onnx_weights(onnx)
    directory.mkdir()
    torch.save({name: torch.from_numpy(tensor) for name, tensor in tensors.items()}, directory / "model.pt")
    (directory / "am.mvn").write_bytes((source / "am.mvn").read_bytes())
    encoder = {**vars(network), "rorder": 0, "rstride": 0}
    frontend = {"fs": SAMPLE_RATE, "window": "hamming", "n_mels": 80, "frame_length": 25, "frame_shift": 10,
                "dither": 0.0, "lfr_m": 5, "lfr_n": 1}  # fmt: skip
    config = {"model": "FsmnVADStreaming", "model_conf": {"max_end_silence_time": 800}, "encoder": "FSMN",
              "encoder_conf": encoder, "frontend": "WavFrontendOnline", "frontend_conf": frontend}  # fmt: skip
    (directory / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    files = {"init_param": "model.pt", "config": "config.yaml", "frontend_conf": {"cmvn_file": "am.mvn"}}
    about = {"framework": "pytorch", "model": {"type": "funasr"}, "file_path_metas": files}
    (directory / "configuration.json").write_text(json.dumps(about))
    return directory


def timed(command: list[str]) -> tuple[float, str]:
    """Returns the seconds of a process, and what it printed."""
    started = time.perf_counter()
    process = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    if process.returncode:
        raise SystemExit(f"{' '.join(command[:4])} failed: {process.stderr[-500:]}")
    return time.perf_counter() - started, process.stdout


def main() -> int:
    """Measures and prints; returns 1 beyond the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vad", type=Path, required=True, help="directory with the ONNX file of an FSMN-VAD")
    parser.add_argument("--dtype", default="auto", help="of the workbench's products (default: auto)")
    parser.add_argument("--device", default="cpu", help="of both sides (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter with funasr (default: this one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="workbench-benchmark-") as name:
        folder = Path(name)
        model, vad = write_sensevoice(folder / "sensevoice"), write_vad(options.vad, folder / "vad")
        wav, threads = folder / "speech.wav", str(options.threads)
        soundfile.write(wav, recording(options.minutes), SAMPLE_RATE, subtype="PCM_16")
        words = ["transcribe", wav, "--model", model, "--vad", vad, "--dtype", options.dtype, "--threads", threads,
                 "--device", options.device]  # fmt: skip
        workbench_command = [sys.executable, "-m", "workbench", *map(str, words), "--format", "json"]
        funasr_command = [options.peer_python, "-c", FUNASR, *map(str, (model, vad, wav, threads, options.device))]
        seconds: dict[str, list[float]] = {"workbench": [], "funasr": []}
        outputs = {}
        for turn in range(options.runs):
            sides = [("workbench", workbench_command), ("funasr", funasr_command)]
            for side, command in sides if turn % 2 else sides[::-1]:
                elapsed, outputs[side] = timed(command)
                seconds[side].append(elapsed)
                print(f"{side}: {elapsed:.1f} s", flush=True)
    middle = {side: statistics.median(times) for side, times in seconds.items()}
    written = len(json.loads(outputs["workbench"])["text"].replace(" ", "")), int(outputs["funasr"].split()[-1])
    conditions = f"{threads} threads, {options.device}, {options.dtype}"
    print(f"{options.minutes:g} minutes, {conditions}; characters: {written[0]} and {written[1]}")
    ratio = middle["workbench"] / middle["funasr"]
    print(f"medians {middle['workbench']:.1f} and {middle['funasr']:.1f} s, ratio {ratio:.3f} (goal: at most {GOAL})")
    return int(ratio > GOAL)


if __name__ == "__main__":
    sys.exit(main())
