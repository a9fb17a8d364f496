"""SpeechLM's language model in GGUF files: which types keep its streams, and its speed and memory beside PyTorch's.

    python -m benchmarks.speechlm_gguf types [--answers N] [--listen]
    python -m benchmarks.speechlm_gguf speed [--size demo|0.6b] [--types T,...] [--rows N] [--runs N]

`types` asks the demo to say strings of digits at temperature 0, and counts the answers whose eight streams are those of
PyTorch float32 to the last row: for files of one type, and for files of which one part alone has the type (the
embedding table, the heads of text and codec, the layers). With `--listen`, it prints the word error rates of
demo/sensevoice's transcripts.

`speed` generates rows of audio in a process for each side, in turns, and prints medians and the largest resident
memory. The model of 0.6 B shape has random weights; it needs some 8 GB of memory and of disk.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from workbench.conversion.plan import Plan, PlannedTensor, usual_type
from workbench.conversion.speechlm import ARCHITECTURE, plan_language
from workbench.conversion.writer import write
from workbench.core.settings import Settings
from workbench.families.gguf_files import LANGUAGE_ARCHITECTURE
from workbench.families.speechlm.model import SpeechLmModel, read_speechlm
from workbench.families.speechlm.parts import SpeechDefaults
from workbench.formats.gguf_file import read_gguf
from workbench.formats.quantization import Kind, stored_type
from workbench.registry.sources import assets
from workbench.runtimes.gguf.llama_cpp.speechlm_network import SpeechLmNetwork
from workbench.runtimes.pytorch.checkpoints.speechlm_weights import STREAM_TABLE, SpeechLmTensors, read_tensors
from workbench.runtimes.pytorch.speechlm import architecture, open_speechlm
from workbench.speech.delay import aligned
from workbench.speech.generate import AnswerPlan, answer_steps
from workbench.speech.layout import SPECIAL, SpeechLayout
from workbench.speech.phases import Kind as Phase
from workbench.text.rates import pool_scores, score
from workbench.training.data.digits import words_of
from workbench.training.speechlm.measure import PADDING, sensevoice, strings_to_say

TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
PARTS: dict[str, Callable[[str], bool]] = {
    "embedding table": lambda name: name.startswith("token_embd"),
    "text head": lambda name: name.startswith("heads.text"),
    "codec head": lambda name: name.startswith("heads.codec"),
    "layers": lambda name: name.startswith("blk."),
}
SHAPE = {  # of Qwen3-0.6B, with untied tables over SpeechLM's vocabulary
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rope_theta": 1e6,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
LAYOUT = SpeechLayout(
    vocabulary=160392,
    text_first=256,
    text_end=152192,
    codec_first=152192,
    streams=8,
    layer_size=1025,
    **{name: number for number, name in enumerate(SPECIAL)},
)


def random_model() -> tuple[SpeechLmModel, Any, torch.Tensor]:
    """Returns a model of 0.6 B shape without tokenizer, its network of random weights, and `stream_emb`."""
    import transformers

    settings = {**SHAPE, "vocab_size": LAYOUT.vocabulary}
    nothing: Any = None
    model = SpeechLmModel(Path("random"), (), LAYOUT, nothing, settings, None, None, SpeechDefaults(), {})
    torch.manual_seed(0)
    network = transformers.Qwen3ForCausalLM(architecture(model, "random"))
    return model, network, 0.02 * torch.randn(LAYOUT.streams, SHAPE["hidden_size"])


def language_file(model: SpeechLmModel, parts: SpeechLmTensors, kind: str, out: Path, part: str | None = None) -> Path:
    """Writes the language model alone, of one type; with `part`, that part has the type and the rest is f32."""

    def type_of(tensor: PlannedTensor, quantization: str) -> str:
        if part is None:
            return usual_type(tensor, quantization)
        chosen = PARTS[part](tensor.name) and "norm" not in tensor.name
        return stored_type(Kind.MATRIX, tensor.shape, quantization) if chosen else "f32"

    values, tensors = plan_language(model, parts)
    plan = Plan(ARCHITECTURE, {LANGUAGE_ARCHITECTURE: "qwen3", **values}, tensors, type_of=type_of)
    return write([plan], kind, out)[0]


def answers(network: Any, model: SpeechLmModel, texts: Sequence[str], cfg: float) -> list[np.ndarray]:
    """Returns the rows of the answers at temperature 0, markers and closing rows included."""
    plan = AnswerPlan("text_audio", text_temperature=0.0, audio_temperature=0.0, cfg=cfg, max_audio_rows=400)
    layout, rows = model.layout, []
    for text in texts:
        ids = [layout.bos, layout.user, layout.text, *model.tokenizer.encode(text), layout.eos, layout.assistant]
        prompt = np.array([layout.row(number) for number in ids])
        steps = list(answer_steps(network, [prompt], plan))
        rows.append(np.array([step.ids for step in steps if step.phase is not Phase.MARKER]))
    return rows


def equal_answers(candidate: Sequence[np.ndarray], reference: Sequence[np.ndarray]) -> str:
    """Returns how many answers are equal, and the share of rows before the others differ."""
    shares = []
    for one, other in zip(candidate, reference, strict=True):
        both = min(len(one), len(other))
        differing = np.flatnonzero((one[:both] != other[:both]).any(axis=1))
        shares.append(
            1.0
            if one.shape == other.shape and not len(differing)
            else (differing[0] if len(differing) else both) / both
        )
    equal = sum(share == 1.0 for share in shares)
    rest = [share for share in shares if share < 1.0]
    rest_text = f"; the others part after {statistics.median(rest):.0%} of their rows" if rest else ""
    return f"{equal:3} of {len(shares)} answers equal{rest_text}"


def error_rate(rows: Sequence[np.ndarray], digits: Sequence[Sequence[int]], layout: SpeechLayout, codec: Any) -> str:
    """Returns the word error rate of demo/sensevoice's transcripts of the answers' audio."""
    transcribe, scores = sensevoice(), []
    for row, spoken_digits in zip(rows, digits, strict=True):
        audio = row[(row[:, 0] >= layout.codec_first) & (row[:, 1:] >= layout.codec_first).all(axis=1)]
        codes = aligned(audio, layout)
        samples = codec.decode(codes) if len(codes) else np.zeros(0, np.float32)
        scores.append(score(words_of(spoken_digits), transcribe(np.concatenate([PADDING, samples, PADDING]))))
    return f"; word error rate {pool_scores(scores).wer or 0:.2%}"


def measure_types(count: int, listen: bool) -> None:
    """Prints the table of types."""
    directory = assets() / "demo-speechlm"
    model, reference, codec = open_speechlm(directory, Settings())
    parts = read_tensors(model.weights)
    digits = strings_to_say(count)
    texts = [f"say {words_of(each)}" for each in digits]
    expected = {cfg: answers(reference, model, texts, cfg) for cfg in (1.0, 3.0)}
    if listen:
        print(f"PyTorch float32{error_rate(expected[1.0], digits, model.layout, codec)}")
    with tempfile.TemporaryDirectory() as folder:
        for part in (None, *PARTS):
            for kind in TYPES if part is None else ("f16", "q8_0", "q5_0", "q4_0"):
                file = read_gguf(language_file(model, parts, kind, Path(folder) / "it.gguf", part))
                network = SpeechLmNetwork(file, model.language, model.layout, None, threads=1)
                rows = {cfg: answers(network, model, texts, cfg) for cfg in expected}
                line = ", ".join(f"cfg {cfg:g}: {equal_answers(rows[cfg], expected[cfg])}" for cfg in rows)
                more = error_rate(rows[1.0], digits, model.layout, codec) if listen and part is None else ""
                print(f"{part or 'whole file':>15} {kind:5} {line}{more}", flush=True)
                network.close()


def measure_speed(size: str, kinds: Sequence[str], rows: int, runs: int, threads: int) -> None:
    """Prints rows per second and memory of both sides."""
    with tempfile.TemporaryDirectory() as folder:
        if size == "demo":
            place, model = str(assets() / "demo-speechlm"), read_speechlm(assets() / "demo-speechlm")
            parts = read_tensors(model.weights)
        else:
            place = "random"
            model, network, streams = random_model()
            parts = SpeechLmTensors((), "random", dict(network.state_dict()), {STREAM_TABLE: streams})
        files = {kind: language_file(model, parts, kind, Path(folder) / f"{kind}.gguf") for kind in kinds}
        layout = asdict(model.layout)
        network = parts = None  # type: ignore[assignment]  # frees the memory for the two sides
        for kind, file in files.items():
            settings = {"layout": layout, "threads": threads}
            sides = [
                _Side({**settings, "runtime": "pytorch", "place": place}),
                _Side({**settings, "runtime": "gguf", "place": str(file)}),
            ]
            for cfg in (1.0, 3.0):
                measured = [[side.ask(cfg, rows) for side in sides] for _ in range(runs + 1)][1:]  # the first warms up
                pytorch, gguf = (
                    statistics.median(each["rows"] for each in side) for side in zip(*measured, strict=True)
                )
                peaks = [max(each["peak"] for each in side) for side in zip(*measured, strict=True)]
                ratios = sorted(gguf["rows"] / pytorch["rows"] for pytorch, gguf in measured)
                print(
                    f"{size} {kind} cfg {cfg:g}: {gguf:.1f} rows/s, PyTorch float32 {pytorch:.1f} rows/s, ratio "
                    f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); peak memory "
                    f"{peaks[1] / 1e6:.0f} MB, PyTorch {peaks[0] / 1e6:.0f} MB",
                    flush=True,
                )
            for side in sides:
                side.close()


class _Side:
    """A process of `benchmarks.speechlm_side`."""

    def __init__(self, settings: dict[str, Any]):
        command = [sys.executable, "-m", "benchmarks.speechlm_side", json.dumps(settings)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, cfg: float, rows: int) -> dict[str, float]:
        """Returns rows per second and peak memory of one answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{cfg} {rows}\n")
        self._process.stdin.flush()
        document: dict[str, float] = json.loads(self._process.stdout.readline())
        return document

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


def main() -> int:
    """Runs the chosen measurement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("types", "speed"))
    parser.add_argument("--answers", type=int, default=50)
    parser.add_argument("--listen", action="store_true")
    parser.add_argument("--size", choices=("demo", "0.6b"), default="demo")
    parser.add_argument("--types", default="f32,q8_0")
    parser.add_argument("--rows", type=int, default=150)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if options.what == "types":
        measure_types(options.answers, options.listen)
    else:
        measure_speed(options.size, options.types.split(","), options.rows, options.runs, options.threads)
    return 0


if __name__ == "__main__":
    sys.exit(main())
